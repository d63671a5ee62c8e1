"""Legal histories of any shape: whatever is asked, comes back or dies, in any order, the same things hold (V3, P2-P4, P9).

The driver checks as it goes: a fold of the log is the live state at each death; every request keeps the history contract and
repeats what an earlier attempt of its step sent; no once call leaves twice, and nothing that is settled leaves at all; no model
of a run sees its unknown call. Here is what must hold at the end, and how much of everything the histories came through.
"""

from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.internal.conjecture import providers
from msgspec.structs import replace

from semel.core.effects import Decision, Dispatch
from semel.core.pairing import fault_of
from semel.core.policy import Policy
from semel.core.records import (
    ApprovalRecorded,
    ModelAttemptFinished,
    ModelStepFinished,
    Record,
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
from tests.core.play import ARGUMENTS, NAMES, PICKS, Player
from tests.core.quiet import quiesce
from tests.core.tally import Tally
from tests.core.test_settlement import taking_up_more
from tests.core.thinker import Thinker, assert_proofs_are_true
from tests.core.writes import Write, folded, logged_of

MOVES = st.lists(st.integers(0, PICKS * ARGUMENTS - 1), min_size=13, max_size=29)


def check(moves: list[int], tally: Tally) -> None:
    """Play, let everything come to rest, and hold the end against what was promised."""
    player = Player(moves[0])
    player.play(moves[1:])
    driver = player.driver
    driver.die()
    driver.resume()
    quiesce(driver)
    tally.take(driver, player.counts)
    assert_sound(driver)


def assert_sound(driver: Thinker) -> None:
    state = driver.state
    logged = logged_of(driver.writes)
    records = [one.record for one in logged]
    messages = driver.said
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
    said = Counter(message.text for message in messages if isinstance(message, UserMessage))
    for key, text in driver.acknowledged.items():
        places = 0 if state.taken.get(key) == "retracted" else 1
        assert said[text] == places, f"{key} is in the transcript exactly once, or was taken back"
    assert fault_of(messages) is None
    assert_exchanges_stand_before_their_answer(records)
    assert_proofs_are_true(driver, records)
    sent = Counter(driver.dispatched)
    driver.die()
    driver.resume()
    assert driver.dispatched == sent, "replay dispatches nothing that is settled"


def assert_exchanges_stand_before_their_answer(records: list[Record | None]) -> None:
    """R7: each exchange is recorded before the answer of its step, or the end of its run."""
    asking: StepStarted | None = None
    for record in records:
        match record:
            case StepStarted():
                asking = record
            case ModelStepFinished() | RunFinished():
                asking = None
            case ModelAttemptFinished():
                assert asking is not None
                assert record.step_id == asking.step_id


@pytest.fixture
def plain_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hypothesis mixes in numbers from the source of all modules that are loaded, so the histories depend on what ran before."""
    monkeypatch.setattr(providers, "_get_local_constants", providers.Constants)
    monkeypatch.setattr(providers, "CONSTANTS_CACHE", type(providers.CONSTANTS_CACHE)(1024))


def play_many(examples: int, *, derandomize: bool) -> None:
    """So many histories; what they came through is printed, and must be enough of everything."""
    tally = Tally()

    @settings(
        max_examples=examples,
        deadline=None,
        derandomize=derandomize,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(MOVES)
    def each(moves: list[int]) -> None:
        check(moves, tally)

    each()
    print(tally)
    assert tally.histories >= examples
    assert tally.records / tally.histories >= 20
    assert tally.lacking(NAMES) == []


@pytest.mark.usefixtures("plain_numbers")
@pytest.mark.timeout(240)  # twelve seconds of a processor, which a busy machine may not give within the usual minute
def test_two_thousand_histories_hold_what_was_promised_and_are_of_every_kind() -> None:
    play_many(2_000, derandomize=True)


@pytest.mark.usefixtures("plain_numbers")
@pytest.mark.prove
@pytest.mark.timeout(1800)
def test_fifty_thousand_histories_hold_what_was_promised_and_are_of_every_kind() -> None:
    play_many(50_000, derandomize=False)


Recovery = Callable[[Session, Policy], Decision]


def hasty(state: Session, policy: Policy) -> Decision:
    """What was sent and has not come back is sent again, whatever its effect."""
    decision = recover(state, policy)
    batch = state.run.step.batch if state.run is not None and state.run.step is not None else None
    calls = () if batch is None or batch.finished else batch.calls
    out = tuple(at for at, call in enumerate(calls) if call.intent and not call.settled)
    return Decision(records=decision.records[:1], effects=(Dispatch(ordinals=out),)) if out else decision


def repeating(state: Session, policy: Policy) -> Decision:
    """A call whose outcome is in the log is sent again."""
    decision = recover(state, policy)
    batch = state.run.step.batch if state.run is not None and state.run.step is not None else None
    calls = () if batch is None or batch.finished else batch.calls
    done = tuple(at for at, call in enumerate(calls) if call.returned is not None)
    return Decision(records=decision.records[:1], effects=(Dispatch(ordinals=done),)) if done else decision


def silent(state: Session, policy: Policy) -> Decision:
    """It is not said what became of the calls in doubt."""
    decision = recover(state, policy)
    return replace(decision, records=tuple(record for record in decision.records if not isinstance(record, ToolResult)))


def endless(state: Session, policy: Policy) -> Decision:
    """A run that is to end is never ended."""
    decision = recover(state, policy)
    return replace(decision, records=tuple(record for record in decision.records if not isinstance(record, RunFinished)))


def ending_twice(state: Session, policy: Policy) -> Decision:
    """A run has two ends."""
    decision = recover(state, policy)
    ends = tuple(record for record in decision.records if isinstance(record, RunFinished))
    return replace(decision, records=(*decision.records, *ends))


FAULTS: dict[Recovery, str] = {
    taking_up_more: "attempt 2 contradicts attempt 1",
    hasty: "a once call leaves once",
    repeating: "nothing that is settled is dispatched",
    silent: "a batch is finished while a call has no terminal",
    endless: "it never comes to rest",
    ending_twice: "record_after_finish",
}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_planted_fault_in_the_recovery_is_caught_for_what_it_is(fault: Recovery) -> None:
    for seed in range(300):
        player = Player()
        player.driver.recover = fault
        try:
            player.play([(seed * 7919 + at * 104_729) % (PICKS * ARGUMENTS) for at in range(40)])
            player.driver.die()
            player.driver.resume()
            quiesce(player.driver)
            assert_sound(player.driver)
        except (AssertionError, SemelError) as caught:
            if FAULTS[fault] in str(caught):
                return
    raise AssertionError("no history of 300 shows the fault")


PLANTED: dict[str, tuple[str, Callable[..., object]]] = {
    "no model is shown the state of another one": ("semel.core.fold_run.for_target", lambda state, at: replace(state, target=at)),
    "no bound state is shown behind another start": ("semel.core.decide._voided", lambda *_: ()),
    "a prefix that is told to be identical is not": ("semel.core.fold_run.broken_by", lambda _: ()),
}


@pytest.mark.parametrize("told", PLANTED)
def test_a_planted_fault_about_provider_state_is_caught_for_what_it_is(told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*PLANTED[told])
    for seed in range(300):
        try:
            check([(seed * 7919 + at * 104_729) % (PICKS * ARGUMENTS) for at in range(40)], Tally())
        except AssertionError as caught:
            if told in str(caught):
                return
    raise AssertionError("no history of 300 shows the fault")


def test_a_request_that_changed_would_be_caught() -> None:
    player = Player()
    player.driver.send()
    place = next(iter(player.driver.requests))
    player.driver.requests[place] += b" "
    player.driver.die()
    with pytest.raises(AssertionError, match="an attempt of a step sends what the first one sent"):
        player.driver.resume()


def test_a_log_that_lost_a_record_would_be_caught() -> None:
    player = Player()
    player.driver.send()
    (write,) = player.driver.writes
    player.driver.writes = [Write(write.records[:-1], write.whole, write.fence)]
    with pytest.raises(AssertionError, match="the fold of the log is the live state"):
        player.driver.die()


def test_a_proof_whose_histories_lack_something_would_be_caught() -> None:
    tally = Tally(histories=2000, found=Counter({"steer": 3}))
    assert "steer: 3" in tally.lacking(NAMES)
    assert "torn write: 0" in tally.lacking(NAMES)
    assert "move cancel: 0" in tally.lacking(NAMES)
