"""What follows a complete turn: the order of the limits, and what each compares."""

import pytest

from semel.core.limits import Limits
from semel.core.records import RunFinished
from semel.core.turn import TurnFacts, after_turn
from semel.core.values import Effect, Money, Usage
from tests.core.machine import Crashed, Machine, Script, World, call, say, tool


def reason_behind(cost: Money, limit: Money) -> str | None:
    """By which name a run ends that has cost so much; None if it goes on."""
    script = Script(answers=[call("read"), say("done")], tools=[tool("read", Effect.READ)], limits=Limits(cost=limit))
    machine = Machine(World(), script, crash_at=1)
    with pytest.raises(Crashed):
        machine.start()
    assert machine.state.run is not None
    facts = TurnFacts(step_id=1, usage=Usage(cost=cost), output_misses=0, truncations=0)
    (*_fired, last), _effects = after_turn(machine.state, machine.state.run, facts)
    return last.reason if isinstance(last, RunFinished) else None


@pytest.mark.parametrize(
    ("micros", "currency", "reason"),
    [
        (999_999, "USD", None),
        (1_000_000, "USD", "cost_limit"),
        (200_000_000, "JPY", "cost_currency"),
        (1, "JPY", "cost_currency"),
    ],
)
def test_a_cost_is_compared_in_its_own_currency_and_another_one_ends_the_run_by_name(
    micros: int, currency: str, reason: str | None
) -> None:
    assert reason_behind(Money(micros=micros, currency=currency), Money(micros=1_000_000, currency="USD")) == reason
