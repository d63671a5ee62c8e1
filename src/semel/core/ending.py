"""How a run is closed where nothing is under way: its terminal alone, what it waits for, a batch that never began (P25, P28)."""

from msgspec.structs import replace

from semel.core.batch_records import close_turn, terminals
from semel.core.calls import Approval, Batch, CallState, Step
from semel.core.effects import Decision
from semel.core.keys import batch_id_of, call_key_of
from semel.core.outcomes import RefusalReason, refuse
from semel.core.plan import declined, planned_call
from semel.core.records import (
    ApprovalResolved,
    PlannedCall,
    Record,
    RunFinished,
    ToolBatchStarted,
)
from semel.core.settle import end_of, settle
from semel.core.state import Run, Session
from semel.core.turn import asked_end
from semel.errors import must, need


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
    batch = new_batch(state, run, step, tuple(_planned(state, run, step, at) for at in range(len(calls))))
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


def _planned(state: Session, run: Run, step: Step, ordinal: int) -> PlannedCall:
    approval = step.approval(ordinal)
    answer = approval.resolved if approval is not None else None
    refusal = declined(answer) if answer is not None and answer.decision != "approved" else refuse(RefusalReason.RUN_CLOSED)
    key = call_key_of(state.lineage, run.run_id, step.step_id, ordinal)
    return planned_call(step.proposed(ordinal), ordinal, key, approval, refusal)


def seal(state: Session) -> Decision:
    """What follows when nothing is under way and nothing came back.

    Barrier 2 of an interrupted run: its terminal, alone (P28). For a run that is to end, the close-out of what it waits for; no
    boundary of a step comes before a held result or an approval, so both ways of cancelling close at once (R44). For one that
    waits otherwise, nothing.
    """
    run = need(state.run, "only an open run is sealed")
    step = need(run.step, "only a run with a step is sealed")
    end = asked_end(run, run.usage)
    if step.answer is None:
        return Decision(records=(end,)) if run.ending else Decision()
    if step.answer.calls and step.batch is None:
        return close_unstarted(state, run, step, end) if run.ending else Decision()
    if step.batch is not None and not step.batch.finished:
        return settle(state, run, step.batch, closing=True) if run.ending else Decision()
    must(step.finished and step.batch is not None and bool(step.batch.unknown), "only an unknown call leaves a run like this")
    return Decision(records=(end_of(run, need(step.batch, "an unknown call is of a batch")),))
