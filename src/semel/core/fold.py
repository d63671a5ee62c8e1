"""The fold: apply one record to the state. Pure, total, one pass that validates and derives (D1, D6).

Any prefix of a legal log folds; what needed an illegal write raises CorruptLog with its reason (K18). The transcript grows by
complete or repaired turns only (P1): an answer without calls commits itself, one with calls when its batch is finished.
"""

from collections.abc import Iterable
from typing import TypeVar, assert_never

from msgspec.structs import replace

from semel.core.answer import with_answer
from semel.core.corruption import Reason, contradiction, same_entry
from semel.core.fold_batch import apply_to_batch
from semel.core.keys import digests_of_delivery
from semel.core.persistent import Chain
from semel.core.records import (
    Config,
    Content,
    Entry,
    IndeterminateResolved,
    Instructions,
    ModelAttemptFinished,
    ModelRetry,
    ModelStepFinished,
    ResumeStarted,
    RunFinished,
    RunStarted,
    StepStarted,
    ToolBatchFinished,
    ToolBatchStarted,
    ToolCallReturned,
    ToolDispatchIntent,
    ToolNoDispatch,
    ToolProcess,
    ToolRerun,
    ToolResult,
    ToolSet,
    TurnFinished,
)
from semel.core.state import Ended, KeyUse, Logged, Resolved, Run, Session, Step
from semel.core.texts import OUTPUT_REMINDER, verdict_message, verdict_result
from semel.core.values import AssistantMessage, Message, Opaque, UserMessage, derived_id
from semel.errors import need

C = TypeVar("C", Config, Instructions, ToolSet, UserMessage)


def fold(records: Iterable[Logged], state: Session) -> Session:
    """Apply all records in order, starting from `state`; folding a log in two parts gives what folding it whole gives."""
    for logged in records:
        state = apply(state, logged)
    return state


def apply(state: Session, logged: Logged) -> Session:
    """The state after one more record. Raises CorruptLog."""
    if logged.seq != state.head + 1:
        raise contradiction(state, logged, Reason.NON_CONSECUTIVE_SEQ, f"expected record {state.head + 1}")
    state = _advance(state, logged)
    record = logged.record
    match record:
        case None | ModelAttemptFinished():
            return state
        case RunStarted():
            return _run_started(state, logged, record)
        case StepStarted():
            return _step_started(state, logged, record)
        case ModelRetry():
            _, step = _in_flight(state, logged, record.run_id, record.step_id)
            return _with_step(state, replace(step, redeliveries=record.used, not_before_ms=record.not_before_ms))
        case ModelStepFinished():
            return _model_step_finished(state, logged, record)
        case (
            ToolBatchStarted()
            | ToolDispatchIntent()
            | ToolProcess()
            | ToolRerun()
            | ToolCallReturned()
            | ToolNoDispatch()
            | ToolResult()
            | ToolBatchFinished()
        ):
            return apply_to_batch(state, logged, record)
        case TurnFinished():
            return _turn_finished(state, logged, record)
        case ResumeStarted():
            open_run(state, logged, record.episode)
            return state
        case RunFinished():
            return _run_finished(state, logged, record)
        case IndeterminateResolved():
            return _resolved(state, logged, record)
    assert_never(record)


def open_run(state: Session, logged: Logged, run_id: str) -> Run:
    """The open run, if it is the one named; else the log references what is over or never was (K2, K3)."""
    if state.run is not None and state.run.run_id == run_id:
        return state.run
    if run_id in state.ended:
        raise contradiction(state, logged, Reason.RECORD_AFTER_FINISH, f"run {run_id} is finished")
    raise contradiction(state, logged, Reason.UNKNOWN_OPERATION, f"run {run_id} was never started")


def _advance(state: Session, logged: Logged) -> Session:
    """Position and clocks. Time between two records of one tenure is time in which the run was running."""
    run = state.run
    if run is not None and logged.fence == state.last_fence:
        run = replace(run, running_ms=run.running_ms + max(0, logged.at_ms - state.last_at_ms))
    return replace(state, head=logged.seq, last_at_ms=logged.at_ms, last_fence=logged.fence, run=run)


def _with_step(state: Session, step: Step) -> Session:
    return replace(state, run=replace(need(state.run, "a step belongs to the open run"), step=step))


def _in_flight(state: Session, logged: Logged, run_id: str, step_id: int) -> tuple[Run, Step]:
    run = open_run(state, logged, run_id)
    step = run.step
    if step is None or step.step_id != step_id or step.answer is not None:
        raise contradiction(state, logged, Reason.INCONSISTENT_STEP, f"step {step_id} is not in flight")
    return run, step


def _run_started(state: Session, logged: Logged, record: RunStarted) -> Session:
    if state.run is not None:
        raise contradiction(
            state, logged, Reason.MULTIPLE_OPEN_OPERATIONS, f"run {state.run.run_id} is open, {record.run_id} starts"
        )
    if record.run_id in state.ended:
        raise contradiction(state, logged, Reason.RECORD_AFTER_FINISH, f"run {record.run_id} is finished and starts again")
    if record.key in state.keys or (record.continues is not None and record.continues in state.continued):
        raise contradiction(state, logged, Reason.PROVISIONED_ENTRY_MISMATCH, f"key {record.key!r} has started a run before")
    state = _keep_entries(state, logged, record.entries)
    run = Run(
        run_id=record.run_id,
        key=record.key,
        agent=record.agent,
        config=_entry(state, logged, record.config, Config),
        instructions=_entry(state, logged, record.instructions, Instructions).text,
        tools=_entry(state, logged, record.tools, ToolSet).tools,
        started_seq=logged.seq,
        started_at_ms=logged.at_ms,
        context=record.context,
        continues=record.continues,
    )
    messages: list[Message] = [_entry(state, logged, name, UserMessage) for name in record.input]
    target = "\n".join((run.config.bundle.family, run.config.bundle.endpoint, run.config.bundle.model))
    text = "\n".join(message.text for message in messages if isinstance(message, UserMessage))
    use = KeyUse(kind="send", run_id=record.run_id, **digests_of_delivery(text, record.context))
    continued = state.continued.plus(record.continues, record.run_id) if record.continues else state.continued
    return replace(
        state,
        session=record.session,
        run=run,
        newest=record.run_id,
        target=target,
        transcript=(state.transcript if target == state.target else _without_opaque(state.transcript)).plus(*messages),
        keys=state.keys.plus(record.key, use),
        continued=continued,
    )


def _without_opaque(transcript: Chain[Message]) -> Chain[Message]:
    """The conversation as another model may see it: without the state that only its author understands.

    Every message is made anew, so that a renderer that keeps the bytes of messages does not take it for the old conversation.
    """
    if not any(isinstance(message, AssistantMessage) and message.opaque for message in transcript):
        return transcript
    return Chain([_portable(message) for message in transcript])


def _portable(message: Message) -> Message:
    if isinstance(message, AssistantMessage):
        return AssistantMessage(blocks=tuple(block for block in message.blocks if not isinstance(block, Opaque)))
    return replace(message)


def _keep_entries(state: Session, logged: Logged, entries: tuple[Entry, ...]) -> Session:
    table = state.entries
    for entry in entries:
        found = table.get(entry.entry_id)
        if found is None:
            table = table.plus(entry.entry_id, entry.content)
        elif not same_entry(entry.content, found):
            raise contradiction(state, logged, Reason.PROVISIONED_ENTRY_MISMATCH, f"entry {entry.entry_id} has two contents")
    return replace(state, entries=table)


def _entry(state: Session, logged: Logged, name: str, kind: type[C]) -> C:
    content: Content | None = state.entries.get(name)
    if not isinstance(content, kind):
        raise contradiction(
            state, logged, Reason.PROVISIONED_ENTRY_MISMATCH, f"entry {name} is not the {kind.__name__} that it is named as"
        )
    return content


def _step_started(state: Session, logged: Logged, record: StepStarted) -> Session:
    run = open_run(state, logged, record.run_id)
    step = run.step
    if step is not None and step.step_id == record.step_id and step.answer is None:
        if record.attempt != step.attempt + 1:
            raise contradiction(state, logged, Reason.NON_CONSECUTIVE_ATTEMPT, f"attempt {record.attempt} follows {step.attempt}")
        if (record.result_entry, record.drained) != (step.result_entry, step.drained):
            raise contradiction(
                state, logged, Reason.INCONSISTENT_STEP, f"attempt {record.attempt} contradicts attempt {step.attempt}"
            )
        return _with_step(state, replace(step, attempt=record.attempt))
    expected = 1 if step is None else step.step_id + 1
    if record.step_id != expected or (step is not None and not step.finished):
        raise contradiction(
            state, logged, Reason.INCONSISTENT_STEP, f"step {record.step_id} starts where step {expected} may not or is due"
        )
    if step is not None and (step.batch.unknown if step.batch else run.config.output_schema is None):
        raise contradiction(state, logged, Reason.INCONSISTENT_STEP, f"turn {step.step_id} was the last of its run")
    if record.attempt != 1:
        raise contradiction(
            state, logged, Reason.NON_CONSECUTIVE_ATTEMPT, f"the first attempt of a step is 1, not {record.attempt}"
        )
    if run.remind:
        state = replace(state, transcript=state.transcript.plus(UserMessage(text=OUTPUT_REMINDER)))
    for entry_id in record.drained:
        state = _place_verdict(state, logged, entry_id)
    fresh = Step(step_id=record.step_id, attempt=1, result_entry=record.result_entry, drained=record.drained)
    return replace(state, run=replace(run, step=fresh, remind=False), rendered=len(state.transcript))


def _place_verdict(state: Session, logged: Logged, entry_id: str) -> Session:
    """A verdict takes the place of the unknown result while no request has shown it; else it is a message of its own."""
    if entry_id not in state.pending:
        raise contradiction(state, logged, Reason.INCONSISTENT_STEP, f"{entry_id} is drained but not pending")
    found = next(item for item in state.resolved.values() if item.entry_id == entry_id)
    call = found.call
    if call.at >= state.rendered:
        message = verdict_result(call.tool_call_id, found.verdict, found.output)
        transcript = state.transcript.replaced(call.at, message)
    else:
        transcript = state.transcript.plus(verdict_message(call.tool, call.arguments, found.verdict, found.output))
    return replace(state, transcript=transcript, pending=tuple(name for name in state.pending if name != entry_id))


def _model_step_finished(state: Session, logged: Logged, record: ModelStepFinished) -> Session:
    run, step = _in_flight(state, logged, record.run_id, record.step_id)
    answer = record.assistant_message.content
    if record.assistant_message.entry_id != step.result_entry or not isinstance(answer, AssistantMessage):
        raise contradiction(
            state, logged, Reason.INCONSISTENT_STEP, f"step {step.step_id} declared the answer {step.result_entry}"
        )
    if run.usage.cost and record.usage.cost and run.usage.cost.currency != record.usage.cost.currency:
        raise contradiction(
            state, logged, Reason.INCONSISTENT_COST, f"{run.usage.cost.currency} and {record.usage.cost.currency} in one run"
        )
    run = with_answer(run, step, answer, record)
    ids = state.call_ids
    for call in answer.calls:
        ids = ids if call.id in ids else ids.plus(call.id, True)  # noqa: FBT003 - a set is a table of True
    transcript = state.transcript
    if not answer.calls:
        # An answer without text is kept in the log but is nothing that a provider would take back (B24).
        transcript = transcript.plus(answer) if answer.text.strip() else transcript
    return replace(state, run=run, call_ids=ids, transcript=transcript, model_steps=state.model_steps + 1)


def _turn_finished(state: Session, logged: Logged, record: TurnFinished) -> Session:
    run = open_run(state, logged, record.run_id)
    step = run.step
    whole = (
        step is not None
        and step.answer is not None
        and (not step.answer.calls or (step.batch is not None and step.batch.finished))
    )
    if step is None or step.step_id != record.step_id or step.finished or not whole:
        raise contradiction(state, logged, Reason.INCONSISTENT_STEP, f"turn {record.step_id} is not complete or already finished")
    return _with_step(state, replace(step, finished=True))


def _run_finished(state: Session, logged: Logged, record: RunFinished) -> Session:
    run = open_run(state, logged, record.run_id)
    step = run.step
    if step is not None and step.answer is not None and not step.finished:
        raise contradiction(state, logged, Reason.INCONSISTENT_STEP, f"the run ends within turn {step.step_id}")
    unknown = bool(step and step.batch and step.batch.unknown)
    if unknown and record.reason != "interrupted":
        raise contradiction(state, logged, Reason.INCONSISTENT_STEP, "a run with an unknown call ends interrupted")
    ended = Ended(
        run_id=run.run_id,
        key=run.key,
        agent=run.agent,
        reason=record.reason,
        usage=record.usage,
        started_at_ms=run.started_at_ms,
        finished_at_ms=logged.at_ms,
        head=logged.seq,
        error=record.error,
        output=run.output if record.reason == "completed" else None,
        unknown=tuple(call.call_key for call in state.unknown if call.run_id == run.run_id),
        continues=run.continues,
        context=run.context,
        stop=step.stop if step else None,
    )
    return replace(state, run=None, ended=state.ended.plus(run.run_id, ended))


def _resolved(state: Session, logged: Logged, record: IndeterminateResolved) -> Session:
    call = next((call for call in state.unknown if call.call_key == record.call_key), None)
    if call is None:
        raise contradiction(state, logged, Reason.UNKNOWN_OPERATION, f"call {record.call_key} is not unknown")
    entry_id = derived_id("verdict", record.call_key)
    found = Resolved(call=call, verdict=record.verdict, by=record.by, entry_id=entry_id, output=record.output, note=record.note)
    return replace(
        state,
        unknown=tuple(other for other in state.unknown if other.call_key != record.call_key),
        resolved=state.resolved.plus(record.call_key, found),
        pending=(*state.pending, entry_id),
    )
