"""The part of the fold that follows one batch of tool calls, from its plan to its commit marker."""

from typing import assert_never

from msgspec.structs import replace

from semel.core.corruption import Reason, contradiction
from semel.core.keys import batch_id_of, call_key_of
from semel.core.outcomes import Outcome, Settlement
from semel.core.records import (
    ToolBatchFinished,
    ToolBatchStarted,
    ToolCallReturned,
    ToolDispatchIntent,
    ToolNoDispatch,
    ToolOutput,
    ToolProcess,
    ToolRerun,
    ToolResult,
)
from semel.core.state import Batch, CallState, Logged, Run, Session, Step, UnknownCall
from semel.core.texts import SUBMIT_TOOL
from semel.core.values import ToolCall, ToolMessage

BatchRecord = (
    ToolBatchStarted
    | ToolDispatchIntent
    | ToolProcess
    | ToolRerun
    | ToolCallReturned
    | ToolNoDispatch
    | ToolResult
    | ToolBatchFinished
)


def apply_to_batch(state: Session, logged: Logged, record: BatchRecord) -> Session:
    """The state after one record of a batch. Raises CorruptLog."""
    match record:
        case ToolBatchStarted():
            return _started(state, logged, record)
        case ToolBatchFinished():
            return _finished(state, logged, record)
        case ToolRerun():
            return _rerun(state, record)
    run, step, batch = _open_batch(state, logged, record.batch_id)
    call = _call(state, logged, batch, record.ordinal)
    match record:
        case ToolDispatchIntent():
            call = _intent(state, logged, call, record)
        case ToolProcess():
            call = replace(call, process=record)
        case ToolCallReturned():
            call = _returned(state, logged, call, record)
        case ToolNoDispatch():
            call = _no_dispatch(state, logged, call, record)
        case ToolResult():
            call = _result(state, logged, batch, call, record)
            run = replace(run, tool_results=run.tool_results + 1)
        case _:
            assert_never(record)
    return _with_call(state, run, step, batch, call)


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


def _with_call(state: Session, run: Run, step: Step, batch: Batch, call: CallState) -> Session:
    at = call.planned.ordinal
    batch = replace(batch, calls=(*batch.calls[:at], call, *batch.calls[at + 1 :]))
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
    issued = calls_of(step)
    plan = record.planned_calls
    if [(call.ordinal, call.tool_call_id, call.tool) for call in plan] != [(i, c.id, c.name) for i, c in enumerate(issued)]:
        raise contradiction(state, logged, Reason.TOOL_CALL_MISMATCH, "the plan is not of the calls that the model issued")
    derived = [call_key_of(state.lineage, run.run_id, step.step_id, call.ordinal) for call in plan]
    if record.batch_id != batch_id_of(state.lineage, run.run_id, step.step_id) or [call.call_key for call in plan] != derived:
        raise contradiction(state, logged, Reason.TOOL_CALL_MISMATCH, "the ids of the batch do not derive from its place")
    batch = Batch(batch_id=record.batch_id, step_id=step.step_id, calls=tuple(CallState(planned=call) for call in plan))
    return replace(state, run=replace(run, step=replace(step, batch=batch)))


def _intent(state: Session, logged: Logged, call: CallState, record: ToolDispatchIntent) -> CallState:
    if call.intent or call.torn_intent or call.terminal:
        raise contradiction(state, logged, Reason.DUPLICATE_TOOL_INVOCATION, f"call {record.ordinal} starts twice")
    planned = call.planned
    if planned.refused or (planned.tool_call_id, planned.args_digest) != (record.tool_call_id, record.args_digest):
        raise contradiction(state, logged, Reason.TOOL_CALL_MISMATCH, f"call {record.ordinal} was not planned like this")
    return replace(call, torn_intent=True) if logged.torn else replace(call, intent=True)


def _rerun(state: Session, record: ToolRerun) -> Session:
    """Informational: a rerun of a call that is not open says nothing."""
    run = state.run
    batch = run.step.batch if run is not None and run.step is not None else None
    if run is None or run.step is None or batch is None:
        return state
    call = next((call for call in batch.calls if call.planned.call_key == record.call_key), None)
    return state if call is None else _with_call(state, run, run.step, batch, replace(call, reruns=record.n))


def _returned(state: Session, logged: Logged, call: CallState, record: ToolCallReturned) -> CallState:
    if call.returned or call.terminal:
        raise contradiction(state, logged, Reason.DUPLICATE_TOOL_INVOCATION, f"call {record.ordinal} returns twice")
    if not call.intent or call.planned.call_key != record.call_key:
        raise contradiction(state, logged, Reason.TOOL_CALL_MISMATCH, f"call {record.ordinal} was not sent under this key")
    return replace(call, returned=_settlement(record, record.output))


def _settlement(record: ToolCallReturned | ToolResult, output: ToolOutput) -> Settlement:
    return Settlement(
        outcome=record.outcome,
        is_error=record.is_error,
        text=output.text,
        reason=record.reason,
        terminate=record.terminate,
    )


def _no_dispatch(state: Session, logged: Logged, call: CallState, record: ToolNoDispatch) -> CallState:
    if call.terminal:
        raise contradiction(state, logged, Reason.DUPLICATE_TOOL_INVOCATION, f"call {record.ordinal} has its terminal already")
    if call.intent or call.planned.tool_call_id != record.tool_call_id:
        raise contradiction(state, logged, Reason.TOOL_CALL_MISMATCH, f"call {record.ordinal} was sent, or is another")
    return replace(call, refusal=record.message)


def _result(state: Session, logged: Logged, batch: Batch, call: CallState, record: ToolResult) -> CallState:
    if call.terminal:
        raise contradiction(state, logged, Reason.DUPLICATE_TOOL_INVOCATION, f"call {record.ordinal} has its terminal already")
    if call.planned.refused or any(not earlier.terminal for earlier in batch.calls[: record.ordinal]):
        raise contradiction(state, logged, Reason.TOOL_CALL_MISMATCH, f"call {record.ordinal} is refused, or before its turn")
    sent = call.intent or call.planned.tool == SUBMIT_TOOL
    if call.planned.tool_call_id != record.tool_call_id or not (
        sent or record.outcome in (Outcome.INTERRUPTED, Outcome.MAX_STEPS)
    ):
        raise contradiction(state, logged, Reason.TOOL_CALL_MISMATCH, f"call {record.ordinal} was never sent, or is another")
    if call.returned is None:
        if record.output is None:
            raise contradiction(
                state, logged, Reason.PROVISIONED_ENTRY_MISMATCH, f"call {record.ordinal} names a return that is not there"
            )
        return replace(call, result=_settlement(record, record.output))
    settled = _settlement(record, record.output or ToolOutput(text=call.returned.text))
    if settled != call.returned:
        raise contradiction(
            state, logged, Reason.PROVISIONED_ENTRY_MISMATCH, f"call {record.ordinal} returned something else before"
        )
    return replace(call, result=settled)


def _finished(state: Session, logged: Logged, record: ToolBatchFinished) -> Session:
    run, step, batch = _open_batch(state, logged, record.batch_id)
    if not all(call.terminal for call in batch.calls):
        raise contradiction(state, logged, Reason.INCONSISTENT_STEP, "a batch is finished while a call has no terminal")
    if step.answer is None:
        raise contradiction(state, logged, Reason.INCONSISTENT_STEP, "a batch is finished without its answer")
    first = len(state.transcript) + 1
    results = [tool_message(call) for call in batch.calls]
    unknown = tuple(
        UnknownCall(
            call_key=call.planned.call_key,
            tool=call.planned.tool,
            arguments=step.answer.calls[call.planned.ordinal].arguments,
            run_id=run.run_id,
            step_id=step.step_id,
            ordinal=call.planned.ordinal,
            tool_call_id=call.planned.tool_call_id,
            since_ms=logged.at_ms,
            at=first + call.planned.ordinal,
        )
        for call in batch.unknown
    )
    submitted = next((call for call in batch.calls if call.planned.tool == SUBMIT_TOOL and accepted(call)), None)
    missed = submitted is None and any(call.planned.tool == SUBMIT_TOOL for call in batch.calls)
    output = step.answer.calls[submitted.planned.ordinal].arguments if submitted else run.output
    if run.config.output_schema is None and all(call.result is not None and call.result.terminate for call in batch.calls):
        output = results[-1].text
    run = replace(
        run,
        step=replace(step, batch=replace(batch, finished=True)),
        output=output,
        output_misses=run.output_misses + (missed and run.config.output_schema is not None),
    )
    transcript = state.transcript.plus(step.answer, *results)
    return replace(state, run=run, transcript=transcript, unknown=state.unknown + unknown)


def accepted(call: CallState) -> bool:
    """Whether a call came back without an error."""
    return call.settled is not None and call.settled.outcome is Outcome.COMPLETED and not call.settled.is_error


def tool_message(call: CallState) -> ToolMessage:
    """What the model reads about a terminal call."""
    if call.result is not None:
        return ToolMessage(tool_call_id=call.planned.tool_call_id, text=call.result.text, is_error=call.result.is_error)
    return ToolMessage(tool_call_id=call.planned.tool_call_id, text=call.refusal or "", is_error=True)
