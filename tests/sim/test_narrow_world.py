"""Worlds in which more calls wait to run again than may run at once, and the run is cut while they wait.

The mix of `semel simulate` hardly meets that, and whatever is added to it changes the story of every seed, those that are kept
for what they have shown too. So these worlds are a cast of their own: they move no draw of any other.
"""

import asyncio
from collections import Counter
from typing import Any

import pytest

from semel import Agent, Limits, Runtime
from semel.core.state import Session
from semel.core.values import Effect, ToolCall
from semel.engine.cutting import Cut
from semel.engine.flight import Flight
from semel.engine.perform import UNSENT, Performer
from semel.testing.world import World, run_seeds
from semel.testing.world.fate import Fate
from semel.testing.world.models import Improviser
from semel.testing.world.people import VERBS, Person

SEEDS = range(50)
WALL_SECONDS = 20.0
CANCEL = next(verb for verb in VERBS if verb.name == "cancel")
ABOUT = {
    "tool_hangs": True,
    "crash_meanwhile": True,
    "tool_not_sent": False,
    "model_truncates": False,
    "model_refuses_key": False,
}
"""What strikes in every such world, and what would only keep calls from being sent."""
pytestmark = pytest.mark.timeout(300)


class Crowd(Improviser):
    """A model that wants many calls at once, and then no more."""

    def __init__(self, fate: Fate) -> None:
        super().__init__(fate)
        self._many = fate.dice("crowd")

    def _calls(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> tuple[ToolCall, ...]:
        if messages[-1]["type"] != "user" or not tools:
            return ()
        return tuple(self._call(at, len(messages), tools) for at in range(self._many.randint(4, 6)))


def build_narrow(world: World) -> tuple[object, object]:
    """A cast whose every call may run again, one at a time, in a run that has not much time."""
    world.fate._about.update(ABOUT)
    limits = Limits(steps=6, parallel_calls=1, wall_seconds=WALL_SECONDS)
    tools = [tool for tool in world.tools() if tool.spec.effect is not Effect.ONCE]
    agent = Agent("narrow", model=world.model(Crowd(world.fate)), tools=tools, limits=limits)
    runtime = Runtime(agents=[agent], ground=world.ground)
    if not world.fate.quiet:
        asyncio.get_running_loop().create_task(cuts(Person(world, runtime, agent, asyncio.Event())))  # until the life ends
    return agent, runtime


async def cuts(person: Person) -> None:
    """Somebody who looks for calls that run again, and cancels their run as likely as not."""
    world, dice = person.world, person.world.fate.dice("cuts")
    while True:
        await asyncio.sleep(dice.choice((0.01, 0.1, 1.0)))
        again = any(reruns_of(world.witness.durable(session)) > 1 for session in world.sessions)
        if again and dice.random() < 0.5:
            await person.do(CANCEL)


def reruns_of(state: Session) -> int:
    """How many calls of the open batch run again and have no outcome yet."""
    batch = state.run.step.batch if state.run is not None and state.run.step is not None else None
    return sum(call.reruns > 0 and not call.terminal for call in batch.calls) if batch is not None else 0


class Waited:
    """Counts the calls that were to run again and were cut while they waited for their turn, by what has cut them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.by: Counter[Cut | None] = Counter()
        whole = Performer.kept_back

        def counted(performer: Performer, flight: Flight) -> Any:
            if flight.call.reruns:
                self.by[performer.cut.reason] += 1
            return whole(performer, flight)

        monkeypatch.setattr(Performer, "kept_back", counted)


def test_worlds_whose_reruns_wait_for_their_turn_when_the_run_is_cut_keep_every_promise(monkeypatch: pytest.MonkeyPatch) -> None:
    waited = Waited(monkeypatch)
    tally = run_seeds(SEEDS, build_narrow)
    print(f"reruns that waited when their run was cut: {dict(waited.by)}; {tally.turns} turns, {tally.done} of them done")
    assert tally.broken == {}
    assert waited.by[Cut.CANCELLED] >= 10
    assert waited.by[Cut.TIME_UP] >= 1
    assert tally.done >= tally.turns / 2


def test_canary_reruns_that_are_taken_for_never_sent_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Performer, "kept_back", lambda *_: UNSENT)
    broken = next(filter(None, (World(seed, build_narrow).run().breaches for seed in SEEDS)), ())
    assert broken, "no seed shows it"
    assert broken[0][0] == "I3"
    assert "was to run again and is recorded as never_sent" in broken[0][1]
