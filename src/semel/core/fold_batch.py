"""The part of the fold that follows one batch of tool calls, from its plan to its commit marker."""

from collections.abc import Callable
from typing import Any, assert_never

from msgspec.structs import replace

from semel.core.calls import CLOSE_OUTS, Batch, CallState, Step
from semel.core.corruption import Reason, contradiction, same_entry
from semel.core.fold_commit import batch_finished
from semel.core.keys import ids_of_batch
from semel.core.outcomes import Outcome, Settlement
from semel.core.owned import change, put
from semel.core.records import (
    ApprovalRecorded,
    BatchRecord,
    LateResult,
    OneCallRecord,
    PlannedCall,
    ToolBatchFinished,
    ToolBatchStarted,
    ToolCallDeferred,
    ToolCallProviderHeld,
    ToolCallReturned,
    ToolDispatchIntent,
    ToolNoDispatch,
    ToolOutput,
    ToolProcess,
    ToolRerun,
    ToolResult,
)
from semel.core.referring import use_tags
from semel.core.standing import is_sequential
from semel.core.state import OwedCall, Position, Run, Session
from semel.core.texts import SUBMIT_TOOL
from semel.core.values import ToolCall, digest_text

Handler = Callable[[Session, Position, Any], Session]
"""What a record of one type does to the state. Its third argument is a record of that type."""


def batch_handler(record: BatchRecord) -> Handler:
    """What a record of this type does; all of these raise CorruptLog."""
    match record:
        case ToolBatchStarted():
            return _started
        case ToolDispatchIntent():
            return _intent
        case ToolResult():
            return _result
        case ToolBatchFinished():
            return _finished
        case ToolCallReturned():
            return _returned
        case ToolNoDispatch():
            return _no_dispatch
        case ToolProcess():
            return _process
        case ToolRerun():
            return _rerun
        case ToolCallDeferred():
            return _deferred
        case ToolCallProviderHeld():
            return _held
        case ApprovalRecorded():
            return _approval_recorded
    assert_never(record)


def _call(state: Session, logged: Position, record: OneCallRecord) -> CallState:
    """The call of the open batch that the record is about."""
    run, ordinal = state.run, record.ordinal
    step = run.step if run is not None else None
    batch = step.batch if step is not None else None
    if batch is None or batch.finished or batch.batch_id != record.batch_id:
        batch = _open_batch(state, logged, record.batch_id)[2]  # raises
    if 0 <= ordinal < len(batch.calls):
        return batch.calls[ordinal]
    raise contradiction(state, logged, Reason.TOOL_CALL_MISMATCH, f"the batch has no call {ordinal}")


def _open_batch(state: Session, logged: Position, batch_id: str) -> tuple[Run, Step, Batch]:
    run = state.run
    step = run.step if run is not None else None
    batch = step.batch if step is not None else None
    if run is None or step is None or batch is None or batch.batch_id != batch_id:
        raise contradiction(state, logged, Reason.UNKNOWN_OPERATION, f"batch {batch_id} is not the open one")
    if batch.finished:
        raise contradiction(state, logged, Reason.RECORD_AFTER_FINISH, f"batch {batch_id} is finished")
    return run, step, batch


def _went_on(state: Session, results: int = 0) -> None:
    """A pause lasts until the run goes on. So many results came just now."""
    run = state.run
    if run is not None and results:
        put(run, "tool_results", run.tool_results + results)
    if run is not None and run.pause is not None:
        put(run, "pause", None)


def _tagged(state: Session, logged: Position, call: CallState, tag: int | None) -> Session:
    """The tag of the part that the call will be, if its record gave one."""
    if tag is None:
        return state
    put(call, "tag", tag)
    return use_tags(state, logged, (tag,))


def _started(state: Session, logged: Position, record: ToolBatchStarted) -> Session:
    run = state.run
    if run is None or run.run_id != record.run_id:
        known = record.run_id in state.ended
        raise contradiction(
            state, logged, Reason.RECORD_AFTER_FINISH if known else Reason.UNKNOWN_OPERATION, f"run {record.run_id} is not open"
        )
    step = run.step
    calls = run.last_calls if step is not None and step.answer is not None else ()
    if step is None or step.step_id != record.step_id or not calls:
        raise contradiction(state, logged, Reason.INCONSISTENT_STEP, f"step {record.step_id} has no answer with calls")
    if step.batch is not None:
        raise contradiction(state, logged, Reason.DUPLICATE_TOOL_INVOCATION, f"step {record.step_id} has its batch already")
    if step.approvals and step.undecided:
        raise contradiction(state, logged, Reason.INCONSISTENT_STEP, "a batch starts while a person has not answered for a call")
    plan = record.planned_calls
    if not _all_as_issued(plan, calls, step):
        raise contradiction(state, logged, Reason.TOOL_CALL_MISMATCH, "the plan is not of the calls that the model issued")
    batch_id, keys = ids_of_batch(state.lineage, run.run_id, step.step_id, len(plan))
    if record.batch_id != batch_id or [call.call_key for call in plan] != keys:
        raise contradiction(state, logged, Reason.TOOL_CALL_MISMATCH, "the ids of the batch do not derive from its place")
    batch = Batch(batch_id=record.batch_id, step_id=step.step_id, calls=tuple([CallState(planned=call) for call in plan]))
    put(step, "batch", batch)
    return state


def _finished(state: Session, logged: Position, record: ToolBatchFinished) -> Session:
    run, step, batch = _open_batch(state, logged, record.batch_id)
    return batch_finished(state, logged, run, step, batch)


def _all_as_issued(plan: tuple[PlannedCall, ...], calls: tuple[ToolCall, ...], step: Step) -> bool:
    """Whether the planned calls are those that the model issued, or what a person made of them; and, if asked for, approved."""
    if len(plan) != len(calls):
        return False
    for at, planned in enumerate(plan):
        issued = calls[at]
        if planned.ordinal != at or planned.tool_call_id != issued.id or planned.tool != issued.name:
            return False
        approval = step.approval(at) if step.approvals else None
        if approval is None or approval.resolved is None:
            digest = digest_text(step.proposed(at).arguments if step.hooks else issued.arguments)
        elif approval.resolved.decision != "approved" and planned.refused is None:
            return False
        else:
            digest = approval.resolved.args_digest
        if planned.args_digest != digest:
            return False
    return True


def _intent(state: Session, logged: Position, record: ToolDispatchIntent) -> Session:
    call = _call(state, logged, record)
    if call.intent or call.torn_intent or call.terminal:
        raise contradiction(state, logged, Reason.DUPLICATE_TOOL_INVOCATION, f"call {record.ordinal} starts twice")
    planned = call.planned
    if planned.refused or planned.tool_call_id != record.tool_call_id:
        raise contradiction(state, logged, Reason.TOOL_CALL_MISMATCH, f"call {record.ordinal} was not planned like this")
    if record.args_digest != (planned.args_digest if record.args is None else digest_text(record.args)):
        raise contradiction(state, logged, Reason.TOOL_CALL_MISMATCH, f"call {record.ordinal} was planned with other arguments")
    put(call, "torn_intent" if logged.torn else "intent", True)  # noqa: FBT003  the value of a field
    if record.args is not None:
        put(call, "args", record.args)
    _went_on(state)
    return state


def _process(state: Session, logged: Position, record: ToolProcess) -> Session:
    """Informational: it takes the run up from no pause."""
    put(_call(state, logged, record), "process", record)
    return state


def _rerun(state: Session, _logged: Position, record: ToolRerun) -> Session:
    """Informational: a rerun of a call that is not open says nothing."""
    batch = state.run.step.batch if state.run is not None and state.run.step is not None else None
    for call in batch.calls if batch is not None and not batch.finished else ():
        if call.planned.call_key == record.call_key:
            put(call, "reruns", record.n)
    return state


def _returned(state: Session, logged: Position, record: ToolCallReturned) -> Session:
    call = _call(state, logged, record)
    _sent_and_open(state, logged, call, record.call_key, "returns")
    state = _paid(state, call, record)
    change(call, returned=_settlement(record, record.output), output_at=logged.seq, torn_outcome=logged.torn)
    _went_on(state)
    return state


def _deferred(state: Session, logged: Position, record: ToolCallDeferred) -> Session:
    call = _call(state, logged, record)
    _sent_and_open(state, logged, call, record.call_key, "is deferred")
    if record.handle in state.handles:
        raise contradiction(
            state,
            logged,
            Reason.INVALID_DEFERRED_HANDLE,
            f"handle {record.handle!r} belongs to call {state.handles[record.handle]}",
        )
    stand_in = Settlement(outcome=Outcome.COMPLETED, is_error=False, text=record.output.text, parts=record.output.parts)
    change(call, deferred=record, returned=stand_in, output_at=logged.seq, torn_outcome=logged.torn)
    _went_on(state)
    return _owed(state, logged, call, record)


def _held(state: Session, logged: Position, record: ToolCallProviderHeld) -> Session:
    call = _call(state, logged, record)
    if call.held is not None:
        raise contradiction(state, logged, Reason.DUPLICATE_TOOL_INVOCATION, f"call {record.ordinal} is held twice")
    _sent_and_open(state, logged, call, record.call_key, "is held")
    run, _, batch = _open_batch(state, logged, record.batch_id)
    if record.sequential != is_sequential(run, batch):
        raise contradiction(state, logged, Reason.TOOL_CALL_MISMATCH, f"call {record.ordinal} is of a batch that runs otherwise")
    change(call, held=record, held_at=logged.seq)
    _went_on(state)
    return _owed(state, logged, call, record)


def _sent_and_open(state: Session, logged: Position, call: CallState, call_key: str, what: str) -> None:
    """Only a call that was sent under this key and has no outcome yet can come back in any way."""
    ordinal = call.planned.ordinal
    if call.returned or call.terminal:
        raise contradiction(state, logged, Reason.DUPLICATE_TOOL_INVOCATION, f"call {ordinal} {what} but has its outcome already")
    if not call.intent or call.planned.call_key != call_key:
        raise contradiction(state, logged, Reason.TOOL_CALL_MISMATCH, f"call {ordinal} {what} but was not sent under this key")


def _owed(state: Session, logged: Position, call: CallState, record: ToolCallDeferred | ToolCallProviderHeld) -> Session:
    run, step, _ = _open_batch(state, logged, record.batch_id)
    handle = record.handle if isinstance(record, ToolCallDeferred) else None
    owed = OwedCall(
        call_key=record.call_key,
        tool=call.planned.tool,
        arguments=step.arguments(record.ordinal),
        run_id=run.run_id,
        since_ms=logged.at_ms,
        handle=handle,
    )
    handles = state.handles if handle is None else state.handles.plus(handle, record.call_key)
    table = state.owed if record.call_key in state.owed else state.owed.plus(record.call_key, owed)
    return replace(state, owed=table, handles=handles)


def _paid(state: Session, call: CallState, record: ToolResult | ToolCallReturned) -> Session:
    """The result that a held call owed has come; one that is closed out still owes it."""
    if call.held is None or record.outcome is not Outcome.COMPLETED or record.output is None:
        return state
    key = call.planned.call_key
    if key in state.late:
        return state  # it came while nobody carried the run
    return replace(state, late=state.late.plus(key, LateResult(call_key=key, output=record.output, is_error=record.is_error)))


def _settlement(record: ToolCallReturned | ToolResult, output: ToolOutput) -> Settlement:
    return Settlement(
        outcome=record.outcome,
        is_error=record.is_error,
        text=output.text,
        reason=record.reason,
        terminate=record.terminate,
        parts=output.parts,
    )


def _no_dispatch(state: Session, logged: Position, record: ToolNoDispatch) -> Session:
    call = _call(state, logged, record)
    if call.terminal:
        raise contradiction(state, logged, Reason.DUPLICATE_TOOL_INVOCATION, f"call {record.ordinal} has its terminal already")
    if call.intent or call.planned.tool_call_id != record.tool_call_id:
        raise contradiction(state, logged, Reason.TOOL_CALL_MISMATCH, f"call {record.ordinal} was sent, or is another")
    change(call, refusal=record.message, refusal_reason=record.reason, ended_at=logged.seq)
    _went_on(state)
    return _tagged(state, logged, call, record.tag)


def _approval_recorded(state: Session, logged: Position, record: ApprovalRecorded) -> Session:
    """The decision where its batch has it; with an output it closes the call, which then has no other terminal (CON12)."""
    call = _call(state, logged, record)
    _, step, _ = _open_batch(state, logged, record.batch_id)
    approval = step.approval(record.ordinal)
    answer = approval.resolved if approval is not None else None
    if answer is None or answer.decision != record.decision or call.planned.call_key != record.call_key:
        raise contradiction(state, logged, Reason.TOOL_CALL_MISMATCH, f"call {record.ordinal} was not decided like this")
    if record.output is None:
        _went_on(state)
        return _tagged(state, logged, call, record.tag)
    if call.terminal:
        raise contradiction(state, logged, Reason.DUPLICATE_TOOL_INVOCATION, f"call {record.ordinal} has its terminal already")
    if call.intent or record.decision == "approved":
        raise contradiction(state, logged, Reason.TOOL_CALL_MISMATCH, f"call {record.ordinal} was approved, and is closed by it")
    change(call, refusal=record.output.text, refusal_reason=record.decision, ended_at=logged.seq)
    _went_on(state)
    return _tagged(state, logged, call, record.tag)


def _result(state: Session, logged: Position, record: ToolResult) -> Session:
    call, ordinal = _call(state, logged, record), record.ordinal
    if call.result is not None or call.refusal is not None:
        raise contradiction(state, logged, Reason.DUPLICATE_TOOL_INVOCATION, f"call {ordinal} has its terminal already")
    planned, returned = call.planned, call.returned
    if planned.refused or (ordinal and _open_before(state, logged, record)):
        raise contradiction(state, logged, Reason.TOOL_CALL_MISMATCH, f"call {ordinal} is refused, or before its turn")
    # Of a log that was repaired or restored the rest of a torn write may be what was lost, so that its call may have been sent.
    sent = call.intent or planned.tool == SUBMIT_TOOL or (call.torn_intent and record.outcome is Outcome.UNKNOWN)
    if planned.tool_call_id != record.tool_call_id or not (sent or record.outcome in CLOSE_OUTS):
        raise contradiction(state, logged, Reason.TOOL_CALL_MISMATCH, f"call {ordinal} was never sent, or is another")
    if call.held is not None and record.outcome is Outcome.UNKNOWN:
        raise contradiction(state, logged, Reason.TOOL_CALL_MISMATCH, f"call {ordinal} is held, which is not unknown (R38)")
    if returned is None and record.output is not None:
        put(call, "result", _settlement(record, record.output))
        if logged.torn:
            put(call, "torn_outcome", True)  # noqa: FBT003  the value of a field
    else:
        put(call, "result", _as_returned(state, logged, call, record))
        put(call, "output_at", call.output_at if record.output is None else 0)
    put(call, "ended_at", logged.seq)
    _went_on(state, results=1)
    if record.tag is not None:
        state = _tagged(state, logged, call, record.tag)
    return state if call.held is None else _paid(state, call, record)


def _open_before(state: Session, logged: Position, record: ToolResult) -> bool:
    """Whether a call before this one has no terminal yet."""
    for earlier in _open_batch(state, logged, record.batch_id)[2].calls[: record.ordinal]:
        if earlier.result is None and earlier.refusal is None:
            return True
    return False


def _as_returned(state: Session, logged: Position, call: CallState, record: ToolResult) -> Settlement:
    """What became of a call whose outcome an earlier record brought, which this one may repeat and never change."""
    returned = call.returned
    if returned is None:
        raise contradiction(
            state, logged, Reason.PROVISIONED_ENTRY_MISMATCH, f"call {record.ordinal} names a return that is not there"
        )
    declared = ToolOutput(text=returned.text, parts=returned.parts)
    found = declared if record.output is None else record.output
    settled = _settlement(record, declared)
    if settled != returned or not same_entry(declared, found):
        raise contradiction(
            state, logged, Reason.PROVISIONED_ENTRY_MISMATCH, f"call {record.ordinal} returned something else before"
        )
    return settled
