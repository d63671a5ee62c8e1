"""The part of the fold that follows one batch of tool calls, from its plan to its commit marker."""

from typing import NamedTuple, assert_never

from msgspec.structs import replace

from semel.core.calls import CLOSE_OUTS, Batch, CallState, Step
from semel.core.corruption import Reason, contradiction, same_entry
from semel.core.fold_commit import batch_finished
from semel.core.keys import batch_id_of, call_key_of
from semel.core.outcomes import Outcome, Settlement
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
from semel.core.state import Logged, OwedCall, Run, Session
from semel.core.texts import SUBMIT_TOOL
from semel.core.values import ToolCall, digest_text


class Place(NamedTuple):
    """Where a record of a call belongs: the open run, its step, and the step's batch."""

    run: Run
    step: Step
    batch: Batch


def apply_to_batch(state: Session, logged: Logged, record: BatchRecord) -> Session:
    """The state after one record of a batch. Raises CorruptLog."""
    match record:
        case ToolBatchStarted():
            return _started(state, logged, record)
        case ToolBatchFinished():
            run, step, batch = _open_batch(state, logged, record.batch_id)
            return batch_finished(state, logged, run, step, batch)
        case ToolRerun():
            return _rerun(state, record)
    run, step, batch = _open_batch(state, logged, record.batch_id)
    call = _applied(state, logged, Place(run, step, batch), record)
    if logged.torn and call.settled is not None and batch.calls[record.ordinal].settled is None:
        call = replace(call, torn_outcome=True)
    if isinstance(record, ToolResult):
        run = replace(run, tool_results=run.tool_results + 1)
    if run.pause is not None and not isinstance(record, ToolProcess):
        run = replace(run, pause=None)  # a pause lasts until the run goes on
    tag = getattr(record, "tag", None)
    if tag is not None:
        state, call = use_tags(state, logged, (tag,)), replace(call, tag=tag)
    if isinstance(record, ToolResult | ToolCallReturned) and call.held is not None:
        state = _paid(state, call, record)
    if isinstance(record, ToolCallDeferred | ToolCallProviderHeld):
        state = _owed(state, logged, run, step, record)
    return _with_batch(state, run, step, batch.with_call(call))


def _applied(state: Session, logged: Logged, place: Place, record: OneCallRecord) -> CallState:
    """The call that the record is about, after it."""
    call = _call(state, logged, place.batch, record.ordinal)
    match record:
        case ToolDispatchIntent():
            return _intent(state, logged, call, record)
        case ToolResult():
            return _result(state, logged, place.batch, call, record)
        case ToolCallReturned():
            return _returned(state, logged, call, record)
        case ToolNoDispatch():
            return _no_dispatch(state, logged, call, record)
        case ToolProcess():
            return replace(call, process=record)
        case ToolCallDeferred():
            return _deferred(state, logged, call, record)
        case ToolCallProviderHeld():
            return _held(state, logged, place, call, record)
        case ApprovalRecorded():
            return _approval_recorded(state, logged, place, call, record)
    assert_never(record)


def calls_of(step: Step) -> tuple[ToolCall, ...]:
    """The calls of a step's answer, in issue order."""
    return step.answer.calls if step.answer else ()


def _open_batch(state: Session, logged: Logged, batch_id: str) -> tuple[Run, Step, Batch]:
    run = state.run
    batch = run.step.batch if run is not None and run.step is not None else None
    if run is None or run.step is None or batch is None or batch.batch_id != batch_id:
        raise contradiction(state, logged, Reason.UNKNOWN_OPERATION, f"batch {batch_id} is not the open one")
    if batch.finished:
        raise contradiction(state, logged, Reason.RECORD_AFTER_FINISH, f"batch {batch_id} is finished")
    return run, run.step, batch


def _call(state: Session, logged: Logged, batch: Batch, ordinal: int) -> CallState:
    if not 0 <= ordinal < len(batch.calls):
        raise contradiction(state, logged, Reason.TOOL_CALL_MISMATCH, f"the batch has no call {ordinal}")
    return batch.calls[ordinal]


def _with_batch(state: Session, run: Run, step: Step, batch: Batch) -> Session:
    return replace(state, run=replace(run, step=replace(step, batch=batch)))


def _started(state: Session, logged: Logged, record: ToolBatchStarted) -> Session:
    run = state.run
    if run is None or run.run_id != record.run_id:
        known = record.run_id in state.ended
        raise contradiction(
            state, logged, Reason.RECORD_AFTER_FINISH if known else Reason.UNKNOWN_OPERATION, f"run {record.run_id} is not open"
        )
    step = run.step
    if step is None or step.step_id != record.step_id or not calls_of(step):
        raise contradiction(state, logged, Reason.INCONSISTENT_STEP, f"step {record.step_id} has no answer with calls")
    if step.batch is not None:
        raise contradiction(state, logged, Reason.DUPLICATE_TOOL_INVOCATION, f"step {record.step_id} has its batch already")
    if step.undecided:
        raise contradiction(state, logged, Reason.INCONSISTENT_STEP, "a batch starts while a person has not answered for a call")
    plan = record.planned_calls
    if len(plan) != len(calls_of(step)) or not all(map(_as_issued, plan, calls_of(step), range(len(plan)), [step] * len(plan))):
        raise contradiction(state, logged, Reason.TOOL_CALL_MISMATCH, "the plan is not of the calls that the model issued")
    derived = [call_key_of(state.lineage, run.run_id, step.step_id, call.ordinal) for call in plan]
    if record.batch_id != batch_id_of(state.lineage, run.run_id, step.step_id) or [call.call_key for call in plan] != derived:
        raise contradiction(state, logged, Reason.TOOL_CALL_MISMATCH, "the ids of the batch do not derive from its place")
    batch = Batch(batch_id=record.batch_id, step_id=step.step_id, calls=tuple(CallState(planned=call) for call in plan))
    return _with_batch(state, run, step, batch)


def _as_issued(planned: PlannedCall, issued: ToolCall, ordinal: int, step: Step) -> bool:
    """Whether a planned call is the one that the model issued there, or what a person made of it; and, if asked for, approved."""
    approval = step.approval(ordinal)
    answer = approval.resolved if approval is not None else None
    if answer is not None and answer.decision != "approved" and planned.refused is None:
        return False
    digest = digest_text(step.proposed(ordinal).arguments) if answer is None else answer.args_digest
    return (planned.ordinal, planned.tool_call_id, planned.tool) == (ordinal, issued.id, issued.name) and (
        planned.args_digest == digest
    )


def _intent(state: Session, logged: Logged, call: CallState, record: ToolDispatchIntent) -> CallState:
    if call.intent or call.torn_intent or call.terminal:
        raise contradiction(state, logged, Reason.DUPLICATE_TOOL_INVOCATION, f"call {record.ordinal} starts twice")
    planned = call.planned
    if planned.refused or planned.tool_call_id != record.tool_call_id:
        raise contradiction(state, logged, Reason.TOOL_CALL_MISMATCH, f"call {record.ordinal} was not planned like this")
    if record.args_digest != (planned.args_digest if record.args is None else digest_text(record.args)):
        raise contradiction(state, logged, Reason.TOOL_CALL_MISMATCH, f"call {record.ordinal} was planned with other arguments")
    call = replace(call, args=record.args)
    return replace(call, torn_intent=True) if logged.torn else replace(call, intent=True)


def _rerun(state: Session, record: ToolRerun) -> Session:
    """Informational: a rerun of a call that is not open says nothing."""
    run = state.run
    batch = run.step.batch if run is not None and run.step is not None else None
    if run is None or run.step is None or batch is None:
        return state
    call = next((call for call in batch.calls if call.planned.call_key == record.call_key), None)
    if call is None or batch.finished:
        return state
    return _with_batch(state, run, run.step, batch.with_call(replace(call, reruns=record.n)))


def _returned(state: Session, logged: Logged, call: CallState, record: ToolCallReturned) -> CallState:
    _sent_and_open(state, logged, call, record.call_key, "returns")
    return replace(call, returned=_settlement(record, record.output))


def _deferred(state: Session, logged: Logged, call: CallState, record: ToolCallDeferred) -> CallState:
    _sent_and_open(state, logged, call, record.call_key, "is deferred")
    if record.handle in state.handles:
        raise contradiction(
            state,
            logged,
            Reason.INVALID_DEFERRED_HANDLE,
            f"handle {record.handle!r} belongs to call {state.handles[record.handle]}",
        )
    stand_in = Settlement(outcome=Outcome.COMPLETED, is_error=False, text=record.output.text, parts=record.output.parts)
    return replace(call, deferred=record, returned=stand_in)


def _held(state: Session, logged: Logged, place: Place, call: CallState, record: ToolCallProviderHeld) -> CallState:
    if call.held is not None:
        raise contradiction(state, logged, Reason.DUPLICATE_TOOL_INVOCATION, f"call {record.ordinal} is held twice")
    _sent_and_open(state, logged, call, record.call_key, "is held")
    if record.sequential != is_sequential(place.run, place.batch):
        raise contradiction(state, logged, Reason.TOOL_CALL_MISMATCH, f"call {record.ordinal} is of a batch that runs otherwise")
    return replace(call, held=record)


def _sent_and_open(state: Session, logged: Logged, call: CallState, call_key: str, what: str) -> None:
    """Only a call that was sent under this key and has no outcome yet can come back in any way."""
    ordinal = call.planned.ordinal
    if call.returned or call.terminal:
        raise contradiction(state, logged, Reason.DUPLICATE_TOOL_INVOCATION, f"call {ordinal} {what} but has its outcome already")
    if not call.intent or call.planned.call_key != call_key:
        raise contradiction(state, logged, Reason.TOOL_CALL_MISMATCH, f"call {ordinal} {what} but was not sent under this key")


def _owed(state: Session, logged: Logged, run: Run, step: Step, record: ToolCallDeferred | ToolCallProviderHeld) -> Session:
    handle = record.handle if isinstance(record, ToolCallDeferred) else None
    owed = OwedCall(
        call_key=record.call_key,
        tool=calls_of(step)[record.ordinal].name,
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
    if record.outcome is not Outcome.COMPLETED or record.output is None:
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


def _no_dispatch(state: Session, logged: Logged, call: CallState, record: ToolNoDispatch) -> CallState:
    if call.terminal:
        raise contradiction(state, logged, Reason.DUPLICATE_TOOL_INVOCATION, f"call {record.ordinal} has its terminal already")
    if call.intent or call.planned.tool_call_id != record.tool_call_id:
        raise contradiction(state, logged, Reason.TOOL_CALL_MISMATCH, f"call {record.ordinal} was sent, or is another")
    return replace(call, refusal=record.message, refusal_reason=record.reason)


def _approval_recorded(state: Session, logged: Logged, place: Place, call: CallState, record: ApprovalRecorded) -> CallState:
    """The decision where its batch has it; with an output it closes the call, which then has no other terminal (CON12)."""
    approval = place.step.approval(record.ordinal)
    answer = approval.resolved if approval is not None else None
    if answer is None or answer.decision != record.decision or call.planned.call_key != record.call_key:
        raise contradiction(state, logged, Reason.TOOL_CALL_MISMATCH, f"call {record.ordinal} was not decided like this")
    if record.output is None:
        return call
    if call.terminal:
        raise contradiction(state, logged, Reason.DUPLICATE_TOOL_INVOCATION, f"call {record.ordinal} has its terminal already")
    if call.intent or record.decision == "approved":
        raise contradiction(state, logged, Reason.TOOL_CALL_MISMATCH, f"call {record.ordinal} was approved, and is closed by it")
    return replace(call, refusal=record.output.text, refusal_reason=record.decision)


def _result(state: Session, logged: Logged, batch: Batch, call: CallState, record: ToolResult) -> CallState:
    if call.terminal:
        raise contradiction(state, logged, Reason.DUPLICATE_TOOL_INVOCATION, f"call {record.ordinal} has its terminal already")
    if call.planned.refused or any(not earlier.terminal for earlier in batch.calls[: record.ordinal]):
        raise contradiction(state, logged, Reason.TOOL_CALL_MISMATCH, f"call {record.ordinal} is refused, or before its turn")
    sent = call.intent or call.planned.tool == SUBMIT_TOOL
    if call.planned.tool_call_id != record.tool_call_id or not (sent or record.outcome in CLOSE_OUTS):
        raise contradiction(state, logged, Reason.TOOL_CALL_MISMATCH, f"call {record.ordinal} was never sent, or is another")
    if call.held is not None and record.outcome is Outcome.UNKNOWN:
        raise contradiction(
            state, logged, Reason.TOOL_CALL_MISMATCH, f"call {record.ordinal} is held, which is not unknown (R38)"
        )
    if call.returned is None:
        if record.output is None:
            raise contradiction(
                state, logged, Reason.PROVISIONED_ENTRY_MISMATCH, f"call {record.ordinal} names a return that is not there"
            )
        return replace(call, result=_settlement(record, record.output))
    declared = ToolOutput(text=call.returned.text, parts=call.returned.parts)
    found = declared if record.output is None else record.output
    settled = _settlement(record, declared)
    if settled != call.returned or not same_entry(declared, found):
        raise contradiction(
            state, logged, Reason.PROVISIONED_ENTRY_MISMATCH, f"call {record.ordinal} returned something else before"
        )
    return replace(call, result=settled)
