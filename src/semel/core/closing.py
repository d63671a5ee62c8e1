"""A batch that is closed before it began: its answer is durable, and the run ends without sending any of its calls (P25)."""

from msgspec.structs import replace

from semel.core.batch_records import close_turn, terminals
from semel.core.calls import Approval, Batch, CallState, Step
from semel.core.effects import Decision
from semel.core.keys import batch_id_of, call_key_of
from semel.core.outcomes import RefusalReason, refuse
from semel.core.plan import declined
from semel.core.records import (
    ApprovalResolved,
    PlannedCall,
    Record,
    Refused,
    RunFinished,
    ToolBatchStarted,
)
from semel.core.state import Run, Session
from semel.core.values import ToolCall, digest_text


def new_batch(state: Session, run: Run, step: Step, planned: tuple[PlannedCall, ...]) -> Batch:
    """The batch of a step as it begins."""
    batch_id = batch_id_of(state.lineage, run.run_id, step.step_id)
    return Batch(batch_id=batch_id, step_id=step.step_id, calls=tuple(CallState(planned=call) for call in planned))


def batch_started(run: Run, batch: Batch) -> ToolBatchStarted:
    """The durable plan."""
    calls = tuple(call.planned for call in batch.calls)
    return ToolBatchStarted(run_id=run.run_id, batch_id=batch.batch_id, step_id=batch.step_id, planned_calls=calls)


def close_unstarted(state: Session, run: Run, step: Step, end: RunFinished, *, head: tuple[Record, ...] = ()) -> Decision:
    """Every call planned as refused, with its terminal, the markers, and the end of the run: one write.

    Each is planned as refused, so that no prefix of the write reads as a call that may still be dispatched. Open approvals are
    closed.
    """
    closed = tuple(_cancelled(approval) for approval in step.approvals if approval.resolved is None)
    step = replace(step, approvals=tuple(_answered(approval, closed) for approval in step.approvals))
    run = replace(run, step=step)
    calls = step.answer.calls if step.answer is not None else ()
    batch = new_batch(state, run, step, tuple(_planned(state, run, step, at, call) for at, call in enumerate(calls)))
    records = (batch_started(run, batch), *terminals(run, batch, {}), *close_turn(run, batch), end)
    return Decision(records=(*head, *closed, *records))


def _cancelled(approval: Approval) -> ApprovalResolved:
    asked = approval.asked
    return ApprovalResolved(
        run_id=asked.run_id,
        step_id=asked.step_id,
        ordinal=asked.ordinal,
        tool_call_id=asked.tool_call_id,
        call_key=asked.call_key,
        decision="cancelled",
        args_digest=asked.args_digest,
    )


def _answered(approval: Approval, closed: tuple[ApprovalResolved, ...]) -> Approval:
    own = next((record for record in closed if record.ordinal == approval.asked.ordinal), None)
    return approval if own is None else replace(approval, resolved=own)


def _planned(state: Session, run: Run, step: Step, ordinal: int, call: ToolCall) -> PlannedCall:
    approval = step.approval(ordinal)
    answer = approval.resolved if approval is not None else None
    refusal = declined(answer) if answer is not None and answer.decision != "approved" else refuse(RefusalReason.RUN_CLOSED)
    return PlannedCall(
        ordinal=ordinal,
        tool_call_id=call.id,
        call_key=call_key_of(state.lineage, run.run_id, step.step_id, ordinal),
        tool=call.name,
        args_digest=digest_text(call.arguments) if answer is None else answer.args_digest,
        refused=Refused(reason=str(refusal.reason), message=refusal.message),
    )
