"""Legal histories of any shape: whatever is asked, comes back or dies, in any order, the same things hold (V3, P2-P4, P9).

The driver checks as it goes: every request keeps the history contract and repeats what an earlier attempt of its step sent; no
once call leaves twice; no model of a run sees its unknown call. Here is what must hold at the end.
"""

from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from semel.core.effects import Decision
from semel.core.pairing import fault_of
from semel.core.policy import Policy
from semel.core.records import (
    ApprovalRecorded,
    RunFinished,
    RunStarted,
    StepStarted,
    ToolBatchFinished,
    ToolBatchStarted,
    ToolNoDispatch,
    ToolResult,
)
from semel.core.recover import recover
from semel.core.state import Session
from semel.core.values import UserMessage
from semel.errors import SemelError
from tests.core.driver import Driver
from tests.core.play import ARGUMENTS, NAMES, PICKS, Player
from tests.core.quiet import quiesce
from tests.core.writes import folded, logged_of

MOVES = st.lists(st.integers(0, PICKS * ARGUMENTS - 1), min_size=12, max_size=36)
PLAYED: Counter[str] = Counter()


def check(moves: list[int]) -> Driver:
    """Play, let everything come to rest, and hold the end against what was promised."""
    player = Player()
    player.play(moves)
    driver = player.driver
    driver.die()
    driver.resume()
    quiesce(driver)
    PLAYED.update(player.counts)
    PLAYED["histories"] += 1
    PLAYED["records"] += driver.state.head
    assert_sound(driver)
    return driver


def assert_sound(driver: Driver) -> None:
    state = driver.state
    logged = logged_of(driver.writes)
    records = [one.record for one in logged]
    assert folded(driver.writes) == state, "the fold of the log is the live state"
    started = [record.run_id for record in records if isinstance(record, RunStarted)]
    finished = [record.run_id for record in records if isinstance(record, RunFinished)]
    assert sorted(started) == sorted(finished) == sorted(state.ended), "exactly one terminal for each run"
    terminals = Counter(
        (record.batch_id, record.ordinal)
        for record in records
        if isinstance(record, ToolResult | ToolNoDispatch) or (isinstance(record, ApprovalRecorded) and record.output is not None)
    )
    planned = {(r.batch_id, c.ordinal) for r in records if isinstance(r, ToolBatchStarted) for c in r.planned_calls}
    assert terminals == dict.fromkeys(planned, 1), "exactly one terminal for each planned call"
    assert sum(isinstance(r, ToolBatchFinished) for r in records) == sum(isinstance(r, ToolBatchStarted) for r in records)
    said = Counter(message.text for message in state.transcript if isinstance(message, UserMessage))
    for key, text in driver.acknowledged.items():
        places = 0 if state.taken.get(key) == "retracted" else 1
        assert said[text] == places, f"{key} is in the transcript exactly once, or was taken back"
    assert fault_of(list(state.transcript)) is None
    sent = Counter(driver.dispatched)
    driver.die()
    driver.resume()
    assert driver.dispatched == sent, "replay dispatches nothing that is settled"


@pytest.mark.timeout(300)  # on a busy machine; the count is the point
@settings(
    max_examples=2000, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@given(MOVES)
def test_two_thousand_histories_hold_what_was_promised(moves: list[int]) -> None:
    check(moves)


def test_every_move_was_played_and_the_histories_are_not_shallow() -> None:
    print(f"{PLAYED['histories']} histories, {PLAYED['records']} records; {dict(PLAYED)}")
    assert PLAYED["histories"] >= 2000
    assert PLAYED["records"] / PLAYED["histories"] >= 20
    assert {name for name in NAMES if PLAYED[name] < 50} == set()
    assert PLAYED["died_in_a_write"] >= 100


@pytest.mark.prove
@pytest.mark.timeout(3600)
@settings(max_examples=50_000, deadline=None, suppress_health_check=list(HealthCheck))
@given(MOVES)
def test_fifty_thousand_histories_hold_what_was_promised(moves: list[int]) -> None:
    check(moves)


def forgetful(state: Session, policy: Policy) -> Decision:
    """A planted fault: a later attempt of a step takes up what came meanwhile."""
    decision = recover(state, policy)
    waiting = tuple(item.entry_id for item in state.pending)
    records = tuple(
        StepStarted(
            run_id=r.run_id, step_id=r.step_id, attempt=r.attempt, result_entry=r.result_entry, drained=(*r.drained, *waiting)
        )
        if isinstance(r, StepStarted)
        else r
        for r in decision.records
    )
    return Decision(records=records, effects=decision.effects, doubt=decision.doubt)


def hasty(state: Session, policy: Policy) -> Decision:
    """A planted fault: a resume finds nothing in doubt, and sends what has no outcome."""
    decision = recover(state, policy)
    return Decision(records=decision.records[:1], effects=decision.effects) if not decision.effects else decision


def silent(state: Session, policy: Policy) -> Decision:
    """A planted fault: a resume forgets to say what happened to the calls in doubt."""
    decision = recover(state, policy)
    kept = tuple(record for record in decision.records if not isinstance(record, ToolResult))
    return Decision(records=kept, effects=decision.effects, doubt=decision.doubt)


@pytest.mark.parametrize("fault", [forgetful, hasty, silent])
def test_a_fault_in_the_recovery_would_be_caught(fault: object) -> None:
    for seed in range(300):
        player = Player()
        player.driver.recover = fault  # type: ignore[assignment]  # a recovery
        try:
            player.play([(seed * 7919 + at * 104_729) % (PICKS * ARGUMENTS) for at in range(40)])
            player.driver.die()
            player.driver.resume()
            quiesce(player.driver)
            assert_sound(player.driver)
        except (AssertionError, SemelError):
            return
    raise AssertionError("no history of 300 shows the fault")
