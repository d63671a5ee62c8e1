"""T25: tools that misbehave in every way that a command or a function can, each through a whole run.

Whatever they do, the run ends or goes on by a named outcome, nothing of the call is left running, what is kept is bounded, and
what comes too late never reaches the model. Two rows of the list speak of replies with ids (an unknown one, and two for one): a
command and a function have none. All sixteen are run over MCP, in `test_t25_mcp.py`.
"""

import asyncio
import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace
from tool_support import DATA, SystemClock, alive

from semel import Agent, Completed, Interrupted, Rule, Runtime, tool
from semel.adapters.tools import execution
from semel.adapters.tools.command import CommandDeclaration, CommandTool
from semel.core.values import ToolMessage
from semel.engine import flight
from semel.errors import BadAgent
from semel.faces.views import view_of
from semel.ports.tool import ProcessMark, ToolPort
from semel.testing.ground import memory_ground
from tests.core.said import said_in
from tests.support.frames import frames_of

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc: what is left of a call is found there"),
]

TIMEOUT_SECONDS, GRACE_SECONDS = 0.4, 0.1
KEPT_BYTES = 64 * 1024


class Row(NamedTuple):
    """What the tool does as a shell script; what becomes of its call (`unknown`, `error`, `ok`) and what the model reads."""

    code: str
    becomes: str
    reads: str = ""


ROWS = {
    "ignores SIGTERM": Row("trap '' TERM; while :; do sleep 0.05; done", "unknown"),
    "ignores every request to end": Row("trap '' TERM INT HUP QUIT; while :; do sleep 0.05; done", "unknown"),
    "double-forks a daemon": Row("(setsid sleep 300 &) ; exec sleep 300", "unknown"),
    "holds its output open after its exit": Row("sleep 1 & echo started", "ok", "started"),
    "never reads its input": Row("exec sleep 0.01", "ok"),
    "writes much on one line": Row("head -c 4M /dev/zero | tr '\\0' x", "ok", "xxx"),
    "writes many lines": Row("yes line | head -c 4M", "ok", "line\nline"),
    "writes what is not UTF-8": Row("printf 'a\\377\\376b'", "ok", "a\ufffd\ufffdb"),
    "writes JSON that is broken": Row("echo '{\"a\": [1,'", "ok", '{"a": [1,'),
    "exits without an answer": Row("exit 3", "error", "exit code 3"),
    "is killed before it answers": Row("kill -9 $$", "unknown"),
    "stops itself": Row("kill -STOP $$", "unknown"),
    "floods its error output": Row("yes err | head -c 4M >&2; echo done", "ok", "done"),
}


def hostile(code: str) -> CommandTool:
    declaration = CommandDeclaration(command=("sh", "-c", code), timeout=TIMEOUT_SECONDS)
    return CommandTool("act", declaration, directory=DATA, clock=SystemClock(), grace_seconds=GRACE_SECONDS)


async def run_of(place: Path, found: ToolPort) -> tuple[Any, list[str], str]:
    """A run that calls the tool once: how it ended, what the model was told of the call, and the call's key."""
    (place / "m.json").write_text('{"answers": [{"calls": [{"name": "act", "args": {}}]}, {"text": "done"}]}')
    agent, at = Agent("a", model=f"scripted:{place}/m.json", tools=[found]), memory_ground()
    async with Runtime(agents=[agent], ground=at) as runtime:
        result = await (await runtime.session("s", agent=agent).send("go")).result()
    told = [message.text for message in said_in(at.store, "s") if isinstance(message, ToolMessage)]
    (key,) = [record["record"]["call_key"] for record in planned(at)]
    return result, told, key


def planned(at: Any) -> list[dict[str, Any]]:
    frames = frames_of(at.store, "s")
    batches = [json.loads(frame.payload) for frame in frames if b'"tool_batch_started"' in frame.payload]
    return [{"record": call} for batch in batches for call in batch["planned_calls"]]


@pytest.mark.parametrize("name", ROWS)
async def test_t25_a_hostile_command_has_a_named_outcome_and_leaves_nothing_behind(name: str, tmp_path: Path) -> None:
    row = ROWS[name]
    result, told, key = await run_of(tmp_path, hostile(row.code))
    if row.becomes == "unknown":
        assert isinstance(result, Interrupted)
        assert [one.call_key for one in result.unknown] == [key]
        assert told[0].startswith("Outcome unknown: ")
        assert alive(key) == {}
    else:
        assert isinstance(result, Completed)
        assert row.reads in told[0]
        assert len(told[0].encode()) < KEPT_BYTES + 1024
        while alive(key):
            await asyncio.sleep(0.01)  # what it left in the background runs on to its own end, and the run did not wait for it


def test_t25_has_its_rows() -> None:
    assert len(ROWS) == 13
    assert {row.becomes for row in ROWS.values()} == {"unknown", "error", "ok"}


async def test_t25_an_answer_that_comes_after_the_deadline_is_never_the_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flight, "CANCEL_GRACE_SECONDS", 0.05)
    go, ended = threading.Event(), threading.Event()

    @tool(name="act", timeout=0.05)
    def deaf() -> str:
        go.wait(20)
        ended.set()
        return "too late"

    result, told, _key = await run_of(tmp_path, deaf)
    go.set()
    await asyncio.to_thread(ended.wait, 20)
    await asyncio.sleep(0)
    assert isinstance(result, Interrupted)
    assert "too late" not in told[0]


async def test_t25_a_tool_that_changes_behind_an_approval_is_refused_by_name(tmp_path: Path) -> None:
    @tool(name="act")
    def small(cents: int) -> str:
        return f"{cents}"

    @tool(name="act")
    def large(euros: int) -> str:
        return f"{euros}"

    (tmp_path / "m.json").write_text('{"answers": [{"calls": [{"name": "act", "args": {"cents": 5}}]}, {"text": "done"}]}')
    at = memory_ground()

    def agent(found: ToolPort) -> Agent[str]:
        return Agent("a", model=f"scripted:{tmp_path}/m.json", tools=[found], policy=[Rule("ask")])

    async with Runtime(agents=[agent(small)], ground=at, recover="manual") as runtime:
        run = await runtime.session("s", agent=agent(small)).send("go")
        await run.rest()
    async with Runtime(agents=[agent(large)], ground=at, recover="manual") as runtime:
        with pytest.raises(BadAgent, match="has another schema than its open run was started with"):
            await runtime.resume("s")
    assert view_of(at.store, "s").state.run is not None


async def test_t25_a_clean_up_that_stops_at_the_process_group_would_be_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = execution.end_processes

    async def group_only(mark: ProcessMark, **options: Any) -> bool:
        return await whole(replace(mark, call_key=None), **options)

    monkeypatch.setattr(execution, "end_processes", group_only)
    _result, _told, key = await run_of(tmp_path, hostile(ROWS["double-forks a daemon"].code))
    left = alive(key)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert left
