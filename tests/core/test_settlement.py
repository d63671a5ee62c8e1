"""Every call settles once, whatever became of it: the recorded classes, reconciliation pass by pass, the causes (V14-V19)."""

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from semel.core.effects import Decision, Dispatch, Reconcile
from semel.core.outcomes import (
    Completed,
    DidNotHappen,
    HeldClosed,
    HeldReason,
    NeverSent,
    NotSent,
    Outcome,
    RefusalReason,
    classify_exception,
    lost,
    refuse,
    settle,
)
from semel.core.pairing import RESULT_BYTES_MOST, Rule, fault_of
from semel.core.policy import Policy, Undecidable
from semel.core.records import ApprovalRecorded, StepStarted, ToolNoDispatch, ToolResult
from semel.core.recover import recover
from semel.core.rules import Rule as CallRule
from semel.core.rules import Rulebook
from semel.core.standing import CallClass, classify
from semel.core.state import Session
from semel.core.uncertainty import LostReason
from semel.core.values import AssistantMessage, Effect, ToolCall, ToolMessage, ToolSpec, UserMessage
from semel.errors import CallNotSent, CorruptLog, OutcomeUnknown, ToolFailed
from tests.core.cast import driver
from tests.core.driver import Died, Driver
from tests.core.machine import bad, call, good, say, tool
from tests.core.quiet import quiesce
from tests.core.writes import folded

TOOLS = tuple(tool(name, reconciles=True) for name in ("deny", "ok", "fail", "lost"))


deny_one = Rulebook(agent=[CallRule("deny", "deny", why="never on a Friday"), CallRule("allow")])


def first_life(kinds: Sequence[str], recover_with: Callable[..., Decision] = recover, policy: Policy = deny_one) -> Driver:
    """One answer with these calls; those that have an answer give it, and then the process dies."""
    d = Driver(tools=TOOLS, policy=policy, recover=recover_with)
    d.send()
    d.answer(call(*kinds))
    replies = {"ok": good(), "fail": bad("card declined")}
    for at, kind in enumerate(kinds):
        if kind in replies and d.flying > {at}:
            d.back({at: replies[kind]})
    if not d.flying & {at for at, kind in enumerate(kinds) if kind == "lost"}:
        d.back({at: replies[kinds[at]] for at in d.flying}) if d.flying else None
    d.die()
    return d


def settled_calls(state: Session) -> int:
    batch = state.run.step.batch if state.run is not None and state.run.step is not None else None
    if batch is None or batch.finished:
        return 0
    return sum(call.settled is not None for call in batch.calls)


def reconcile_in_passes(d: Driver, passes_most: int) -> int:
    """Reconciliation-only passes: each asks about one call, makes its answer durable, and dies; until the turn is done."""
    passes = 0
    while not _turn_done(d.state):
        assert passes < passes_most, "the turn does not finish within one retry per lost call"
        before = settled_calls(d.state)
        d.resume()
        assert d.asked_about is not None, "reconciliation did not settle the uncertain call"
        d.tear = 99  # the answer is durable, and nothing that follows from it is released
        with suppress(Died):
            d.asked(good("it had happened"))
        passes += 1
        d.die()
        assert _turn_done(d.state) or settled_calls(d.state) == before + 1, "a pass settles exactly one more call"
    return passes


def _turn_done(state: Session) -> bool:
    return state.run is not None and state.run.step is not None and state.run.step.step_id == 2


KINDS = st.lists(st.sampled_from(["deny", "ghost", "ok", "fail", "lost"]), min_size=1, max_size=5)


@settings(max_examples=64, deadline=None)
@given(KINDS)
def test_v16_every_call_of_an_answer_settles_once_runs_at_most_once_and_is_asked_about_once(kinds: list[str]) -> None:
    settles_once(kinds)


def settles_once(kinds: Sequence[str], recover_with: Callable[..., Decision] = recover) -> None:
    d = first_life(kinds, recover_with)
    losses = kinds.count("lost")
    if losses:
        assert reconcile_in_passes(d, losses) == losses
    assert len(d.reconciled) == losses
    assert all(times == 1 for times in d.reconciled.values())
    assert all(times == 1 for times in d.dispatched.values())
    d.resume()
    d.answer(say("done"))
    terminals = Counter(
        record.ordinal
        for write in d.writes
        for record in write.records
        if isinstance(record, ToolResult | ToolNoDispatch | ApprovalRecorded)
    )
    assert terminals == dict.fromkeys(range(len(kinds)), 1)
    sent = Counter(d.dispatched)
    d.die()
    d.resume()
    assert d.dispatched == sent, "replay dispatches nothing"
    assert folded(d.writes) == d.state


def sending_again(state: Session, policy: Policy) -> Decision:
    """A planted fault: what was sent and has no outcome is sent again, and nobody is asked."""
    decision = recover(state, policy)
    asked = tuple(effect.ordinal for effect in decision.effects if isinstance(effect, Reconcile))
    return replace(decision, effects=(Dispatch(ordinals=asked),)) if asked else decision


def test_v16_a_recovery_that_sends_again_what_was_lost_would_be_caught() -> None:
    with pytest.raises(AssertionError, match="a once call leaves once"):
        settles_once(["ok", "lost"], sending_again)
    settles_once(["ok", "fail", "deny"], sending_again)


PINNED = (["deny", "lost"], ["ghost", "lost"])


@pytest.mark.parametrize("kinds", PINNED, ids=["[Deny, Lost]", "[Ghost, Lost]"])
def test_v17_a_refused_call_does_not_block_reconciling_a_later_uncertain_one(kinds: list[str]) -> None:
    assert reconcile_in_passes(first_life(kinds), 1) == 1


def sequential_recover(state: Session, policy: Policy) -> Decision:
    """The planted fault: goes call by call, and takes one that never started for a reason to stop."""
    run = state.run
    batch = run.step.batch if run is not None and run.step is not None else None
    if run is None or batch is None or batch.finished:
        return recover(state, policy)
    for at, found in enumerate(classify(run, batch)):
        if found in (CallClass.NO_DISPATCH, CallClass.NEVER_LEFT):
            return Decision()
        if found is CallClass.INDETERMINATE:
            return Decision(effects=(Reconcile(ordinal=at),), doubt=frozenset({at}))
    return recover(state, policy)


@pytest.mark.parametrize("kinds", PINNED, ids=["[Deny, Lost]", "[Ghost, Lost]"])
def test_v17_a_sequential_classifier_would_be_caught(kinds: list[str]) -> None:
    with pytest.raises(AssertionError, match="reconciliation did not settle the uncertain call"):
        reconcile_in_passes(first_life(kinds, sequential_recover), 1)
    assert reconcile_in_passes(first_life(["lost"], sequential_recover), 1) == 1


def four_kinds() -> Driver:
    """One answer with an unknown tool, arguments that do not fit, a tool that fails, and one that succeeds."""
    schema = '{"type":"object","properties":{"n":{"type":"integer"}}}'
    strict = ToolSpec(name="strict", description="strict", parameters=schema)
    d = Driver(tools=(strict, tool("fail"), tool("ok")))
    d.send()
    d.answer(
        [
            ToolCall(id="a", name="ghost", arguments="{}"),
            ToolCall(id="b", name="strict", arguments='{"n":"one"}'),
            ToolCall(id="c", name="fail", arguments="{}"),
            ToolCall(id="d", name="ok", arguments="{}"),
        ]
    )
    d.back({2: bad("ValueError: no")})
    d.back({3: good("fine")})
    return d


def test_v15_refused_and_failed_calls_are_published_in_order_for_the_next_turn() -> None:
    d = four_kinds()
    exchange = d.sent[-1][1:]
    assert isinstance(exchange[0], AssistantMessage)
    results = [message for message in exchange[1:] if isinstance(message, ToolMessage)]
    assert [(message.tool_call_id, message.is_error) for message in results] == [
        ("a", True),
        ("b", True),
        ("c", True),
        ("d", False),
    ]
    assert {d.tool_of[key] for key in d.dispatched} == {"fail", "ok"}
    sent, requests = Counter(d.dispatched), len(d.sent)
    d.die()
    d.resume()
    assert d.dispatched == sent
    assert len(d.sent) == requests + 1
    assert d.sent[-1] == d.sent[-2]


def test_v15_an_exchange_without_its_refusals_would_be_caught() -> None:
    said = [
        message for message in four_kinds().sent[-1] if not (isinstance(message, ToolMessage) and message.tool_call_id in "ab")
    ]
    fault = fault_of(said)
    assert fault is not None
    assert fault.rule is Rule.RESULT_OUT_OF_ORDER


def test_v14_a_death_between_the_prepared_request_and_the_model_sends_the_same_refusal_history_and_dispatches_nothing() -> None:
    d = driver()
    d.send()
    d.answer(call("ghost", "nobody"))
    prepared = d.sent[-1]
    for _ in range(3):
        d.die()
        d.resume()
        assert d.sent[-1] == prepared
    assert not d.dispatched
    assert len({bytes(body) for body in d.requests.values()}) == 2


def taking_up_more(state: Session, policy: Policy) -> Decision:
    """A planted fault: a later attempt of a step takes up what came meanwhile."""
    decision = recover(state, policy)
    waiting = tuple(item.entry_id for item in state.pending)
    again = (replace(r, drained=(*r.drained, *waiting)) if isinstance(r, StepStarted) else r for r in decision.records)
    return replace(decision, records=tuple(again))


def test_v14_an_attempt_that_sends_another_history_would_be_caught() -> None:
    d = driver(recover=taking_up_more)
    d.send()
    d.answer(call("ghost", "nobody"))
    d.message("s1", "hurry", "steer")
    d.die()
    with pytest.raises(CorruptLog, match="attempt 2 contradicts attempt 1"):
        d.resume()


FAILING_TEXT = st.text(
    st.characters(codec="utf-8", exclude_characters="\x00") | st.sampled_from("\x1b\x07\x85\n\t \u2028"), max_size=40
)
HAPPENINGS = [
    *(lost(reason) for reason in LostReason),
    *(HeldClosed(reason=reason) for reason in HeldReason),
    *(NeverSent(outcome=outcome) for outcome in (Outcome.INTERRUPTED, Outcome.MAX_STEPS)),
    DidNotHappen(),
]


def shown(text: str) -> None:
    """A failure as the model reads it keeps the shape that every history demands."""
    said = [UserMessage(text="go"), AssistantMessage(blocks=(ToolCall(id="a", name="x", arguments="{}"),))]
    assert fault_of([*said, ToolMessage(tool_call_id="a", text=text, is_error=True)]) is None
    assert text.strip()
    assert len(text) < 8_000


@settings(max_examples=200, deadline=None)
@given(FAILING_TEXT)
def test_v18_every_way_to_fail_tells_the_model_something_bounded_and_free_of_controls(words: str) -> None:
    for reason in RefusalReason:
        shown(refuse(reason, words).message)
    for error in (ToolFailed(words), ValueError(words), CallNotSent(words), OutcomeUnknown(words), TimeoutError(words)):
        for effect in Effect:
            shown(settle(effect, classify_exception(error), after_crash=False).text)
    raw = [
        Completed(text=words, is_error=True),
        NotSent(text=words),
        *(lost(reason, words) for reason in LostReason),
        *HAPPENINGS,
    ]
    for happening in raw:
        for effect in Effect:
            for after_crash in (False, True):
                settled = settle(effect, happening, after_crash=after_crash)
                assert settled.is_error
                shown(settled.text)


@pytest.mark.parametrize("text", ["", " \n", "\x1b[31mred", "bell\x07", "x" * (RESULT_BYTES_MOST + 1)])
def test_v18_a_blank_unsanitised_or_endless_cause_would_be_caught(text: str) -> None:
    with pytest.raises(AssertionError):
        shown(text)


def test_a_denied_call_beside_a_lost_one_that_nobody_can_ask_about_still_stops_the_run() -> None:
    d = Driver(tools=(tool("deny"), tool("pay")), policy=deny_one)
    d.send()
    d.answer(call("deny", "pay"))
    d.die()
    d.resume()
    d.seal()
    assert [unknown.tool for unknown in d.state.unknown] == ["pay"]
    quiesce(d)


def test_a_policy_that_cannot_decide_ends_the_run_and_sends_nothing() -> None:
    d = Driver(tools=TOOLS, policy=lambda _spec, _arguments: Undecidable(why="the rules name a tool that is gone"))
    d.send()
    d.answer(call("ok"))
    ended = d.state.ended[d.state.newest or ""]
    assert (ended.reason, ended.error.code if ended.error else "") == ("error", "policy_undecidable")
    assert not d.dispatched
    d.send("k2", "again")


def test_a_death_in_the_write_of_a_reconciled_answer_asks_again_and_never_sends() -> None:
    d = first_life(["lost", "ok"])
    d.resume()
    d.tear = 0
    with pytest.raises(Died):
        d.asked(good("it had happened"))
    d.die()
    d.resume()
    d.asked(good("it had happened"))
    assert d.reconciled.total() == 2
    assert all(times == 1 for times in d.dispatched.values())


@pytest.mark.parametrize("names", [("pay", "read"), ("read", "pay"), ("pay", "read", "put")])
def test_a_call_that_is_given_up_beside_a_held_one_is_recorded_before_the_run_waits(names: tuple[str, ...]) -> None:
    """R31: a run is paused for held calls alone; the log would contradict itself if the other one were left open."""
    d = driver()
    d.send()
    d.answer(call(*names))
    d.back(held=[names.index("pay")])
    for _ in range(d.limits.reruns + 1):
        d.die()
        d.resume()
    assert d.idle
    assert d.state.run is not None
    assert d.state.run.pause is not None
    found = d.state.run.step.batch.calls if d.state.run.step and d.state.run.step.batch else ()
    assert [one.settled.outcome if one.settled else "held" for one in found] == [
        "held" if name == "pay" else Outcome.INTERRUPTED for name in names
    ]
    d.deliver(d.key_of(names.index("pay")), "paid")
    d.answer(say("done"))
    assert d.state.ended[d.state.newest or ""].reason == "completed"
