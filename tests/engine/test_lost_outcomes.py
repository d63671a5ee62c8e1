"""A known outcome is never dropped: what came back is recorded, whatever else goes wrong or ends in that moment."""

import asyncio
import errno
from contextlib import suppress
from pathlib import Path

import pytest

from semel import Agent, Completed, Limits, Runtime
from semel.adapters.memory.store import Medium
from semel.core.status import decode_status
from semel.engine.barrier import RETRY_SECONDS
from semel.errors import AppendRefused
from semel.faces.views import view_of
from semel.ports.tool import Call
from semel.testing.faults import FaultyDisk
from tests.engine.fakes import Plant, call, counting, events_of, ground, leave, nothing, script_file
from tests.engine.slow import StandingClock, disk_ground

pytestmark = pytest.mark.anyio


async def resumed(agent: Agent[str], medium: Medium) -> object:
    """How the run ends in the process that goes on with it."""
    async with Runtime(agents=[agent], ground=ground(medium), recover="manual") as runtime:
        run = await runtime.resume("s")
        assert run is not None
        return await run.result()


async def paid_when_cancelled(tmp_path: Path, plant: Plant = nothing) -> object:
    """How a run ends whose tool had paid already and says so when leaving the runtime cancels it."""
    medium, reached = Medium(), asyncio.Event()

    async def act(_arguments: object, _call: object) -> str:
        reached.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "paid"
        return "never"

    model = script_file(tmp_path / "m.json", {"calls": [call("pay")]}, {"text": "done", "expect": "paid"})
    agent = Agent("a", model=model, tools=[counting("pay", behaviour=act)])
    async with Runtime(agents=[agent], ground=ground(medium), drain_seconds=0) as runtime:
        await runtime.session("s", agent=agent).send("go")
        await reached.wait()
        plant(runtime)
    return await resumed(agent, medium)


async def test_a_value_that_a_tool_returns_when_leaving_cancels_it_is_recorded(tmp_path: Path) -> None:
    assert isinstance(await paid_when_cancelled(tmp_path), Completed)


async def test_a_call_that_may_not_be_interrupted_is_waited_for_when_the_runtime_is_left(tmp_path: Path) -> None:
    medium, reached, gate = Medium(), asyncio.Event(), asyncio.Event()

    async def act(_arguments: object, told: Call[object]) -> str:
        reached.set()
        await gate.wait()
        return "paid"

    pay = counting("pay", behaviour=act, interruptible=False)
    model = script_file(tmp_path / "m.json", {"calls": [call("pay")]}, {"text": "done", "expect": "paid"})
    agent = Agent("a", model=model, tools=[pay])
    runtime = await Runtime(agents=[agent], ground=ground(medium), drain_seconds=0).__aenter__()
    await runtime.session("s", agent=agent).send("go")
    await reached.wait()
    await leave(runtime, gate.set)
    assert isinstance(await resumed(agent, medium), Completed)


async def test_an_outcome_waits_for_a_log_that_was_full_for_a_moment_and_the_call_beside_it_goes_on(tmp_path: Path) -> None:
    medium, gate = Medium(), asyncio.Event()

    async def act(_arguments: object, told: Call[object]) -> str:
        if told.ordinal == 0:
            medium.fault = "write"
            return "paid"
        await gate.wait()
        return "paid too"

    model = script_file(tmp_path / "m.json", {"calls": [call("pay"), call("pay")]}, {"text": "done", "expect": "paid too"})
    agent = Agent("a", model=model, tools=[counting("pay", behaviour=act)])
    async with Runtime(agents=[agent], ground=ground(medium)) as runtime:
        run = await runtime.session("s", agent=agent).send("go")
        async for event in run.events(after=0):
            if event["type"] == "tool_call_returned":
                gate.set()
        assert isinstance(await run.result(), Completed)
    assert medium.fault is None


async def test_a_log_that_stays_full_is_tried_as_often_as_it_says_and_the_run_is_left_open(tmp_path: Path) -> None:
    disk, clock = FaultyDisk(), StandingClock()

    async def act(_arguments: object, _call: object) -> str:
        disk.calls.clear()
        disk.fail_always("write", errno.ENOSPC)
        return "paid"

    model = script_file(tmp_path / "m.json", {"calls": [call("pay")]}, {"text": "done"})
    patient = Limits(wall_seconds=366 * 86_400)  # the clock leaps while a sync takes its time; the run is not to end of that
    agent = Agent("a", model=model, tools=[counting("pay", behaviour=act)], limits=patient)
    on = disk_ground(tmp_path / "s", disk, clock)
    async with Runtime(agents=[agent], ground=on, recover="manual") as runtime:  # nobody carries it on again by itself
        run = await runtime.session("s", agent=agent).send("go")
        resting = asyncio.ensure_future(run.rest())
        while not resting.done():
            clock.advance(max(RETRY_SECONDS))
            await asyncio.sleep(0)
        with pytest.raises(AppendRefused, match="last good record"):
            await resting
    assert disk.calls.count("write") == len(RETRY_SECONDS) + 1
    assert view_of(disk_ground(tmp_path / "s").store, "s").state.run is not None


async def test_an_unknown_that_comes_while_the_runtime_is_left_seals_the_run_and_is_shown(tmp_path: Path) -> None:
    medium, reached, gate = Medium(), asyncio.Event(), asyncio.Event()

    async def lost(_arguments: object, _call: object) -> object:
        reached.set()
        await gate.wait()
        raise ConnectionResetError("gone")

    model = script_file(tmp_path / "m.json", {"calls": [call("pay")]}, {"text": "done"})
    agent = Agent("a", model=model, tools=[counting("pay", behaviour=lost)])
    runtime = await Runtime(agents=[agent], ground=ground(medium)).__aenter__()
    await runtime.session("s", agent=agent).send("go")
    await reached.wait()
    await leave(runtime, gate.set)
    status = decode_status(medium.logs["s"].status)
    assert status is not None
    assert (status.state, len(status.unknown_calls)) == ("interrupted", 1)


async def left_with_calls_waiting(tmp_path: Path, *, sequential: bool, drain_seconds: float, plant: Plant = nothing) -> list[str]:
    """What became of five calls, of which the first is under way when the runtime is left. It has acted when it is cut short."""
    medium, reached, gate = Medium(), asyncio.Event(), asyncio.Event()

    async def act(_arguments: object, _call: object) -> str:
        first = not reached.is_set()
        reached.set()
        with suppress(asyncio.CancelledError):
            await (gate.wait() if first else asyncio.sleep(0))
        return "deployed"

    deploy = counting("deploy", behaviour=act, sequential=sequential)
    turns = {"calls": [call("deploy", n=n) for n in range(5)]}, {"text": "done"}
    agent = Agent("a", model=script_file(tmp_path / "m.json", *turns), tools=[deploy], limits=Limits(parallel_calls=1))
    runtime = await Runtime(agents=[agent], ground=ground(medium), drain_seconds=drain_seconds).__aenter__()
    await runtime.session("s", agent=agent).send("go")
    await reached.wait()
    plant(runtime)
    await leave(runtime, gate.set if drain_seconds else lambda: None)
    assert isinstance(await resumed(agent, medium), Completed)
    results = [event["record"] for event in events_of(ground(medium).store) if event["type"] == "tool_result"]
    sent = sum(result["outcome"] == "completed" for result in results)
    assert sent == len(deploy.keys)
    return [result["outcome"] for result in results]


@pytest.mark.parametrize("sequential", [True, False])
async def test_calls_that_wait_for_their_turn_when_the_drain_time_is_over_are_never_sent_and_settle_as_interrupted(
    sequential: bool, tmp_path: Path
) -> None:
    outcomes = await left_with_calls_waiting(tmp_path, sequential=sequential, drain_seconds=0)
    assert outcomes == ["completed", *["interrupted"] * 4]


@pytest.mark.parametrize("sequential", [True, False])
async def test_calls_whose_intent_is_durable_are_finished_within_the_drain_time(sequential: bool, tmp_path: Path) -> None:
    outcomes = await left_with_calls_waiting(tmp_path, sequential=sequential, drain_seconds=30)
    assert outcomes == ["completed"] * 5
