"""The part of the fold that follows a run and its steps, from `run_started` to its one terminal."""

from typing import assert_never

from msgspec.structs import replace

from semel.core.answer import Given, answered_step, with_answers
from semel.core.calls import Step
from semel.core.corruption import Reason, contradiction, same_entry
from semel.core.fold_batch import Handler
from semel.core.fold_queue import drained, left_behind, on_queue, start_of_queued
from semel.core.owned import change, put
from semel.core.places import place_of
from semel.core.records import (
    BudgetFired,
    Config,
    FollowUpQueued,
    Instructions,
    ModelRetry,
    ModelStepFinished,
    OpaqueStateVoided,
    ResumeStarted,
    RunCancelRequested,
    RunFinished,
    RunPaused,
    RunRecord,
    RunRefrozen,
    RunStarted,
    RunStopRequested,
    SendDelivered,
    Steered,
    StepStarted,
    ToolSet,
    TurnFinished,
)
from semel.core.referring import (
    comparable,
    entry_of,
    in_flight,
    input_place,
    keep_entries,
    message_place,
    messages_in,
    open_run,
    text_digest_of,
    use_key,
    use_of,
    use_tags,
    with_step,
)
from semel.core.standing import waits_for_held
from semel.core.state import TO_THE_RUN, CacheProof, Ended, KeyUse, Pending, PendingKind, Position, Run, Session
from semel.core.targets import STATE_LEFT_OUT, STATE_REFUSED, asked_of, broken_by, manner_of, prefix_of, target_of
from semel.core.texts import OUTPUT_REMINDER
from semel.core.transcript import for_target, grown, without_opaque
from semel.core.values import AssistantMessage, UserMessage


def run_handler(record: RunRecord) -> Handler:
    """What a record of this type does; all of these raise CorruptLog."""
    match record:
        case StepStarted():
            return _step_started
        case ModelStepFinished():
            return _model_step_finished
        case TurnFinished():
            return _turn_finished
        case RunStarted():
            return _run_started
        case RunFinished():
            return _run_finished
        case Steered() | FollowUpQueued() | SendDelivered():
            return on_queue
        case ModelRetry():
            return _model_retry
        case ResumeStarted():
            return _resume_started
        case RunCancelRequested() | RunStopRequested() | RunPaused() | RunRefrozen() | OpaqueStateVoided() | BudgetFired():
            return _outside_handler(record)
    assert_never(record)


def _outside_handler(
    record: RunCancelRequested | RunStopRequested | RunPaused | RunRefrozen | OpaqueStateVoided | BudgetFired,
) -> Handler:
    """Of what is asked of the run from outside its steps."""
    match record:
        case RunCancelRequested():
            return _cancel_requested
        case RunStopRequested():
            return _stop_requested
        case RunPaused():
            return _run_paused
        case RunRefrozen():
            return _run_refrozen
        case OpaqueStateVoided():
            return _opaque_state_voided
        case BudgetFired():
            return _budget_fired


def _model_retry(state: Session, logged: Position, record: ModelRetry) -> Session:
    _, step = in_flight(state, logged, record.run_id, record.step_id)
    return with_step(state, replace(step, redeliveries=record.used, not_before_ms=record.not_before_ms))


def _resume_started(state: Session, logged: Position, record: ResumeStarted) -> Session:
    open_run(state, logged, record.episode)
    return state


def _cancel_requested(state: Session, logged: Position, record: RunCancelRequested) -> Session:
    run = open_run(state, logged, record.run_id)
    return replace(state, run=replace(run, cancels=(*run.cancels, record)))


def _stop_requested(state: Session, logged: Position, record: RunStopRequested) -> Session:
    run = open_run(state, logged, record.run_id)
    return replace(state, run=replace(run, stopping=True))


def _run_started(state: Session, logged: Position, record: RunStarted) -> Session:
    if state.run is not None:
        raise contradiction(
            state, logged, Reason.MULTIPLE_OPEN_OPERATIONS, f"run {state.run.run_id} is open, {record.run_id} starts"
        )
    if record.run_id in state.ended:
        raise contradiction(state, logged, Reason.RECORD_AFTER_FINISH, f"run {record.run_id} is finished and starts again")
    if record.continues is not None and record.continues not in state.resolved:
        raise contradiction(state, logged, Reason.UNKNOWN_OPERATION, f"call {record.continues} has no verdict to go on from")
    if record.continues is not None and record.continues in state.continued:
        raise contradiction(state, logged, Reason.PROVISIONED_ENTRY_MISMATCH, f"call {record.continues} was continued before")
    state = keep_entries(state, logged, record.entries)
    config = entry_of(state, logged, record.config, Config)
    run = Run(
        run_id=record.run_id,
        key=record.key,
        agent=record.agent,
        config=config,
        instructions=entry_of(state, logged, record.instructions, Instructions).text,
        tools=entry_of(state, logged, record.tools, ToolSet).tools,
        started_seq=logged.seq,
        started_at_ms=logged.at_ms,
        context=record.context,
        continues=record.continues,
        scope=record.scope,
        asks_again=state.answered is not None,
    )
    places = [input_place(state, logged, name) for name in record.input]
    state = start_of_queued(state, logged, record)
    if record.key not in state.taken:
        state = use_key(state, logged, record.key, _use_of_input(state, logged, record))
    state = use_tags(state, logged, (tag for one in record.tags for tag in one))
    state = _asked_with(state, run)
    continued = state.continued.plus(record.continues, record.run_id) if record.continues else state.continued
    state = replace(state, session=record.session, run=run, newest=record.run_id, continued=continued)
    return grown(state, places, record.tags)


def _use_of_input(state: Session, logged: Position, record: RunStarted) -> KeyUse:
    """What the key of a run stands for. An input that an earlier record carried is known by the digest of its text."""
    kind, carried = record.delivery or "send", {entry.entry_id: entry for entry in record.entries}
    said = messages_in(state, logged, [carried[name] for name in record.input if name in carried])
    use = use_of(kind, said, record.context, record.run_id, record.hooks)
    if len(said) == len(record.input) or record.hooks:
        return use
    return replace(use, input_digest=text_digest_of(state, record.input))


def _asked_with(state: Session, run: Run) -> Session:
    """The state in which this run asks its model: what that sees of the conversation, and what stands before it.

    Tags are frozen for each run (C49).
    """
    config = run.config
    state = for_target(state, target_of(config.bundle))
    family, prefix = config.bundle.family if config.render_tags else None, prefix_of(run.instructions, run.tools, config)
    return replace(state, prefix=prefix, manner=manner_of(config), tag_family=family)


def _run_refrozen(state: Session, logged: Position, record: RunRefrozen) -> Session:
    run = open_run(state, logged, record.run_id)
    if run.model_steps:
        raise contradiction(state, logged, Reason.INCONSISTENT_STEP, "a run that a model has answered is frozen for good")
    state = keep_entries(state, logged, record.entries)
    config = entry_of(state, logged, record.config, Config)
    before, run = asked_of(state), replace(run, config=config, pause=None)
    state = _asked_with(state, run)
    if asked_of(state) != before:  # what it asked before says nothing of what it asks now
        run = replace(run, asked_fence=0, asks_again=state.answered is not None)
    return replace(state, run=run)


def _opaque_state_voided(state: Session, logged: Position, record: OpaqueStateVoided) -> Session:
    run = open_run(state, logged, record.run_id)
    if record.reason == "rejected":
        in_flight(state, logged, record.run_id, record.step_id or 0)
        if run.state_rejected:
            raise contradiction(state, logged, Reason.INCONSISTENT_STEP, "provider state is repaired once in a run")
        run = replace(run, state_rejected=True)
    elif run.step is not None:
        raise contradiction(state, logged, Reason.INCONSISTENT_STEP, "what stands before the messages changes between runs only")
    why = STATE_REFUSED if record.reason == "rejected" else STATE_LEFT_OUT
    return replace(without_opaque(state, why), run=run)


def _step_started(state: Session, logged: Position, record: StepStarted) -> Session:
    run = open_run(state, logged, record.run_id)
    step = run.step
    if run.ending:
        raise contradiction(state, logged, Reason.INCONSISTENT_STEP, f"step {record.step_id} starts in a run that is to end")
    if run.asked_fence != logged.fence:
        change(run, asked_fence=logged.fence, asks_again=run.asks_again or run.asked_fence != 0)
    if step is not None and step.step_id == record.step_id and step.answer is None:
        return _next_attempt(state, logged, step, record)
    expected = 1 if step is None else step.step_id + 1
    if record.step_id != expected or (step is not None and not step.finished):
        raise contradiction(
            state, logged, Reason.INCONSISTENT_STEP, f"step {record.step_id} starts where step {expected} may not or is due"
        )
    taken_up = _taken_up(state, record.drained) if record.drained else ()
    if step is not None and (step.batch.unknown if step.batch else run.config.output_schema is None and not taken_up):
        raise contradiction(state, logged, Reason.INCONSISTENT_STEP, f"turn {step.step_id} was the last of its run")
    if record.attempt != 1:
        raise contradiction(
            state, logged, Reason.NON_CONSECUTIVE_ATTEMPT, f"the first attempt of a step is 1, not {record.attempt}"
        )
    if run.remind:
        state = grown(state, (UserMessage(text=OUTPUT_REMINDER),))
    fresh = Step(
        step_id=record.step_id,
        attempt=1,
        result_entry=record.result_entry,
        drained=record.drained,
        messages=taken_up,
    )
    if record.drained:
        state = drained(state, logged, record.drained)
    put(run, "step", fresh)
    if run.remind or run.pause is not None:
        change(run, remind=False, pause=None)
    put(state, "rendered", len(state.transcript))
    return state


def _taken_up(state: Session, drained_names: tuple[str, ...]) -> tuple[str, ...]:
    """The keys of the messages to the run among what a step drains, each once."""
    to_the_run = {item.entry_id: item.source for item in state.pending if item.kind in TO_THE_RUN}
    return tuple(dict.fromkeys(to_the_run[name] for name in drained_names if name in to_the_run))


def _next_attempt(state: Session, logged: Position, step: Step, record: StepStarted) -> Session:
    if record.attempt != step.attempt + 1:
        raise contradiction(state, logged, Reason.NON_CONSECUTIVE_ATTEMPT, f"attempt {record.attempt} follows {step.attempt}")
    if (record.result_entry, record.drained) != (step.result_entry, step.drained):
        raise contradiction(
            state, logged, Reason.INCONSISTENT_STEP, f"attempt {record.attempt} contradicts attempt {step.attempt}"
        )
    state = with_step(state, replace(step, attempt=record.attempt))
    run = state.run
    return state if run is None or run.pause is None else replace(state, run=replace(run, pause=None))


def _model_step_finished(state: Session, logged: Position, record: ModelStepFinished) -> Session:
    run, step = in_flight(state, logged, record.run_id, record.step_id)
    entry = record.assistant_message
    answer = entry.content
    if entry.entry_id != step.result_entry or not isinstance(answer, AssistantMessage):
        raise contradiction(
            state, logged, Reason.INCONSISTENT_STEP, f"step {step.step_id} declared the answer {step.result_entry}"
        )
    taken = comparable(state.entries.get(step.result_entry))
    if taken is not None and not same_entry(answer, taken):
        raise contradiction(
            state,
            logged,
            Reason.PROVISIONED_ENTRY_MISMATCH,
            f"entry {step.result_entry} has two contents, one of them the answer",
        )
    if run.usage.cost and record.usage.cost and run.usage.cost.currency != record.usage.cost.currency:
        raise contradiction(
            state, logged, Reason.INCONSISTENT_COST, f"{run.usage.cost.currency} and {record.usage.cost.currency} in one run"
        )
    if record.tags:
        state = use_tags(state, logged, record.tags)
    run = with_answers(run, answered_step(step, answer, record, seq=logged.seq), [Given(record, answer, answer.calls)])
    put(state, "run", _with_proof(state, run, record))
    asked = asked_of(state)
    if state.changed or state.answered != asked:
        change(state, answered=asked, changed=())
    put(state, "model_steps", state.model_steps + 1)
    if not run.last_calls:
        return grown(state, (place_of(logged.seq, answer),), (record.tags,))
    put(state, "call_ids", state.call_ids.plus([call.id for call in run.last_calls]))
    return state


def _with_proof(state: Session, run: Run, record: ModelStepFinished) -> Run:
    """The first answer behind a resume, a refused state, or the answer of an earlier run proves what the cache did for it."""
    if not run.asks_again and STATE_REFUSED not in state.changed:
        return run
    proof = CacheProof(step_id=record.step_id, read=record.usage.cache_read, broken=broken_by(state))
    return replace(run, asks_again=False, cache=(*run.cache, proof))


def _turn_finished(state: Session, logged: Position, record: TurnFinished) -> Session:
    run = open_run(state, logged, record.run_id)
    step = run.step
    batch = step.batch if step is not None else None
    answer = step.answer if step is not None else None
    whole = batch.finished if batch is not None else answer is not None and not answer.calls
    if step is None or step.step_id != record.step_id or step.finished or not whole:
        raise contradiction(state, logged, Reason.INCONSISTENT_STEP, f"turn {record.step_id} is not complete or already finished")
    put(step, "finished", True)  # noqa: FBT003  the value of a field
    return state


def _run_finished(state: Session, logged: Position, record: RunFinished) -> Session:
    run = open_run(state, logged, record.run_id)
    step = run.step
    if step is not None and step.answer is not None and not step.finished:
        raise contradiction(state, logged, Reason.INCONSISTENT_STEP, f"the run ends within turn {step.step_id}")
    refused = run.ceiling is not None and run.ceiling.detail is not None
    if (record.reason == "context_ceiling") != refused:
        raise contradiction(state, logged, Reason.INCONSISTENT_STEP, "the ceiling and the end of the run disagree")
    unknown = bool(step and step.batch and step.batch.unknown)
    if unknown and not (record.reason == "interrupted" or (run.aborting and record.reason == "cancelled")):
        raise contradiction(state, logged, Reason.INCONSISTENT_STEP, "a run with an unknown call ends interrupted, or cancelled")
    state, unanswered = left_behind(state, logged, run)
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
        unanswered=unanswered,
        cache=run.cache,
    )
    return replace(state, run=None, ended=state.ended.plus(run.run_id, ended))


def _run_paused(state: Session, logged: Position, record: RunPaused) -> Session:
    run = open_run(state, logged, record.run_id)
    batch = run.step.batch if run.step is not None else None
    if record.reason == "tool_held" and (batch is None or not waits_for_held(run, batch)):
        raise contradiction(
            state, logged, Reason.INCONSISTENT_STEP, "a run is paused for held calls, but waits for something else"
        )
    step = run.in_flight
    if step is not None and run.pause is None and record.reason != "tool_held":  # an attempt is put off once
        run = replace(run, step=replace(step, put_off=step.put_off + 1))
    return replace(state, run=replace(run, pause=record))


def _budget_fired(state: Session, logged: Position, record: BudgetFired) -> Session:
    run = open_run(state, logged, record.run_id)
    state = replace(state, run=replace(run, budgets=(*run.budgets, record.budget)))
    if record.notice is None:
        return state
    if record.tag is not None:
        state = use_tags(state, logged, (record.tag,))
    state = keep_entries(state, logged, (record.notice,))
    place = message_place(state, logged, record.notice.entry_id)
    tags = () if record.tag is None else (record.tag,)
    notice = Pending(entry_id=record.notice.entry_id, kind=PendingKind.NOTICE, source=record.budget, place=place, tags=tags)
    return replace(state, pending=(*state.pending, notice))
