"""The records of a batch, from what is known of its calls: intents, returns, terminals, markers, in issue order (CON9)."""

from collections.abc import Iterable

from semel.core.calls import Batch, CallState, Step
from semel.core.effects import CameBack, Hold
from semel.core.outcomes import Outcome, RefusalReason, Settlement, refuse
from semel.core.records import (
    ApprovalRecorded,
    BatchRecord,
    SchemaPin,
    ToolBatchFinished,
    ToolCallDeferred,
    ToolCallProviderHeld,
    ToolCallReturned,
    ToolDispatchIntent,
    ToolNoDispatch,
    ToolOutput,
    ToolRerun,
    ToolResult,
    TurnFinished,
)
from semel.core.state import Run
from semel.core.values import digest_text


def stand_ins(news: CameBack) -> dict[int, Settlement]:
    """What the model reads for now of the calls that were deferred."""
    return {at: Settlement(outcome=Outcome.COMPLETED, is_error=False, text=call.text) for at, call in news.deferred.items()}


def arrived(batch: Batch, news: CameBack, *, sequential: bool) -> tuple[BatchRecord, ...]:
    """What came back, as it is made durable before anything else is done: holds first, then returns and stand-ins (B18, CON9)."""
    if not (news.settled or news.deferred or news.held):
        return ()
    back: dict[int, BatchRecord] = {at: _returned(batch, at, settled) for at, settled in news.settled.items()}
    back |= {record.ordinal: record for record in deferred(batch, news)}
    held = (_held(batch, at, hold, sequential=sequential) for at, hold in sorted(news.held.items()))
    return (*held, *(back[at] for at in sorted(back)))


def deferred(batch: Batch, news: CameBack) -> tuple[ToolCallDeferred, ...]:
    """The handles under which results come later; each stands before the `tool_result` of its stand-in."""
    if not news.deferred:
        return ()
    return tuple(
        ToolCallDeferred(
            batch_id=batch.batch_id,
            ordinal=at,
            tool_call_id=batch.calls[at].planned.tool_call_id,
            call_key=batch.calls[at].planned.call_key,
            handle=call.handle,
            output=ToolOutput(text=call.text),
        )
        for at, call in sorted(news.deferred.items())
    )


def _held(batch: Batch, at: int, hold: Hold, *, sequential: bool) -> ToolCallProviderHeld:
    planned = batch.calls[at].planned
    return ToolCallProviderHeld(
        batch_id=batch.batch_id,
        ordinal=at,
        tool_call_id=planned.tool_call_id,
        call_key=planned.call_key,
        module=hold.module,
        reason=hold.reason,
        held_at_ms=hold.held_at_ms,
        sequential=sequential,
        detail_digest=hold.detail_digest,
        until_ms=hold.until_ms,
    )


def _returned(batch: Batch, at: int, settled: Settlement) -> ToolCallReturned:
    return ToolCallReturned(
        step_id=batch.step_id,
        batch_id=batch.batch_id,
        ordinal=at,
        call_key=batch.calls[at].planned.call_key,
        output=_output(settled),
        is_error=settled.is_error,
        outcome=settled.outcome,
        reason=settled.reason,
        terminate=settled.terminate,
        hooks=settled.hooks,
    )


def before_sending(
    run: Run, batch: Batch, ready: tuple[int, ...], sending: tuple[int, ...], reruns: tuple[int, ...]
) -> tuple[BatchRecord, ...]:
    """What must be durable first: a mark for each call that runs again, and an intent for every call that has none.

    All intents of a batch ride one barrier, also those of a sequential batch, which sends one call at a time (B3). In front,
    in issue order, stands what a torn write has left undispatched, so that no later terminal overtakes it (CON9).
    """
    torn = [at for at, call in enumerate(batch.calls) if call.torn_intent and not call.terminal]
    records: list[BatchRecord] = []
    for call in batch.calls[: torn[-1] + 1] if torn else ():
        refused = None if call.terminal else _no_dispatch(run.step, batch, call)
        if refused is not None:
            records.append(refused)
    records += [
        ToolRerun(call_key=batch.calls[at].planned.call_key, n=batch.calls[at].reruns + 1) for at in sending if at in reruns
    ]
    records += [intent_of(run, batch, batch.calls[at]) for at in ready if not batch.calls[at].intent]
    return tuple(records)


def intent_of(run: Run, batch: Batch, call: CallState) -> ToolDispatchIntent:
    """An intent; it repeats the arguments only where a person or a hook changed them.

    A call of a provided tool says whose it is, and the schema and the effect that it was planned with (R11, R12).
    """
    planned, step = call.planned, run.step
    spec = run.tool(planned.tool)
    provided = spec if spec is not None and spec.module is not None else None
    return ToolDispatchIntent(
        batch_id=batch.batch_id,
        ordinal=planned.ordinal,
        tool_call_id=planned.tool_call_id,
        args_digest=planned.args_digest,
        args=step.changed_arguments(planned.ordinal) if step is not None else None,
        module_id=provided.module if provided else None,
        schema_pin=SchemaPin(schema_digest=digest_text(provided.parameters), semantics=str(provided.effect))
        if provided
        else None,
    )


def terminals(
    run: Run, batch: Batch, known: dict[int, Settlement], ordinals: Iterable[int] | None = None
) -> tuple[BatchRecord, ...]:
    """The terminal of each call that has none yet; what an earlier record has brought is named, not repeated."""
    records: list[BatchRecord] = []
    for at in range(len(batch.calls)) if ordinals is None else ordinals:
        call = batch.calls[at]
        if call.terminal:
            continue
        refused = _no_dispatch(run.step, batch, call) if at not in known else None
        records.append(refused or _result(batch, call, known[at]))
    return tuple(records)


def _result(batch: Batch, call: CallState, settled: Settlement) -> ToolResult:
    return ToolResult(
        batch_id=batch.batch_id,
        ordinal=call.planned.ordinal,
        tool_call_id=call.planned.tool_call_id,
        is_error=settled.is_error,
        outcome=settled.outcome,
        output=None if call.returned is not None else _output(settled),
        reason=settled.reason,
        terminate=settled.terminate,
        hooks=() if call.returned is not None else settled.hooks,
    )


def _output(settled: Settlement) -> ToolOutput:
    return ToolOutput(text=settled.text, parts=settled.parts)


def _no_dispatch(step: Step | None, batch: Batch, call: CallState) -> ToolNoDispatch | ApprovalRecorded | None:
    """The terminal of a call that is never dispatched: what the plan says, a person's no, or a write that was torn."""
    planned = call.planned
    if planned.refused is None and not call.torn_intent:
        return None
    approval = step.approval(planned.ordinal) if step is not None else None
    answer = approval.resolved if approval is not None else None
    if planned.refused is not None and answer is not None and answer.decision != "approved":
        return ApprovalRecorded(
            batch_id=batch.batch_id,
            ordinal=planned.ordinal,
            tool_call_id=planned.tool_call_id,
            call_key=planned.call_key,
            decision=answer.decision,
            output=ToolOutput(text=planned.refused.message),
        )
    never = refuse(RefusalReason.NEVER_DISPATCHED)
    return ToolNoDispatch(
        batch_id=batch.batch_id,
        ordinal=planned.ordinal,
        tool_call_id=planned.tool_call_id,
        reason=planned.refused.reason if planned.refused is not None else str(never.reason),
        message=planned.refused.message if planned.refused is not None else never.message,
    )


def close_turn(run: Run, batch: Batch) -> tuple[ToolBatchFinished, TurnFinished]:
    """The markers of a batch whose calls all have their terminal."""
    return ToolBatchFinished(batch_id=batch.batch_id), TurnFinished(run_id=run.run_id, step_id=batch.step_id)
