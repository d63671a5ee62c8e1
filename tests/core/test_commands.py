"""Commands that come twice, too late, or for what is not there: the same again changes nothing, all else is refused by name."""

from typing import Any

import pytest

from semel.core.decide import (
    answer_approval,
    decide,
    deliver_result,
    expire_approvals,
    hand_over,
    known_delivery,
    resolve,
    retract,
)
from semel.core.effects import AnswerApproval, Decision, DeliverResult, Resolve, TimeUp
from semel.core.records import LateResult
from semel.core.rules import Rulebook
from semel.errors import (
    ApprovalClosed,
    KeyReuse,
    SendRetracted,
    UnknownCall,
    UnknownMessage,
    UsageError,
    VerdictConflict,
)
from tests.core.cast import asks_for, driver
from tests.core.driver import Driver
from tests.core.machine import call, good, say, unknown


def asked(*names: str) -> tuple[Driver, list[str]]:
    """Calls that wait for a person."""
    d = driver(policy=asks_for("pay"))
    d.send()
    d.answer(call(*names))
    return d, [one.call_key for one in d.state.run.step.undecided]  # type: ignore[union-attr]  # they wait


def answer(d: Driver, key: str, decision: Any = "approved", arguments: str | None = None) -> Decision:
    command = AnswerApproval(call_key=key, decision=decision, by="t", arguments=arguments)
    return answer_approval(d.state, command, d.under_way, d.policy)


def test_an_approval_is_answered_once_and_the_same_answer_again_changes_nothing() -> None:
    d, (first, _) = asked("pay", "pay")
    d.answer_approval(first, "approved")
    assert answer(d, first) == Decision()
    with pytest.raises(ApprovalClosed, match="approved by t"):
        answer(d, first, "denied")
    with pytest.raises(ApprovalClosed):
        answer(d, first, arguments='{"n":2}')


def test_an_approval_that_nobody_asked_for_or_that_a_cancel_closed_is_refused() -> None:
    d, (key,) = asked("pay")
    with pytest.raises(UnknownCall):
        answer(d, "other")
    d.cancel("step_boundary")
    with pytest.raises(ApprovalClosed, match="cancelled"):
        answer(d, key)
    assert expire_approvals(d.state, 10**6, d.under_way) == Decision()
    d.seal()
    with pytest.raises(UnknownCall):
        answer(d, key)


@pytest.mark.parametrize("arguments", ["{", "[1]", '{"n":1,"n":2}'])
def test_arguments_that_a_person_changed_are_held_to_the_same_rules(arguments: str) -> None:
    d, (key,) = asked("pay")
    with pytest.raises(UsageError, match=key):
        answer(d, key, arguments=arguments)


def test_silence_closes_an_approval_when_its_time_is_over_and_not_before() -> None:
    d, _ = asked("pay")
    assert expire_approvals(d.state, 8999, d.under_way) == Decision()
    assert expire_approvals(d.state, 9000, d.under_way).records


def test_a_message_is_taken_back_once_and_never_when_it_has_gone() -> None:
    d = driver()
    d.send()
    d.message("q1", "one", "queue")
    d.message("q2", "two", "queue")
    d.message("q3", "three", "queue")
    d.retract("q1")
    assert retract(d.state, "q1") == Decision()
    d.hand_over("q2", "steer")
    for key, why in (("q2", "went into a run"), ("none", "there is none"), ("k1", "there is none")):
        with pytest.raises(UnknownMessage, match=why):
            retract(d.state, key)
    with pytest.raises(SendRetracted):
        known_delivery(d.state, "q1", "one", None, "queue")
    with pytest.raises(KeyReuse, match="another input"):
        known_delivery(d.state, "q3", "else", None, "queue")
    with pytest.raises(KeyReuse, match="another delivery"):
        known_delivery(d.state, "q3", "three", None, "interrupt")
    with pytest.raises(KeyReuse, match="another context"):
        known_delivery(d.state, "k1", "go", {"order": 1})
    d.answer(say("done"))
    d.answer(say("two"))
    d.drain()
    with pytest.raises(UnknownMessage, match="has started"):
        retract(d.state, "q3")
    with pytest.raises(UnknownMessage, match="for a run that takes it"):
        hand_over(d.state, "q3", "steer")


def test_a_verdict_stands() -> None:
    d = driver()
    d.send()
    d.answer(call("pay"))
    key = d.key_of(0)
    with pytest.raises(UnknownCall):
        resolve(d.state, Resolve(call_key=key, verdict="happened", by="t"))
    d.back({0: unknown()})
    d.seal()
    d.resolve(key, "happened", "paid")
    assert resolve(d.state, Resolve(call_key=key, verdict="happened", by="other", output="paid")) == ()
    for other in (Resolve(call_key=key, verdict="abandoned", by="t"), Resolve(call_key=key, verdict="happened", by="t")):
        with pytest.raises(VerdictConflict, match="by t"):
            resolve(d.state, other)


def test_a_result_that_nobody_owes_is_refused_and_a_second_one_changes_nothing() -> None:
    d = driver()
    d.send()
    d.answer(call("pay", "read"))
    paid, read = d.key_of(0), d.key_of(1)
    d.back({1: good()}, deferred=[0])
    with pytest.raises(UnknownCall):
        deliver_result(d.state, DeliverResult(call_key=read, text="x"), d.under_way)
    d.deliver(paid, "it is paid")
    assert not deliver_result(d.state, DeliverResult(call_key=paid, text="it is paid"), d.under_way).records
    with pytest.raises(KeyReuse):
        deliver_result(d.state, DeliverResult(call_key=paid, text="it is not"), d.under_way)


@pytest.mark.parametrize("carried", [True, False])
def test_a_held_result_comes_once_whoever_carries_the_run(carried: bool) -> None:
    d = driver()
    d.send()
    d.answer(call("pay"))
    key = d.key_of(0)
    d.back(held=[0])
    if not carried:
        d.die()
    d.deliver(key, "paid")
    assert sum(isinstance(r, LateResult) for write in d.writes for r in write.records) == (0 if carried else 1)
    assert not deliver_result(d.state, DeliverResult(call_key=key, text="paid"), d.under_way).records
    with pytest.raises(KeyReuse):
        deliver_result(d.state, DeliverResult(call_key=key, text="twice"), d.under_way)
    d.resume()
    d.answer(say("thanks"))
    assert [message.text for message in d.said][2] == "paid"


def test_a_held_result_that_completes_a_turn_is_judged_by_the_agents_own_condition_to_stop() -> None:
    d = driver(policy=Rulebook(stop_after_turn=lambda _turn: True))
    d.send()
    d.answer(call("pay", "pay"))
    d.back(held=[0, 1])
    d.deliver(d.key_of(0), "paid")
    d.deliver(d.key_of(1), "paid as well")
    assert d.state.run is None
    assert next(iter(d.state.ended.values())).reason == "completed"


def test_time_that_is_up_ends_the_run_while_the_model_is_asked() -> None:
    d = driver()
    d.send()
    d.asking = None  # the time is up instead of an answer
    d._do(decide(d.state, TimeUp(), doubt=frozenset(), now_ms=10**9))
    assert d.state.ended[d.state.newest or ""].reason == "time_limit"
