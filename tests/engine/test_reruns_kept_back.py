"""A call that was to run again and does not get its turn: a process that died may have sent it, so it may have run."""

import asyncio
from pathlib import Path

import pytest

from semel import Agent, Limits, Runtime
from semel.adapters.memory.store import Medium, MemoryStore
from semel.adapters.system import SystemIds
from semel.core.features import KNOWN
from semel.core.values import Effect
from semel.engine.perform import UNSENT, Performer
from semel.engine.resume import Ground
from semel.errors import RunNotCompleted
from tests.engine.fakes import CountingTool, call, counting, events_of, script_file
from tests.engine.slow import StandingClock
from tests.engine.test_resume import Life

pytestmark = pytest.mark.anyio

WALL_SECONDS = 100.0


def endless() -> tuple[CountingTool, asyncio.Event]:
    """An idempotent tool that never comes back, and whether it was reached."""
    reached = asyncio.Event()

    async def act(_arguments: object, _call: object) -> str:
        reached.set()
        await asyncio.Event().wait()
        return "never"

    return counting("put", Effect.IDEMPOTENT, act), reached


class Lives:
    """Processes that run three calls of a dead one again, one at a time, and are cut short at the first of them."""

    def __init__(self, path: Path) -> None:
        self.medium, self.clock = Medium(), StandingClock()
        self.put, self.reached = endless()
        model = script_file(path / "m.json", {"calls": [call("put", n=n) for n in range(3)]}, {"text": "done"})
        limits = Limits(parallel_calls=1, wall_seconds=WALL_SECONDS)
        self.agent = Agent("a", model=model, tools=[self.put], limits=limits)

    async def die(self) -> None:
        life = Life(self.medium, self.agent, self.reached)
        life.ground = self.ground()
        await life.die_in_the_tool()

    async def ended_by(self, how: str) -> str | None:
        """By what name a run ends that is cancelled, or whose time is up; None for one whose process is left."""
        self.reached.clear()
        async with Runtime(agents=[self.agent], ground=self.ground(), recover="manual", drain_seconds=0) as runtime:
            run = await runtime.resume("s")
            assert run is not None
            await self.reached.wait()
            if how == "leave":
                return None
            if how == "cancel":
                await runtime.cancel("s")
            else:
                self.clock.advance(WALL_SECONDS)
            return (await run.result()).reason

    def of_those_that_waited(self, field: str) -> list[str]:
        """What is recorded of them."""
        events = events_of(self.ground().store)
        return [event["record"][field] for event in events if event["type"] == "tool_result"][1:]

    def ground(self) -> Ground:
        return Ground(store=MemoryStore(self.clock, known=KNOWN, medium=self.medium), clock=self.clock, ids=SystemIds())


@pytest.mark.parametrize(("how", "reason"), [("cancel", "cancelled"), ("wall", "time_limit")])
async def test_a_run_that_is_ended_while_reruns_wait_ends_by_its_name_and_they_may_have_run(
    how: str, reason: str, tmp_path: Path
) -> None:
    lives = Lives(tmp_path)
    await lives.die()
    assert await lives.ended_by(how) == reason
    assert lives.of_those_that_waited("outcome") == ["interrupted"] * 2
    assert lives.of_those_that_waited("reason") == ["crashed"] * 2
    assert len(lives.put.keys) == 2


async def test_a_process_that_is_left_while_reruns_wait_leaves_them_to_the_next_one(tmp_path: Path) -> None:
    lives = Lives(tmp_path)
    await lives.die()
    assert await lives.ended_by("leave") is None
    assert lives.of_those_that_waited("outcome") == []
    assert await lives.ended_by("cancel") == "cancelled"
    assert lives.of_those_that_waited("reason") == ["crashed"] * 2


async def test_canary_reruns_that_are_taken_for_never_sent_are_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Performer, "kept_back", lambda *_: UNSENT)
    lives = Lives(tmp_path)
    await lives.die()
    await lives.ended_by("cancel")
    assert lives.of_those_that_waited("reason") == ["never_sent"] * 2


async def test_canary_reruns_that_are_left_open_are_caught_by_the_time_that_is_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Performer, "kept_back", lambda *_: None)
    lives = Lives(tmp_path)
    await lives.die()
    with pytest.raises(RunNotCompleted):
        await lives.ended_by("wall")


async def test_a_close_out_knows_by_the_log_alone_what_a_dead_process_may_have_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever asked for the reruns and did not say what became of them; the log says that they were run again."""
    monkeypatch.setattr(Performer, "kept_back", lambda *_: None)
    lives = Lives(tmp_path)
    await lives.die()
    await lives.ended_by("cancel")
    assert lives.of_those_that_waited("reason") == ["crashed"] * 2
