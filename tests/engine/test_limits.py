"""A limit that is reached ends its run by name, also while something is under way; one that makes no sense is refused."""

import asyncio
from pathlib import Path

import pytest

from semel import Agent, Completed, Failed, Limits, Runtime
from semel.adapters.memory.store import MemoryStore
from semel.adapters.system import SystemIds
from semel.core.features import KNOWN
from semel.core.values import Effect
from semel.engine.resume import Ground
from semel.errors import BadSettings
from semel.ports.tool import Call
from tests.engine.fakes import CountingTool, call, counting, ground, loop_turns, script_file
from tests.engine.slow import StandingClock

pytestmark = pytest.mark.anyio

WALL_SECONDS = 100.0


def standing(clock: StandingClock) -> Ground:
    """A process in memory whose time a test moves."""
    return Ground(store=MemoryStore(clock, known=KNOWN), clock=clock, ids=SystemIds())


async def test_b15_calls_that_wait_for_their_turn_are_not_sent_behind_one_that_is_unknown(tmp_path: Path) -> None:
    async def lost(_arguments: object, _call: object) -> object:
        raise ConnectionResetError("gone")

    pay = counting("pay", behaviour=lost)
    model = script_file(tmp_path / "m.json", {"calls": [call("pay", n=n) for n in range(5)]}, {"text": "done"})
    agent = Agent("a", model=model, tools=[pay], limits=Limits(parallel_calls=1))
    async with Runtime(agents=[agent], ground=ground()) as runtime:
        await (await runtime.session("s", agent=agent).send("go")).result()
    assert len(pay.keys) == 1


async def test_no_more_calls_run_at_once_than_the_limit_says(tmp_path: Path) -> None:
    running, most = 0, 0

    async def act(_arguments: object, _call: object) -> str:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await loop_turns()
        running -= 1
        return "looked"

    model = script_file(tmp_path / "m.json", {"calls": [call("look", n=n) for n in range(7)]}, {"text": "done"})
    look = counting("look", Effect.READ, behaviour=act)
    agent = Agent("a", model=model, tools=[look], limits=Limits(parallel_calls=3))
    async with Runtime(agents=[agent], ground=ground()) as runtime:
        await (await runtime.session("s", agent=agent).send("go")).result()
    assert (most, len(look.keys)) == (3, 7)


def looking(tmp_path: Path, look: CountingTool, **answer: object) -> Agent[str]:
    """An agent that looks once and says so, within the time of these tests."""
    model = script_file(tmp_path / "m.json", {"calls": [call("look")]}, {"text": "done", **answer})
    return Agent("a", model=model, tools=[look], limits=Limits(wall_seconds=WALL_SECONDS))


async def test_a_run_whose_tool_took_the_time_that_it_had_ends_behind_that_tool(tmp_path: Path) -> None:
    clock = StandingClock()

    async def act(_arguments: object, _call: object) -> str:
        clock.advance(WALL_SECONDS - 1)
        await loop_turns()
        clock.advance(1)
        return "looked"

    agent = looking(tmp_path, counting("look", Effect.READ, behaviour=act))
    async with Runtime(agents=[agent], ground=standing(clock)) as runtime:
        result = await (await runtime.session("s", agent=agent).send("go")).result()
    assert isinstance(result, Failed)
    assert result.reason == "time_limit"


async def test_a_run_that_waits_for_its_tool_when_its_time_is_up_ends_then(tmp_path: Path) -> None:
    clock, begun, told = StandingClock(), asyncio.Event(), list[Call[object]]()

    async def hang(_arguments: object, at: Call[object]) -> str:
        told.append(at)
        begun.set()
        await asyncio.Event().wait()
        return "never"

    agent = looking(tmp_path, counting("look", Effect.READ, behaviour=hang))
    async with Runtime(agents=[agent], ground=standing(clock), drain_seconds=0) as runtime:
        run = await runtime.session("s", agent=agent).send("go")
        await begun.wait()
        clock.advance(WALL_SECONDS)
        result = await run.result()
    assert result.reason == "time_limit"
    assert told[0].cancelled is not None
    assert told[0].cancelled.is_set()


async def test_a_run_that_waits_for_its_model_when_its_time_is_up_ends_then(tmp_path: Path) -> None:
    clock = StandingClock()
    agent = looking(tmp_path, counting("look", Effect.READ), delay_ms=int(10 * WALL_SECONDS * 1000))
    async with Runtime(agents=[agent], ground=standing(clock), drain_seconds=0) as runtime:
        run = await runtime.session("s", agent=agent).send("go")
        async for event in run.events(after=0):
            if event["type"] == "step_started" and event["record"]["step_id"] == 2:
                await loop_turns()
                clock.advance(WALL_SECONDS)
        assert (await run.result()).reason == "time_limit"


async def test_time_in_which_nobody_carried_a_run_does_not_count(tmp_path: Path) -> None:
    clock, begun = StandingClock(), asyncio.Event()
    store = MemoryStore(clock, known=KNOWN)

    async def look_twice(_arguments: object, _call: object) -> str:
        if len(look.keys) == 1:
            begun.set()
            await asyncio.Event().wait()
        return "looked"

    look = counting("look", Effect.READ, behaviour=look_twice)
    agent = looking(tmp_path, look)
    async with Runtime(agents=[agent], ground=Ground(store=store, clock=clock, ids=SystemIds()), drain_seconds=0) as runtime:
        await runtime.session("s", agent=agent).send("go")
        await begun.wait()
    clock.advance(10 * WALL_SECONDS)
    async with Runtime(agents=[agent], ground=Ground(store=store, clock=clock, ids=SystemIds()), recover="manual") as runtime:
        run = await runtime.resume("s")
        assert run is not None
        assert isinstance(await run.result(), Completed)


ODD: list[dict[str, object]] = [
    {"cost": "inf USD"},
    {"cost": "nan USD"},
    {"cost": "-1.00 USD"},
    {"wall_seconds": float("nan")},
    {"wall_seconds": float("inf")},
    {"wall_seconds": 0},
    {"wall_seconds": "60"},
    {"cost": 1.0},
    {"steps": 2.5},
    {"steps": 0},
    {"steps": True},
    {"tokens": 5e6},
    {"parallel_calls": 1.5},
    {"result_bytes": 1e5},
    {"output_retries": "3"},
    {"model_retries": 1.5},
    {"model_retries": -1},
]


@pytest.mark.parametrize("odd", ODD, ids=str)
def test_a_limit_that_makes_no_sense_is_refused_by_name(odd: dict[str, object]) -> None:
    with pytest.raises(BadSettings, match=f"cost limit|the limit {next(iter(odd))}"):
        Limits(**odd).frozen()  # type: ignore[arg-type]  # that is the point


async def test_a_send_whose_limits_make_no_sense_writes_nothing(tmp_path: Path) -> None:
    agent = Agent("a", model=script_file(tmp_path / "m.json", {"text": "done"}), limits=Limits(steps=0))
    on = ground()
    async with Runtime(agents=[agent], ground=on) as runtime:
        with pytest.raises(BadSettings):
            await runtime.session("s", agent=agent).send("go")
    assert on.store.sessions() == []
