"""Every reason to refuse a call has a history that gives it, its own words, and no start (T1, T3, T4, T10, T16)."""

from collections.abc import Callable

import pytest

from semel.core import plan
from semel.core.hook_notes import HookNote
from semel.core.outcomes import MESSAGE_CHARS_MAX, RefusalReason, refuse
from semel.core.pairing import fault_of
from semel.core.records import ApprovalRecorded, ToolDispatchIntent, ToolNoDispatch
from semel.core.rules import Rule, Rulebook
from semel.core.transcript import Message
from semel.core.values import Block, Effect, Stop, ToolCall, ToolMessage, ToolSpec
from tests.core.driver import Died, Driver
from tests.core.machine import tool

PAY = ToolSpec(
    name="pay", description="Pay.", parameters='{"type":"object","properties":{"cents":{"type":"integer"}},"required":["cents"]}'
)
TOOLS = (PAY, tool("look", Effect.READ))


def started(policy: Rulebook | None = None) -> Driver:
    d = Driver(tools=TOOLS, policy=policy or Rulebook())
    d.send()
    return d


def paying(arguments: str = '{"cents":5}', name: str = "pay") -> list[Block]:
    return [ToolCall(id="a", name=name, arguments=arguments)]


def after(blocks: list[Block], stop: Stop = Stop.END_TURN, policy: Rulebook | None = None) -> Driver:
    d = started(policy)
    d.answer(blocks, stop)
    return d


def noted(verdict: str) -> Driver:
    """An answer about whose call a pre-tool hook said no, or failed."""
    d = started()
    note = HookNote(phase="pre_tool", hook="guard", verdict=verdict, ordinal=0, message="Not on a Friday.")
    d.answer(paying(), hooks=(note,))
    return d


def decided(decision: str) -> Driver:
    d = after(paying(), policy=Rulebook(agent=[Rule("ask", expires=1)]))
    assert d.state.run is not None
    assert d.state.run.step is not None
    (asked,) = d.state.run.step.undecided
    if decision == "expired":
        d.expire(1000)
    elif decision == "cancelled":
        d.cancel()
        d.seal()
    else:
        d.answer_approval(asked.call_key, decision)
    return d


def torn() -> Driver:
    d = started()
    d.tear = 4
    with pytest.raises(Died):
        d.answer([*paying(), *paying(name="look")])
    d.die()
    d.resume()
    return d


def too_long() -> Driver:
    return after(paying('{"cents":5,"x":"' + "x" * plan.ARGUMENT_CHARS_MOST + '"}'))


HISTORIES: dict[RefusalReason, Callable[[], Driver]] = {
    RefusalReason.TRUNCATED_OUTPUT: lambda: after(paying(), Stop.MAX_TOKENS),
    RefusalReason.ANSWER_DECLINED: lambda: after(paying(), Stop.REFUSAL),
    RefusalReason.UNKNOWN_TOOL: lambda: after(paying(name="ghost")),
    RefusalReason.ARGUMENTS_INVALID: lambda: after(paying("[1]")),
    RefusalReason.SCHEMA_INVALID: lambda: after(paying('{"cents":"many"}')),
    RefusalReason.OVERSIZED: too_long,
    RefusalReason.POLICY_BLOCKED: lambda: after(paying(), policy=Rulebook(agent=[Rule("deny")])),
    RefusalReason.HOOK_DENIED: lambda: noted("denied"),
    RefusalReason.PRE_TOOL_UNAVAILABLE: lambda: noted("failed"),
    RefusalReason.DENIED: lambda: decided("denied"),
    RefusalReason.APPROVAL_EXPIRED: lambda: decided("expired"),
    RefusalReason.RUN_CLOSED: lambda: decided("cancelled"),
    RefusalReason.NEVER_DISPATCHED: torn,
}


def terminals(d: Driver) -> list[ToolNoDispatch | ApprovalRecorded]:
    return [record for write in d.writes for record in write.records if isinstance(record, ToolNoDispatch | ApprovalRecorded)]


def told(d: Driver) -> list[ToolMessage]:
    return [message for message in d.said if isinstance(message, ToolMessage)]


@pytest.mark.parametrize("reason", RefusalReason)
def test_every_reason_to_refuse_has_a_history_its_own_words_and_no_start(reason: RefusalReason) -> None:
    d = HISTORIES[reason]()
    if reason is RefusalReason.NEVER_DISPATCHED:
        d.back()
    refused = terminals(d)[0]
    assert refused.ordinal == 0
    expected = refuse(reason).message
    if isinstance(refused, ToolNoDispatch):
        assert refused.reason == reason
    else:
        assert refused.decision in ("denied", "expired", "cancelled")
    (message, *_others) = told(d)
    assert message.is_error
    assert message.text.startswith(expected)
    assert len(message.text) < len(expected) + MESSAGE_CHARS_MAX + 2
    assert message.text.replace("\n", " ").isprintable()
    assert not [key for key in d.dispatched if d.tool_of[key] == "pay"]
    said: list[Message] = d.said
    assert fault_of(said) is None
    intents = [record for write in d.writes if write.whole for record in write.records if isinstance(record, ToolDispatchIntent)]
    assert all(intent.ordinal for intent in intents)


def test_every_reason_has_words_that_no_other_has() -> None:
    words = [refuse(reason).message for reason in RefusalReason]
    assert len(set(words)) == len(words) == len(HISTORIES) == 13


@pytest.mark.parametrize("detail", ["", "x" * 100_000, "\x1b[31m\x00\ud800 no", " \n\t"])
@pytest.mark.parametrize("reason", RefusalReason)
def test_t4_whatever_the_detail_a_refusal_is_nonblank_bounded_and_control_free(reason: RefusalReason, detail: str) -> None:
    message = refuse(reason, detail).message
    assert message.strip()
    assert message.isprintable()
    assert len(message) < 2 * MESSAGE_CHARS_MAX


def test_t16_a_hook_that_says_no_does_not_block_the_next_call() -> None:
    d = started()
    note = HookNote(phase="pre_tool", hook="guard", verdict="denied", ordinal=0)
    d.answer([*paying(), ToolCall(id="b", name="look", arguments="{}")], hooks=(note,))
    assert {d.tool_of[key] for key in d.dispatched} == {"look"}


def test_any_no_of_a_hook_wins_over_what_another_made_of_the_call_and_over_an_allowing_rule() -> None:
    d = started(Rulebook(operator=[Rule("allow")]))
    notes = (
        HookNote(phase="pre_tool", hook="cap", verdict="changed", ordinal=0, changed='{"cents":1}'),
        HookNote(phase="pre_tool", hook="guard", verdict="denied", ordinal=0, message="no"),
    )
    d.answer(paying(), hooks=notes)
    assert not d.dispatched
    assert told(d)[0].text == "Not run: a check of this agent does not allow it. no"


def test_a_plan_that_forgets_its_hooks_would_be_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "_by_hook", lambda _step, _ordinal: None)
    assert noted("denied").dispatched
    assert noted("failed").dispatched


def test_what_a_hook_changed_is_what_a_person_is_asked_about_and_what_leaves_after_a_death() -> None:
    d = started(Rulebook(agent=[Rule("ask", when="cents > 3")]))
    note = HookNote(phase="pre_tool", hook="cap", verdict="changed", ordinal=0, changed='{"cents":4}')
    d.answer(paying('{"cents":9}'), hooks=(note,))
    d.die()
    assert d.state.run is not None
    assert d.state.run.step is not None
    (asked,) = d.state.run.step.undecided
    d.answer_approval(asked.call_key, "approved")
    d.resume()
    (intent,) = [record for write in d.writes for record in write.records if isinstance(record, ToolDispatchIntent)]
    assert (intent.args, intent.args_digest) == ('{"cents":4}', asked.args_digest)
