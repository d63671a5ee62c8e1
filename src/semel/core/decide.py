"""decide: state and what came in -> the records to make durable and the effects that may follow. Pure; nothing here acts.

This is the door to all decisions: the commands of `core.effects` are answered by the functions that it names.
"""

from msgspec.structs import replace

from semel.core.answer import Given, answered_step, with_answers
from semel.core.approve import answer_approval, expire_approvals
from semel.core.budgets import spent_budget, time_budget
from semel.core.calls import Step
from semel.core.cancel import cancel, stop
from semel.core.effects import (
    AUTH_REFUSED,
    OPAQUE_STATE_REJECTED,
    Answered,
    CallModel,
    CameBack,
    Decision,
    ExchangeFailed,
    Outcome,
    Resolve,
    Send,
    TimeUp,
)
from semel.core.ending import close_unstarted, seal
from semel.core.history import supply_history
from semel.core.keys import answer_entry_of, definition, digests_of_delivery, input_entry_of, run_id_of
from semel.core.late import deliver_result
from semel.core.limits import MODEL_RETRY_SYNCED_FROM_MS, backoff_ms
from semel.core.messages import deliver_message, due_message, hand_over, retract, route
from semel.core.plan import identified
from semel.core.planning import plan_batch
from semel.core.policy import Policy, allow_all
from semel.core.records import (
    Content,
    Entry,
    Failure,
    IndeterminateResolved,
    Instructions,
    ModelRetry,
    ModelStepFinished,
    OpaqueStateVoided,
    Record,
    RunPaused,
    RunStarted,
    StepStarted,
    ToolSet,
    TurnFinished,
)
from semel.core.settle import settle
from semel.core.state import Run, Session
from semel.core.stopping import ends_behind
from semel.core.targets import is_bound, prefix_of, shows_tags_alike, target_of
from semel.core.transcript import holds_opaque
from semel.core.turn import TurnFacts, after_turn, asked_end, drainable, finish
from semel.core.values import AssistantMessage, Part, UserMessage
from semel.errors import BlankMessage, KeyReuse, SendRetracted, UnknownCall, VerdictConflict, need

__all__ = [
    "after_answer",
    "answer_approval",
    "cancel",
    "continue_run",
    "decide",
    "deliver_message",
    "deliver_result",
    "due_message",
    "expire_approvals",
    "hand_over",
    "known_delivery",
    "plan_batch",
    "resolve",
    "retract",
    "route",
    "seal",
    "send",
    "stop",
    "supply_history",
]


def decide(
    state: Session,
    outcome: Outcome,
    *,
    doubt: frozenset[int],
    now_ms: int,
    policy: Policy = allow_all,
) -> Decision:
    """What follows from an outcome of the open run."""
    run, step = _current(state)
    # A run has been running since the last record, whatever comes of it now; the limit on its time counts that, too.
    run = replace(run, running_ms=run.running_ms + max(0, now_ms - state.last_at_ms))
    match outcome:
        case Answered():
            return _answered(state, run, step, outcome, policy)
        case ExchangeFailed():
            return _exchange_failed(state, run, step, outcome, now_ms)
        case TimeUp():
            fired, why = spent_budget(time_budget(run), run, step.step_id)
            return Decision(records=(*fired, finish(run, why.code, run.usage, why)))
        case CameBack():
            batch = need(step.batch, "calls come back to an open batch")
            return settle(state, run, batch, news=outcome, doubt=doubt, closing=run.aborting_now, policy=policy)


def send(state: Session, command: Send) -> Decision:
    """Start a run. The caller has made sure that no run is open, and that the key is new or that of a queued message.

    Content that the lineage holds already is named by its digest and not stored again (P10). Raises BlankMessage.
    """
    run_id = run_id_of(state.lineage, command.key)
    return _started(state, _run_started(state, command, run_id, continues=None), command)


def known_delivery(
    state: Session, key: str, text: str, context: object, delivery: str = "send", *, parts: tuple[Part, ...] = ()
) -> str | None:
    """The run that this key started, starts when its turn comes, or was delivered to; None for a new key.

    It is asked before anything else, so that a delivery that is tried again never becomes another one. Raises KeyReuse where the
    payload differs, naming the field, and SendRetracted for a message that was taken back.
    """
    use = state.keys.get(key)
    if use is None:
        return None
    digests = digests_of_delivery(text, context, parts)
    compared = [("input", use.input_digest, digests["input_digest"]), ("delivery", use.kind, delivery)]
    if use.kind not in IN_RUN:
        compared.append(("context", use.context_digest, digests["context_digest"]))
    for field, first, ours in compared:
        if first != ours:
            raise KeyReuse(f"key {key!r} was used before with another {field}; use a new key for a new message")
    if state.taken.get(key) == "retracted":
        raise SendRetracted(f"the message of key {key!r} was taken back; use a new key to send it after all")
    return use.run_id


IN_RUN = frozenset({"steer", "follow_up"})
"""Deliveries that a running run takes; it has its context already, so theirs is not compared."""


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
    return _started(state, _run_started(state, command, run_id, continues=call_key), command)


def after_answer(state: Session, run: Run, step: Step, policy: Policy = allow_all, *, head: tuple[Record, ...] = ()) -> Decision:
    """What follows an answer without calls: the natural end, a refusal, a message that waits, or another try for the output."""
    turn = () if step.finished else (TurnFinished(run_id=run.run_id, step_id=step.step_id),)
    untyped = run.config.output_schema is None
    # A steer or follow-up that is durable by now makes one more step; without one the run has come to its end (P13, A8).
    ends = ends_behind(policy, step, None, {})
    goes_on = bool(state.steers or state.follow_ups) and not run.stopping and not ends
    facts = TurnFacts(
        step_id=step.step_id,
        usage=run.usage,
        output_misses=run.output_misses,
        truncations=run.truncations,
        done=untyped and not goes_on and not isinstance(ends, str),
        ends=ends,
        unpriced=run.unpriced,
        stop=step.stop,
    )
    records, effects = after_turn(state, run, facts, idle=untyped)
    return Decision(records=(*head, *turn, *records), effects=effects)


def _current(state: Session) -> tuple[Run, Step]:
    run = need(state.run, "an outcome belongs to an open run")
    return run, need(run.step, "an outcome belongs to an open step")


def _answered(state: Session, run: Run, step: Step, outcome: Answered, policy: Policy) -> Decision:
    answer = AssistantMessage(blocks=identified(outcome.blocks, state.call_ids, state.model_steps + 1))
    finished = ModelStepFinished(
        run_id=run.run_id,
        step_id=step.step_id,
        assistant_message=Entry(entry_id=step.result_entry, content=answer),
        stop=outcome.stop,
        usage=outcome.usage,
        raw_stop=outcome.raw_stop,
        hooks=outcome.hooks,
    )
    head = (outcome.attempt, finished)
    step = answered_step(step, answer, finished)
    run = with_answers(run, step, [Given(finished, answer, answer.calls)])
    if run.aborting_now and answer.has_calls:
        return close_unstarted(state, run, step, finish(run, "cancelled", run.usage), head=head)
    after = plan_batch if answer.has_calls else after_answer
    return after(state, run, step, policy, head=head)


def _exchange_failed(state: Session, run: Run, step: Step, outcome: ExchangeFailed, now_ms: int) -> Decision:
    """Redeliver within the budget, pause for another key, or end the run with the cause.

    A wait is never shorter than the server asked for. A run that is to end is not asked for again.
    """
    if run.ending:
        return Decision(records=(outcome.attempt, asked_end(run, run.usage)))
    if outcome.failure == OPAQUE_STATE_REJECTED and not run.state_rejected and holds_opaque(state):
        return _repaired(run, step, outcome)
    wait_ms = backoff_ms(outcome.used, outcome.retry_after_ms)
    limits = run.limits
    if not outcome.retryable or outcome.used >= limits.model_retries or wait_ms > limits.retry_wait_ms:
        why = Failure(
            kind="model",
            code=outcome.failure,
            message=outcome.message + _too_long(outcome.retry_after_ms, limits.retry_wait_ms),
            provider=outcome.provider_code,
            provider_details=list(outcome.details) or None,
        )
        if outcome.failure == AUTH_REFUSED:  # nothing was answered, and another key makes the same request good (R30)
            pause = RunPaused(run_id=run.run_id, reason="auth_required", error=why)
            return Decision(records=(outcome.attempt, pause))
        return Decision(records=(outcome.attempt, finish(run, "error", run.usage, why)))
    again = CallModel(step_id=step.step_id, attempt=step.attempt, used=outcome.used + 1, delay_ms=wait_ms)
    if wait_ms <= MODEL_RETRY_SYNCED_FROM_MS:
        return Decision(held=(outcome.attempt,), effects=(again,))
    retry = ModelRetry(run_id=run.run_id, step_id=step.step_id, used=outcome.used + 1, not_before_ms=now_ms + wait_ms)
    return Decision(records=(outcome.attempt, retry), effects=(again,))


def _too_long(asked_ms: int | None, most_ms: int) -> str:
    """What a run that ends says of a wait that it declines, so that somebody knows when to send again."""
    if asked_ms is None or asked_ms <= most_ms:
        return ""
    return f"; it asks to wait {-(-asked_ms // 1000)} s, and a run waits {most_ms // 1000} s at most"


def _repaired(run: Run, step: Step, outcome: ExchangeFailed) -> Decision:
    """Ask once more without the provider state that was refused. What is dropped is recorded first; a second refusal is final."""
    voided = OpaqueStateVoided(run_id=run.run_id, step_id=step.step_id, reason="rejected")
    again = CallModel(step_id=step.step_id, attempt=step.attempt, used=outcome.used + 1)
    return Decision(records=(outcome.attempt, voided), effects=(again,))


def _run_started(state: Session, command: Send, run_id: str, *, continues: str | None) -> RunStarted:
    if not command.text.strip():
        raise BlankMessage("the message has no text; no model takes one")
    said = UserMessage(text=command.text, parts=command.parts)
    input_entry = Entry(entry_id=input_entry_of(state.lineage, command.key), content=said)
    named: list[Content] = [command.config, Instructions(text=command.instructions), ToolSet(tools=command.tools)]
    frozen = [definition(content) for content in named]
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
        delivery=None if command.key in state.queue_index else command.delivery,
        hooks=command.hooks,
    )


def _started(state: Session, started: RunStarted, command: Send) -> Decision:
    step = StepStarted(
        run_id=started.run_id,
        step_id=1,
        attempt=1,
        result_entry=answer_entry_of(state.lineage, started.run_id, 1),
        drained=drainable(state),
    )
    return Decision(records=(started, *_voided(state, started, command), step), effects=(CallModel(step_id=1, attempt=1),))


def _voided(state: Session, started: RunStarted, command: Send) -> tuple[Record, ...]:
    """What the model thought is bound to all that it saw before: behind other instructions, tools or tags it is left out (M4)."""
    config = command.config
    alike = prefix_of(command.instructions, command.tools, config) == state.prefix
    alike = alike and shows_tags_alike(state, shown=config.render_tags)
    other = target_of(config.bundle) != state.target  # which is shown none of it anyway
    if alike or other or not is_bound(config.bundle.family) or not holds_opaque(state):
        return ()
    return (OpaqueStateVoided(run_id=started.run_id, reason="prefix_changed"),)
