"""T25 over MCP: a server that misbehaves in each of the sixteen ways of the list, each through a whole run.

Whatever it does, the call has a named outcome, nothing of the server is left running, memory stays bounded, and what comes too
late or twice, or answers nothing that was asked, never reaches the model.
"""

import asyncio
import dataclasses
import os
import signal
import sys
import tracemalloc
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from mcp_support import ACT, agent_of, records_of, run_of, server
from msgspec.structs import replace
from tool_support import alive

from semel import Completed, Interrupted, Paused, Runtime
from semel.adapters.tools.mcp import connection as connections
from semel.adapters.tools.mcp import process as processes
from semel.adapters.tools.mcp.connection import Connection
from semel.adapters.tools.mcp.messages import Message
from semel.core.values import ToolMessage
from semel.ports.tool import ProcessMark
from semel.testing.ground import memory_ground
from tests.core.said import said_in
from tests.engine.slow import StandingClock

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc: what is left of a server is found there"),
]

TIMEOUT_SECONDS = 60  # of a clock that stands until the server has the call
MEMORY_BYTES_MAX = 8 * 1024 * 1024


class Row(NamedTuple):
    """What becomes of the call (`unknown`, `ok`, `not sent`), what is told of it, and whether its time has to be up for that."""

    becomes: str
    told: str
    late: bool = False


IN_TIME, LOST = "did not answer in time (60000 ms)", "the connection failed before a whole answer had come"
ROWS = {
    "ignores SIGTERM": Row("unknown", IN_TIME, late=True),
    "ignores the cancel message": Row("unknown", IN_TIME, late=True),
    "double-forks a daemon": Row("unknown", IN_TIME, late=True),
    "holds its output open after its exit": Row("unknown", f"{LOST} (ServerLost: the MCP server box ended with exit code 0)"),
    "never reads its input": Row("unknown", IN_TIME, late=True),
    "1 GiB on one line": Row("unknown", f"{LOST} (ServerLost: the MCP server box sent a message of more than 1048576 bytes"),
    "10 GiB in many lines": Row("unknown", "sent 1000 things that fit no request; it had sent 1000 x a line that is no message"),
    "what is not UTF-8": Row("ok", "a\ufffd\ufffdb"),
    "JSON that is broken": Row("unknown", IN_TIME, late=True),
    "a reply with an unknown id": Row("ok", "this one"),
    "two replies to one id": Row("ok", "first"),
    "a reply after the cancel": Row("unknown", IN_TIME, late=True),
    "exits before the reply": Row("unknown", f"{LOST} (ServerLost: the MCP server box ended with exit code 3)"),
    "stops itself": Row("unknown", IN_TIME, late=True),
    "floods its error output": Row("ok", "done"),
    "changes between starts": Row("not sent", "changed the schema of mcp__box__act since this run began"),
}


@pytest.fixture(autouse=True)
def _little_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "ABANDON_SECONDS", 0.05)


class Ran(NamedTuple):
    """A run that is over: how, what the model was told of its call, the run's id, and the most memory that it took."""

    result: Any
    told: str
    run_id: str
    peak_bytes: int


async def hostile_run(place: Path, mode: str) -> Ran:
    note, clock = place / "note", StandingClock()
    at = dataclasses.replace(memory_ground(), clock=clock)
    agent = agent_of(place, server(mode, note, timeout=TIMEOUT_SECONDS))
    tracemalloc.start()
    try:
        async with Runtime(agents=[agent], ground=at) as runtime:
            run = await runtime.session("s", agent=agent).send("go")
            resting = asyncio.ensure_future(run.result())
            while ROWS[mode].late and not note.exists():
                await asyncio.sleep(0.005)
            if ROWS[mode].late:
                await asyncio.sleep(0.05)  # it does now what it does
                clock.advance(TIMEOUT_SECONDS + 1)
            result = await resting
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    (told,) = [message.text for message in said_in(at.store, "s") if isinstance(message, ToolMessage)]
    return Ran(result, told, run.run_id, peak)


def left_of(ran: Ran) -> dict[int, str]:
    return alive(f"{ran.run_id}:box")


def test_t25_has_its_sixteen_rows() -> None:
    assert len(ROWS) == 16
    assert {row.becomes for row in ROWS.values()} == {"unknown", "ok", "not sent"}


@pytest.mark.parametrize("mode", ROWS)
async def test_t25_a_hostile_server_has_a_named_outcome_and_leaves_nothing_behind(mode: str, tmp_path: Path) -> None:
    row, ran = ROWS[mode], await hostile_run(tmp_path, mode)
    print(f"{mode}: {row.becomes}, peak {ran.peak_bytes / 1024:.0f} KiB")
    if row.becomes == "unknown":
        assert isinstance(ran.result, Interrupted)
        assert ran.told.startswith("Outcome unknown: ")
        assert row.told in ran.told
    else:
        assert isinstance(ran.result, Completed)
        assert ran.told == row.told if row.becomes == "ok" else row.told in ran.told
    assert ran.told.startswith("Not run: ") is (row.becomes == "not sent")
    assert left_of(ran) == {}
    assert ran.peak_bytes <= MEMORY_BYTES_MAX


@pytest.mark.parametrize(("mode", "told"), [("floods with notifications", "done"), ("is killed before the reply", "by signal 9")])
async def test_what_else_a_server_may_do_is_bounded_alike(mode: str, told: str, tmp_path: Path) -> None:
    result, (said,), _at = await run_of(tmp_path, server(mode))
    assert isinstance(result, Completed if told == "done" else Interrupted)
    assert told in said


async def test_t25_an_approved_call_of_a_tool_that_changed_since_is_not_sent(tmp_path: Path) -> None:
    note, at = tmp_path / "note", memory_ground()
    agent = agent_of(tmp_path, server("changes between starts", note, ask=True))
    async with Runtime(agents=[agent], ground=at) as runtime:
        run = await runtime.session("s", agent=agent).send("go")
        paused = await run.result()
        assert isinstance(paused, Paused)
        (waiting,) = paused.waits
        went_on = await runtime.approve(waiting.call_key or "")
        assert went_on is not None
        assert isinstance(await went_on.result(), Completed)
    (told,) = [message.text for message in said_in(at.store, "s") if isinstance(message, ToolMessage)]
    assert told.startswith("Not run: the MCP server box changed the schema of mcp__box__act since this run began")
    assert note.read_text() == "started\n" * 2, "it was asked what it has, and started for the call, which it never got"


async def test_t25_a_list_that_changes_within_a_run_acts_at_the_next_one(tmp_path: Path) -> None:
    act, place = {"calls": [{"name": ACT, "args": {}}]}, server("changes its tools")
    result, told, at = await run_of(tmp_path, place, act, act, {"text": "done"})
    assert isinstance(result, Completed)
    assert told[0] == "changed"
    assert told[1].startswith("Not run: the MCP server box changed the schema of mcp__box__act since this run began")
    (pinned, again) = [msgspec.json.decode(record) for record in records_of(at, "tool_dispatch_intent")]
    assert pinned["module_id"] == "mcp:box"
    assert pinned["schema_pin"] == again["schema_pin"]
    assert pinned["schema_pin"]["semantics"] == "once"


async def test_t25_a_client_that_takes_any_reply_for_the_answer_would_be_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def trusting(self: Connection, message: Message) -> None:
        for waiting in self._pending.values():
            if not waiting.answered.done():
                waiting.answered.set_result(message)

    monkeypatch.setattr(Connection, "_reply", trusting)
    assert (await hostile_run(tmp_path, "a reply with an unknown id")).told == "not this one"


async def test_t25_a_client_that_reads_on_would_be_caught(tmp_path: Path) -> None:
    tracemalloc.start()
    try:
        await run_of(tmp_path, server("1 GiB on one line", message_bytes_max=32 * 1024 * 1024))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak > MEMORY_BYTES_MAX


async def test_t25_a_clean_up_that_stops_at_the_process_group_would_be_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = processes.end_processes

    async def group_only(mark: ProcessMark, **options: Any) -> bool:
        return await whole(replace(mark, call_key=None), **options)

    monkeypatch.setattr(processes, "end_processes", group_only)
    left = left_of(await hostile_run(tmp_path, "double-forks a daemon"))
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert left
