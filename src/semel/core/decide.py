"""decide: state and what came in -> the records to make durable and the effects that may follow. Pure; nothing here acts."""

from msgspec.json import encode
from msgspec.structs import replace

from semel.core.answer import with_answer
from semel.core.effects import Answered, CallModel, CameBack, Decision, ExchangeFailed, Outcome, Resolve, Send, TimeUp
from semel.core.fold_batch import calls_of
from semel.core.keys import answer_entry_of, batch_id_of, digests_of_delivery, input_entry_of, run_id_of
from semel.core.limits import MODEL_RETRY_SYNCED_FROM_MS, backoff_ms
from semel.core.plan import identified, plan
from semel.core.records import (
    Content,
    Entry,
    Failure,
    IndeterminateResolved,
    Instructions,
    ModelRetry,
    ModelStepFinished,
    Record,
    RunStarted,
    StepStarted,
    ToolBatchStarted,
    ToolSet,
    TurnFinished,
)
from semel.core.settle import settle
from semel.core.state import Batch, CallState, Run, Session, Step
from semel.core.turn import DECLINED, TurnFacts, after_turn, finish, time_limit
from semel.core.values import AssistantMessage, Stop, UserMessage, digest_text
from semel.errors import KeyReuse, UnknownCall, VerdictConflict, must, need

CUT = DECLINED | {Stop.MAX_TOKENS}
"""Answers whose calls may be incomplete, so that none of them runs (A10)."""


def decide(state: Session, outcome: Outcome, *, doubt: frozenset[int], now_ms: int) -> Decision:
    """What follows from an outcome of the open run."""
    run, step = _current(state)
    # A run has been running since the last record, whatever comes of it now; the limit on its time counts that, too.
    run = replace(run, running_ms=run.running_ms + max(0, now_ms - state.last_at_ms))
    match outcome:
        case Answered():
            return _answered(state, run, step, outcome)
        case ExchangeFailed():
            return _exchange_failed(run, step, outcome, now_ms)
        case TimeUp():
            return Decision(records=(finish(run, "time_limit", run.usage, time_limit(run)),))
        case CameBack():
            batch = need(step.batch, "calls come back to an open batch")
            return settle(state, run, batch, came_back=outcome.settled, in_flight=outcome.in_flight, doubt=doubt)


def seal(state: Session) -> Decision:
    """Barrier 2 of an interrupted run: its terminal, alone (P28). Nothing else is left to do when this is asked."""
    run, step = _current(state)
    must(step.finished and step.batch is not None and bool(step.batch.unknown), "only an unknown call leaves a run like this")
    return Decision(records=(finish(run, "interrupted", run.usage),))


def send(state: Session, command: Send) -> Decision:
    """Start a run. The caller has made sure that no run is open and that the key is new.

    Content that the lineage holds already is named by its digest and not stored again (P10).
    """
    run_id = run_id_of(state.lineage, command.key)
    started = _run_started(state, command, run_id, continues=None)
    return _started(state, started)


def known_delivery(state: Session, key: str, text: str, context: object) -> str | None:
    """The run that this key started, None for a new key. Raises KeyReuse where the payload differs, naming the field."""
    use = state.keys.get(key)
    if use is None:
        return None
    digests = digests_of_delivery(text, context)
    for field, ours in (("input", use.input_digest), ("context", use.context_digest)):
        if digests[f"{field}_digest"] != ours:
            raise KeyReuse(f"key {key!r} was used before with another {field}; use a new key for a new message")
    return use.run_id


def resolve(state: Session, command: Resolve) -> tuple[Record, ...]:
    """The record of a verdict; none if the same verdict is there already. Raises UnknownCall, VerdictConflict."""
    found = state.resolved.get(command.call_key)
    if found is not None:
        if (found.verdict, found.output) == (command.verdict, command.output):
            return ()
        raise VerdictConflict(f"call {command.call_key} was resolved as {found.verdict} by {found.by}; a verdict stands")
    if all(call.call_key != command.call_key for call in state.unknown):
        raise UnknownCall(f"call {command.call_key} is not an unknown call of session {state.session!r}; see `semel inbox`")
    return (
        IndeterminateResolved(
            call_key=command.call_key,
            verdict=command.verdict,
            by=command.by,
            output=command.output,
            note=command.note,
        ),
    )


def continue_run(state: Session, command: Send, call_key: str) -> Decision:
    """The run that goes on after a verdict; `state` holds the verdict already."""
    run_id = run_id_of(state.lineage, command.key)
    return _started(state, _run_started(state, command, run_id, continues=call_key))


def plan_batch(state: Session, run: Run, step: Step, *, head: tuple[Record, ...] = ()) -> Decision:
    """Plan the calls of the step's answer: the batch, its intents, and the first dispatch; `head` goes in front.

    Where nothing can be dispatched, the same barrier commits the batch and goes on (CON20).
    """
    planned = plan(state.lineage, run, step.step_id, calls_of(step), truncated=step.stop in CUT)
    batch_id = batch_id_of(state.lineage, run.run_id, step.step_id)
    batch = Batch(batch_id=batch_id, step_id=step.step_id, calls=tuple(CallState(planned=call) for call in planned))
    started = ToolBatchStarted(run_id=run.run_id, batch_id=batch_id, step_id=step.step_id, planned_calls=planned)
    decision = settle(state, run, batch)
    return replace(decision, records=(*head, started, *decision.records))


def after_answer(state: Session, run: Run, step: Step, *, head: tuple[Record, ...] = ()) -> Decision:
    """What follows an answer without calls: the natural end, a refusal, or another try for the typed output."""
    turn = () if step.finished else (TurnFinished(run_id=run.run_id, step_id=step.step_id),)
    facts = TurnFacts(
        step_id=step.step_id,
        usage=run.usage,
        output_misses=run.output_misses,
        truncations=run.truncations,
        done=run.config.output_schema is None,
        stop=step.stop,
    )
    records, effects = after_turn(state, run, facts)
    return Decision(records=(*head, *turn, *records), effects=effects)


def _current(state: Session) -> tuple[Run, Step]:
    run = need(state.run, "an outcome belongs to an open run")
    return run, need(run.step, "an outcome belongs to an open step")


def _answered(state: Session, run: Run, step: Step, outcome: Answered) -> Decision:
    answer = AssistantMessage(blocks=identified(outcome.blocks, state.call_ids, state.model_steps + 1))
    finished = ModelStepFinished(
        run_id=run.run_id,
        step_id=step.step_id,
        assistant_message=Entry(entry_id=step.result_entry, content=answer),
        stop=outcome.stop,
        usage=outcome.usage,
        raw_stop=outcome.raw_stop,
    )
    head = (outcome.attempt, finished)
    run = with_answer(run, step, answer, finished)
    after = plan_batch if answer.calls else after_answer
    return after(state, run, run.step or step, head=head)


def _exchange_failed(run: Run, step: Step, outcome: ExchangeFailed, now_ms: int) -> Decision:
    """Redeliver within the budget, or end the run with the cause. A wait is never shorter than the server asked for."""
    wait_ms = backoff_ms(outcome.used, outcome.retry_after_ms)
    limits = run.limits
    if not outcome.retryable or outcome.used >= limits.model_retries or wait_ms > limits.retry_wait_ms:
        why = Failure(kind="model", code=outcome.failure, message=outcome.message, provider=outcome.provider_code)
        return Decision(records=(outcome.attempt, finish(run, "error", run.usage, why)))
    again = CallModel(step_id=step.step_id, attempt=step.attempt, used=outcome.used + 1, delay_ms=wait_ms)
    if wait_ms <= MODEL_RETRY_SYNCED_FROM_MS:
        return Decision(held=(outcome.attempt,), effects=(again,))
    due = now_ms + wait_ms
    retry = ModelRetry(run_id=run.run_id, step_id=step.step_id, used=outcome.used + 1, not_before_ms=due)
    return Decision(records=(outcome.attempt, retry), effects=(replace(again, delay_ms=0, not_before_ms=due),))


def _run_started(state: Session, command: Send, run_id: str, *, continues: str | None) -> RunStarted:
    input_entry = Entry(entry_id=input_entry_of(state.lineage, command.key), content=UserMessage(text=command.text))
    named: list[Content] = [command.config, Instructions(text=command.instructions), ToolSet(tools=command.tools)]
    frozen = [Entry(entry_id=digest_text(encode(content).decode()), content=content) for content in named]
    new = tuple(entry for entry in (*frozen, input_entry) if entry.entry_id not in state.entries)
    return RunStarted(
        run_id=run_id,
        session=state.session,
        key=command.key,
        agent=command.agent,
        config=frozen[0].entry_id,
        instructions=frozen[1].entry_id,
        tools=frozen[2].entry_id,
        input=(input_entry.entry_id,),
        entries=new,
        context=command.context,
        continues=continues,
    )


def _started(state: Session, started: RunStarted) -> Decision:
    step = StepStarted(
        run_id=started.run_id,
        step_id=1,
        attempt=1,
        result_entry=answer_entry_of(state.lineage, started.run_id, 1),
        drained=state.pending,
    )
    return Decision(records=(started, step), effects=(CallModel(step_id=1, attempt=1),))
