"""A server that the official package made: what our client sends is what it understands, and the other way round."""

import asyncio
import sys
from pathlib import Path

import pytest
from mcp_support import MARK, a_served_call, run_of
from tool_support import DATA, SystemClock, alive

from semel import Completed
from semel.adapters.tools.mcp.source import McpDeclaration, McpServer
from semel.core.values import Effect
from semel.errors import ToolFailed
from semel.ports.tool import File

pytestmark = pytest.mark.anyio


def official(*words: object) -> McpServer:
    argv = (sys.executable, "mcp_official.py", *map(str, words))
    return McpServer("box", McpDeclaration(mcp=argv, trust_hints=True), directory=DATA, clock=SystemClock())


async def test_a_whole_run_with_a_server_of_the_official_package_keeps_one_server_for_all_its_calls(tmp_path: Path) -> None:
    one = {"calls": [{"name": "mcp__box__count", "args": {"word": "a", "times": 2}}]}
    two = {"calls": [{"name": "mcp__box__count", "args": {"word": "b"}}, {"name": "mcp__box__fail", "args": {}}]}
    wrong = {"calls": [{"name": "mcp__box__count", "args": {"wort": "b"}}]}
    result, told, _at = await run_of(tmp_path, official(), one, two, wrong, {"text": "done"})
    assert isinstance(result, Completed)
    assert told[:2] == ["2 words, the last is a", "3 words, the last is b"]
    assert told[2].startswith("the tool reports an error\n")
    assert "fail" in told[2]
    assert told[3].startswith("Not run: the arguments do not fit the tool's schema.")


@pytest.mark.prove  # its process takes seconds to start
async def test_files_progress_and_a_cancel_are_understood(tmp_path: Path) -> None:
    note, progress = tmp_path / "note", list[str]()
    source = official(note)
    specs = {spec.name: spec for spec in await source.offered()}
    assert [spec.effect for spec in specs.values()] == [Effect.READ, *[Effect.ONCE] * 4]
    assert specs["mcp__box__count"].description == "Count the words so far."
    served = source.open(list(specs.values()), None)
    assert await served.tools["mcp__box__picture"].run({}, a_served_call([])) == [
        File(b"\x89PNG\r\n\x1a\n", media_type="image/png")
    ]
    with pytest.raises(ToolFailed):
        await served.tools["mcp__box__fail"].run({}, a_served_call([]))
    assert await served.tools["mcp__box__work"].run({}, a_served_call(progress)) == "all of it"
    assert progress == ["half of it"]
    waiting = asyncio.ensure_future(served.tools["mcp__box__wait"].run({}, a_served_call([])))
    while not note.exists():
        await asyncio.sleep(0.01)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert note.read_text() == "cancelled", "it was told, before its process was ended"
    await served.close()
    assert alive(MARK) == {}
