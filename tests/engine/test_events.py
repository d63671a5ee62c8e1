"""What a reader of a run sees: its own text, every record once and in order, and an end that tells when it is a bad one (P6)."""

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from semel import Agent, Call, Runtime, tool
from semel.adapters.memory.store import Medium
from semel.core.values import Effect
from semel.engine.feed import QUEUE_EVENTS_MOST
from semel.errors import WriterPoisoned
from tests.engine.fakes import call, counting, ground, script_file
from tests.engine.test_resume import Life, hanging
from tests.engine.test_runtime_races import SOON_SECONDS, Waiting

pytestmark = pytest.mark.anyio

IDLE_SECONDS = 0.05  # until the event loop has nothing to do and sleeps


def seqs(events: list[dict[str, Any]]) -> list[int]:
    return [event["seq"] for event in events if "seq" in event]


async def test_text_and_events_that_are_read_side_by_side_are_each_whole(tmp_path: Path) -> None:
    said = "hello world, this is long"
    agent = Agent("a", model=script_file(tmp_path / "m.json", {"text": said, "chunk": 2}))
    async with Runtime(agents=[agent], ground=ground()) as runtime:
        run = await runtime.session("s", agent=agent).send("go")

        async def read_text() -> list[str]:
            return [piece async for piece in run.text()]

        async def read_events() -> list[dict[str, Any]]:
            return [event async for event in run.events(after=0)]

        pieces, events = await asyncio.gather(read_text(), read_events())
    assert "".join(pieces) == said
    assert seqs(events) == list(range(1, len(events) + 1))


async def test_the_text_of_a_run_is_only_its_own_also_behind_a_run_that_a_dead_process_left(tmp_path: Path) -> None:
    medium = Medium()
    look, reached = hanging("look", Effect.READ)
    turns = {"calls": [call("look")]}, {"text": "old answer"}, {"text": "new answer"}
    agent = Agent("a", model=script_file(tmp_path / "m.json", *turns), tools=[look])
    await Life(medium, agent, reached).die_in_the_tool()
    async with Runtime(agents=[agent], ground=ground(medium), recover="manual") as runtime:
        run = await runtime.session("s", agent=agent).send("more", key="k2")
        assert "".join([piece async for piece in run.text()]) == "new answer"


async def test_the_events_of_a_finished_run_end_with_it_though_another_run_came_behind(tmp_path: Path) -> None:
    agent = Agent("a", model=script_file(tmp_path / "m.json", {"text": "one"}, {"text": "two"}))
    async with Runtime(agents=[agent], ground=ground()) as runtime:
        session = runtime.session("s", agent=agent)
        first = await session.send("go", key="k1")
        await first.result()
        await (await session.send("more", key="k2")).result()
        again = await session.send("go", key="k1")
        events = [event async for event in again.events(after=0)]
    assert [event["record"]["run_id"] for event in events if event["type"] == "run_finished"] == [first.run_id]
    assert events[-1]["type"] == "run_finished"


async def test_the_events_of_a_finished_run_do_not_wait_for_the_run_under_way(tmp_path: Path) -> None:
    waiting = Waiting(tmp_path, {"text": "one"})
    async with Runtime(agents=[waiting.agent], ground=ground(), drain_seconds=0) as runtime:
        session = runtime.session("s", agent=waiting.agent)
        await (await session.send("go", key="k1")).result()
        await session.send("more", key="k2")
        await waiting.begun.wait()
        first = await session.send("go", key="k1")
        async with asyncio.timeout(SOON_SECONDS):
            events = [event async for event in first.events(after=0)]
    assert events[-1]["type"] == "run_finished"


async def test_the_text_of_a_finished_run_is_not_played_again(tmp_path: Path) -> None:
    agent = Agent("a", model=script_file(tmp_path / "m.json", {"text": "hello world", "chunk": 2}))
    async with Runtime(agents=[agent], ground=ground()) as runtime:
        session = runtime.session("s", agent=agent)
        await (await session.send("go", key="k")).result()
        again = await session.send("go", key="k")
        assert [piece async for piece in again.text()] == []


async def test_events_raise_what_kept_the_run_from_going_on(tmp_path: Path) -> None:
    medium = Medium()

    async def act(_arguments: object, _call: object) -> str:
        medium.fault = "sync"
        return "paid"

    model = script_file(tmp_path / "m.json", {"calls": [call("pay")]}, {"text": "done"})
    agent = Agent("a", model=model, tools=[counting("pay", behaviour=act)])
    async with Runtime(agents=[agent], ground=ground(medium)) as runtime:
        run = await runtime.session("s", agent=agent).send("go")
        with pytest.raises(WriterPoisoned):
            async for _event in run.events(after=0):
                pass


async def a_reader_that_lags(tmp_path: Path) -> list[dict[str, Any]]:
    """All events of a run whose reader stops in its middle, until more has happened than is kept for it."""
    waiting = Waiting(tmp_path)
    long = {"text": "x" * 2 * QUEUE_EVENTS_MOST, "chunk": 1}
    waiting.agent = Agent("a", model=script_file(tmp_path / "n.json", {"calls": [call("pay")]}, long), tools=waiting.agent.tools)
    async with Runtime(agents=[waiting.agent], ground=ground(), drain_seconds=0) as runtime:
        run = await runtime.session("s", agent=waiting.agent).send("go")
        events: list[dict[str, Any]] = []
        async for event in run.events(after=0, live=True):
            events.append(event)
            if event.get("type") == "tool_dispatch_intent":
                waiting.gate.set()
                await run.result()
    return events


async def test_a_reader_that_does_not_keep_up_misses_text_and_no_record(tmp_path: Path) -> None:
    events = await a_reader_that_lags(tmp_path)
    records = [event for event in events if "seq" in event]
    assert len(events) - len(records) < QUEUE_EVENTS_MOST
    assert seqs(records) == list(range(1, len(records) + 1))
    assert records[-1]["type"] == "run_finished"


async def test_the_progress_of_a_plain_function_reaches_a_reader_while_the_function_works_in_its_thread(tmp_path: Path) -> None:
    seen = threading.Event()

    @tool(effect="read")
    def look(*, call: Call[None]) -> str:
        """Look."""
        time.sleep(IDLE_SECONDS)
        call.progress("half way")
        return "in time" if seen.wait(SOON_SECONDS) else "too late"

    model = script_file(tmp_path / "m.json", {"calls": [call("look")]}, {"text": "done", "expect": "in time"})
    agent = Agent("a", model=model, tools=[look])
    async with Runtime(agents=[agent], ground=ground()) as runtime:
        run = await runtime.session("s", agent=agent).send("go")
        async for event in run.events(live=True):
            if event.get("live") == "progress":
                seen.set()
        assert (await run.result()).output == "done"
