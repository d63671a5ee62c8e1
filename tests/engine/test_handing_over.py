"""A process that leaves in good order says so in the log: the next one goes on, and no attempt counts as cut short."""

import asyncio
from pathlib import Path

import pytest

from semel import Agent, Completed, Interrupted, Runtime
from semel.adapters.memory.store import Medium
from semel.core.leaving import leaving
from semel.core.status import decode_status
from semel.engine import loop
from semel.errors import RunNotCompleted
from semel.faces.views import view_of, waiting_of
from semel.ports.log import SessionStore
from tests.engine.doors import attempts, pauses
from tests.engine.fakes import call, counting, events_of, ground, leave, loop_turns, script_file
from tests.engine.test_live_requests import Waiting
from tests.support.frames import frames_of

pytestmark = pytest.mark.anyio


def writes_of(store: SessionStore) -> list[list[str]]:
    """The types of the records of session `s`, write by write: each write was one sync."""
    out: list[list[str]] = [[]]
    for frame, event in zip(frames_of(store, "s")[1:], events_of(store)[-len(frames_of(store, "s")[1:]) :], strict=True):
        out[-1].append(event["type"])
        if frame.left == 0:
            out.append([])
    return [write for write in out if write]


async def test_what_the_drain_makes_durable_and_the_handing_over_are_one_write(tmp_path: Path) -> None:
    waiting, medium = Waiting(tmp_path), Medium()
    runtime = Runtime(agents=[waiting.agent], ground=ground(medium))
    await runtime.__aenter__()
    run = await runtime.session("s", agent=waiting.agent).send("go")
    await waiting.begun.wait()
    await leave(runtime, waiting.gate.set)
    store = ground(medium).store
    assert pauses(store) == ["restart"]
    assert writes_of(store)[-1][0] == "tool_result"
    assert writes_of(store)[-1][-2:] == ["step_started", "run_paused"]
    with pytest.raises(RunNotCompleted, match="semel resume"):
        await run.result()


async def test_a_request_that_is_given_up_is_handed_over_and_the_next_process_asks_it_by_itself(tmp_path: Path) -> None:
    model = script_file(tmp_path / "m.json", {"text": "done", "delay_ms": 60_000})
    agent, medium = Agent("a", model=model), Medium()
    async with Runtime(agents=[agent], ground=ground(medium)) as runtime:
        await runtime.session("s", agent=agent).send("go")
        await loop_turns()
    store = ground(medium).store
    assert pauses(store) == ["restart"]
    published = decode_status(store.read_status("s"))
    assert published is not None
    assert (published.state, published.reason) == ("paused", "restart")
    (left,) = waiting_of(store).stranded
    assert (left.session, left.key_refused) == ("s", None)
    script_file(tmp_path / "m.json", {"text": "done"})
    async with Runtime(agents=[agent], ground=ground(medium)) as runtime:
        while view_of(store, "s").state.run is not None:
            await asyncio.sleep(0.01)
    assert attempts(store) == [1, 2]
    assert events_of(store)[-1]["record"]["reason"] == "completed"


@pytest.mark.parametrize(("asked", "reason"), [("cancel", "cancelled"), ("stop", "max_steps")])
async def test_a_run_that_is_to_end_behind_a_request_that_is_given_up_has_ended_when_its_process_leaves(
    asked: str, reason: str, tmp_path: Path
) -> None:
    model = script_file(tmp_path / "m.json", {"text": "done", "delay_ms": 60_000})
    agent, medium = Agent("a", model=model), Medium()
    async with Runtime(agents=[agent], ground=ground(medium)) as runtime:
        session = runtime.session("s", agent=agent)
        run = await session.send("go")
        await loop_turns()
        await (runtime.cancel("s", at="step_boundary") if asked == "cancel" else session.stop())
    assert (await run.result()).reason == reason
    published = decode_status(ground(medium).store.read_status("s"))
    assert published is not None
    assert published.reason == reason


async def test_a_run_that_was_handed_over_more_often_than_it_may_be_cut_short_goes_on(tmp_path: Path) -> None:
    model = script_file(tmp_path / "m.json", {"text": "done", "delay_ms": 60_000})
    agent, medium = Agent("a", model=model), Medium()
    for at in range(12):
        async with Runtime(agents=[agent], ground=ground(medium), recover="manual") as runtime:
            session = runtime.session("s", agent=agent)
            _ = await (session.send("go") if at == 0 else session.resume())
            await loop_turns()
    script_file(tmp_path / "m.json", {"text": "done"})
    async with Runtime(agents=[agent], ground=ground(medium), recover="manual") as runtime:
        run = await runtime.resume("s")
        assert run is not None
        assert isinstance(await run.result(), Completed)


async def test_a_run_whose_call_is_left_in_doubt_is_not_said_to_be_handed_over(tmp_path: Path) -> None:
    async def never(_arguments: object, _call: object) -> str:
        await asyncio.Event().wait()
        return "never"

    pay = counting("pay", behaviour=never)
    model = script_file(tmp_path / "m.json", {"calls": [call("pay")]}, {"text": "done"})
    agent, medium = Agent("a", model=model, tools=[pay]), Medium()
    async with Runtime(agents=[agent], ground=ground(medium), drain_seconds=0.01) as runtime:
        await runtime.session("s", agent=agent).send("go")
        while not pay.keys:
            await asyncio.sleep(0)
    assert pauses(ground(medium).store) == []
    async with Runtime(agents=[agent], ground=ground(medium), recover="manual") as runtime:
        run = await runtime.resume("s")
        assert run is not None
        assert isinstance(await run.result(), Interrupted)


async def test_a_run_that_is_to_end_is_not_handed_over(tmp_path: Path) -> None:
    model = script_file(tmp_path / "m.json", {"text": "done", "delay_ms": 60_000})
    agent, medium = Agent("a", model=model), Medium()
    async with Runtime(agents=[agent], ground=ground(medium)) as runtime:
        session = runtime.session("s", agent=agent)
        await session.send("go")
        await loop_turns()
        await session.stop()
    assert pauses(ground(medium).store) == []


async def test_a_handing_over_with_a_sync_of_its_own_would_be_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert loop.leaving is leaving
    monkeypatch.setattr(loop, "leaving", lambda _run, decision: decision)
    with pytest.raises(AssertionError):
        await test_what_the_drain_makes_durable_and_the_handing_over_are_one_write(tmp_path)
