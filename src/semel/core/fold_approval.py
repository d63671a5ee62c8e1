"""The part of the fold that follows approvals. They stand between an answer and its batch, so they name step and ordinal."""

from typing import assert_never

from msgspec.structs import replace

from semel.core.calls import Approval, Step
from semel.core.corruption import Reason, contradiction
from semel.core.keys import call_key_of
from semel.core.records import ApprovalRecord, ApprovalRequested, ApprovalResolved
from semel.core.referring import open_run, with_step
from semel.core.state import Position, Session
from semel.core.values import digest_text


def apply_to_approval(state: Session, logged: Position, record: ApprovalRecord) -> Session:
    """The state after one record of an approval. Raises CorruptLog."""
    step = _answered(state, logged, record)
    match record:
        case ApprovalRequested():
            approvals = _asked(state, logged, step, record)
        case ApprovalResolved():
            approvals = _resolved(state, logged, step, record)
            state = replace(state, decisions=state.decisions + 1)
        case _:
            assert_never(record)
    return with_step(state, replace(step, approvals=approvals))


def _answered(state: Session, logged: Position, record: ApprovalRecord) -> Step:
    """The open step, whose answer holds the call and whose batch has not begun."""
    run = open_run(state, logged, record.run_id)
    step = run.step
    if step is None or step.step_id != record.step_id or step.answer is None or step.batch is not None:
        raise contradiction(state, logged, Reason.INCONSISTENT_STEP, f"step {record.step_id} has no calls that wait for approval")
    calls = step.answer.calls
    key = call_key_of(state.lineage, run.run_id, step.step_id, record.ordinal)
    known = 0 <= record.ordinal < len(calls) and calls[record.ordinal].id == record.tool_call_id
    if not known or record.call_key != key:
        raise contradiction(state, logged, Reason.TOOL_CALL_MISMATCH, f"the answer has no such call {record.ordinal}")
    return step


def _asked(state: Session, logged: Position, step: Step, record: ApprovalRequested) -> tuple[Approval, ...]:
    if step.approval(record.ordinal) is not None:
        raise contradiction(
            state, logged, Reason.DUPLICATE_TOOL_INVOCATION, f"a person is asked twice about call {record.ordinal}"
        )
    if record.args_digest != digest_text(step.proposed(record.ordinal).arguments):
        raise contradiction(
            state, logged, Reason.TOOL_CALL_MISMATCH, f"a person is asked about other arguments of call {record.ordinal}"
        )
    return (*step.approvals, Approval(asked=record, at=logged.seq))


def _resolved(state: Session, logged: Position, step: Step, record: ApprovalResolved) -> tuple[Approval, ...]:
    approval = step.approval(record.ordinal)
    if approval is None:
        raise contradiction(state, logged, Reason.UNKNOWN_OPERATION, f"nobody was asked about call {record.ordinal}")
    if approval.resolved is not None:
        raise contradiction(state, logged, Reason.DUPLICATE_TOOL_INVOCATION, f"call {record.ordinal} is decided twice")
    exact = approval.asked.args_digest if record.args is None else digest_text(record.args)
    if record.args_digest != exact:
        raise contradiction(
            state, logged, Reason.TOOL_CALL_MISMATCH, f"the answer is about other arguments of call {record.ordinal}"
        )
    answered = replace(approval, resolved=record)
    return tuple(answered if other is approval else other for other in step.approvals)
