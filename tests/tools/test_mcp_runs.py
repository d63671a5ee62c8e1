"""When the server of a run starts and ends: with its run, for no other, and also where the process is left or the run waits."""

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from mcp_support import ACT, agent_of, server
from tool_support import alive

from semel import Completed, Interrupted, Paused, Runtime
from semel.adapters.memory.store import Medium
from semel.adapters.tools.mcp import connection as connections
from semel.ports.roster import ROSTER
from semel.testing.ground import memory_ground

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc: the processes of a server are found there"),
]
CALL = {"calls": [{"name": ACT, "args": {}}]}


async def until(true: Callable[[], bool]) -> None:
    while not true():
        await asyncio.sleep(0.005)


def lines_of(path: Path) -> int:
    return path.read_text().count("\n") if path.exists() else 0


async def test_a_session_that_is_held_for_many_runs_holds_the_server_of_one(tmp_path: Path) -> None:
    note, at = tmp_path / "note", memory_ground()
    agent = agent_of(tmp_path, server("hangs the second time", note), CALL, {"text": "one"}, CALL, {"text": "two"})
    async with Runtime(agents=[agent], ground=at, drain_seconds=0) as runtime:
        session = runtime.session("s", agent=agent)
        first = await session.send("go")
        second = await session.send("go on", delivery="queue")
        assert isinstance(await first.result(), Completed)
        await until(lambda: lines_of(note) == 2)
        assert alive(f"{first.run_id}:box") == {}
        assert len(alive(f"{second.run_id}:box")) == 1
    assert alive(f"{second.run_id}:box") == {}


async def test_a_message_for_an_open_run_asks_no_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    note, found, asked = tmp_path / "note", server("never reads its input", tmp_path / "note"), list[str]()
    whole = found.offered

    async def counted() -> object:
        asked.append("asked")
        return await whole()

    monkeypatch.setattr(found, "offered", counted)
    agent = agent_of(tmp_path, found, CALL, {"text": "done"})
    async with Runtime(agents=[agent], ground=memory_ground(), drain_seconds=0) as runtime:
        session = runtime.session("s", agent=agent)
        await session.send("go")
        await until(lambda: lines_of(note) == 1)
        await session.steer("left")
        await session.send("later", delivery="queue")
        assert asked == ["asked"]


async def test_a_runtime_that_is_left_ends_the_server_and_its_call_is_unknown_at_the_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "ABANDON_SECONDS", 0.05)
    note, medium, before = tmp_path / "note", Medium(), set(ROSTER.names("process"))
    agent = agent_of(tmp_path, server("never reads its input", note))
    async with Runtime(agents=[agent], ground=memory_ground(medium), drain_seconds=0) as runtime:
        run = await runtime.session("s", agent=agent).send("go")
        await until(lambda: lines_of(note) == 1)
        assert set(runtime.resources().processes) > before
    assert alive(f"{run.run_id}:box") == {}
    assert set(runtime.resources().processes) == before
    async with Runtime(agents=[agent], ground=memory_ground(medium), recover="manual") as other:
        resumed = await other.resume("s")
        assert resumed is not None
        assert isinstance(await resumed.result(), Interrupted)
    assert lines_of(note) == 1, "it was not sent again"


async def test_a_server_that_is_slow_to_start_for_a_queued_message_does_not_hold_up_who_leaves(tmp_path: Path) -> None:
    note, medium, before = tmp_path / "note", Medium(), set(ROSTER.names("process"))
    slow = agent_of(tmp_path, server("starts twice", note, start_timeout=600.0), CALL, {"text": "one"})
    async with Runtime(agents=[slow], ground=memory_ground(medium), drain_seconds=0) as runtime:
        session = runtime.session("s", agent=slow)
        first = await session.send("go")
        await session.send("go on", key="second", delivery="queue")
        await until(lambda: note.exists() and note.read_text().count("started") == 3)
    assert isinstance(await first.result(), Completed)
    assert set(ROSTER.names("process")) == before
    assert runtime.stop_outcome is not None
    assert runtime.stop_outcome.failures == ()
    agent = agent_of(tmp_path, server("answers"), CALL, {"text": "one"}, {"text": "two"})
    async with Runtime(agents=[agent], ground=memory_ground(medium)) as other:
        second = await other.session("s", agent=agent).send("go on", key="second", delivery="queue")
        assert (await second.result()).output == "two"


async def test_a_run_that_waits_for_a_person_holds_no_server(tmp_path: Path) -> None:
    agent = agent_of(tmp_path, server("answers", ask=True))
    async with Runtime(agents=[agent], ground=memory_ground()) as runtime:
        run = await runtime.session("s", agent=agent).send("go")
        paused = await run.result()
        assert isinstance(paused, Paused)
        assert alive(f"{run.run_id}:box") == {}
        went_on = await runtime.approve(paused.waits[0].call_key or "")
        assert went_on is not None
        assert isinstance(await went_on.result(), Completed)
    assert alive(f"{run.run_id}:box") == {}
