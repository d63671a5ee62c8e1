"""Answers of people for calls that wait for one (CON4, CON12, B38). Pure.

An answer is bound to the digest of the exact arguments, given once, and durable before it is acknowledged. When the last one of a
batch is there, the batch is planned and goes on in the same write.
"""

from semel.core.arguments import check_arguments, parse_arguments
from semel.core.calls import Approval, Step
from semel.core.effects import AnswerApproval, Decision, UnderWay
from semel.core.fold import ahead
from semel.core.outcomes import Refusal
from semel.core.plan import ruling_on
from semel.core.planning import plan_batch
from semel.core.policy import Deny, Policy, Undecidable, allow_all
from semel.core.records import ApprovalDecision, ApprovalResolved
from semel.core.state import Session
from semel.core.values import digest_text
from semel.errors import ApprovalClosed, UnknownCall, UsageError, need


def answer_approval(state: Session, command: AnswerApproval, under_way: UnderWay | None, policy: Policy = allow_all) -> Decision:
    """Record an answer; the same answer again changes nothing. Behind the last one the batch goes on, if the run is carried.

    Raises UnknownCall where nobody was asked about the call, ApprovalClosed where it was decided otherwise, and UsageError for
    changed arguments that are no JSON object, or that `policy` forbids.
    """
    step = state.run.step if state.run is not None else None
    approval = _approval(step, command.call_key)
    if step is None or approval is None:
        raise UnknownCall(f"no call {command.call_key} of session {state.session!r} waits for an approval; see `semel inbox`")
    found = approval.resolved
    if found is not None:
        if (found.decision, found.args) == (command.decision, command.arguments):
            return Decision()
        raise ApprovalClosed(f"call {command.call_key} was {found.decision} by {found.by or 'somebody'}; an answer stands")
    if state.run is not None and state.run.ending:
        how = "cancelled" if state.run.aborting else "stopped"
        raise ApprovalClosed(f"the run of call {command.call_key} was {how}; nothing of it will be sent")
    if command.arguments is not None:
        _check_changed(state, step, approval, command.arguments, policy)
    return _answered(state, (_resolved(approval, command),), under_way)


def _check_changed(state: Session, step: Step, approval: Approval, arguments: str, policy: Policy) -> None:
    """Arguments that a person changed keep the tool's schema like those of the model, and what the rules forbid stays so."""
    parsed = parse_arguments(arguments)
    name = step.answer.calls[approval.asked.ordinal].name if step.answer is not None else ""
    spec = state.run.tool(name) if state.run is not None else None
    refused = parsed if isinstance(parsed, Refusal) else check_arguments(spec.parameters, parsed) if spec is not None else None
    if refused is not None:
        raise UsageError(f"the changed arguments of call {approval.asked.call_key} cannot be used. {refused.message}")
    match ruling_on(spec, parsed, policy) if spec is not None else None:
        case Deny(why=why) | Undecidable(why=why):
            raise UsageError(f"the changed arguments of call {approval.asked.call_key} are not allowed: {why}")


def expire_approvals(state: Session, now_ms: int, under_way: UnderWay | None) -> Decision:
    """Close every approval whose time is over: silence means no. Empty where none is due."""
    step = state.run.step if state.run is not None else None
    if step is None or (state.run is not None and state.run.ending):
        return Decision()
    due = [approval for approval in step.approvals if _is_due(approval, now_ms)]
    records = tuple(_resolved(one, AnswerApproval(call_key=one.asked.call_key, decision="expired")) for one in due)
    return _answered(state, records, under_way) if records else Decision()


def _is_due(approval: Approval, now_ms: int) -> bool:
    until = approval.asked.expires_at_ms
    return approval.resolved is None and until is not None and now_ms >= until


def _approval(step: Step | None, call_key: str) -> Approval | None:
    return next((one for one in step.approvals if one.asked.call_key == call_key), None) if step is not None else None


def _resolved(approval: Approval, command: AnswerApproval) -> ApprovalResolved:
    asked, decision = approval.asked, command.decision
    changed: ApprovalDecision | None = decision if decision == "approved" else None
    args = command.arguments if changed else None
    return ApprovalResolved(
        run_id=asked.run_id,
        step_id=asked.step_id,
        ordinal=asked.ordinal,
        tool_call_id=asked.tool_call_id,
        call_key=asked.call_key,
        decision=decision,
        args_digest=asked.args_digest if args is None else digest_text(args),
        args=args,
        by=command.by,
        note=command.note,
    )


def _answered(state: Session, records: tuple[ApprovalResolved, ...], under_way: UnderWay | None) -> Decision:
    """The answers, and behind the last one the batch that waited for it.

    Not where nobody carries the run: an intent that nobody acts upon would read as a call in doubt.
    """
    if under_way is None:
        return Decision(records=records)
    after = ahead(state, records)
    run = need(after.run, "an approval belongs to an open run")
    step = need(run.step, "an approval belongs to a step")
    if step.undecided:
        return Decision(records=records)
    return plan_batch(after, run, step, under_way.policy, head=records)
