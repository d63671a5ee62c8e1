"""recover: what a resume does with an open run (design 7, P12-P32). A pure table over the state that the log folds to.

| found in the log                                   | what a resume does                                                    |
|----------------------------------------------------|-----------------------------------------------------------------------|
| no open run                                        | nothing (P14)                                                         |
| run started, no step                               | its first step                                                        |
| step without its answer                            | the same step again, same result entry, same drained: attempt + 1     |
| answer without calls                               | finish the run without a model call (P13), or miss the typed output   |
| answer with calls, no batch                        | plan again from the durable answer; the model is not asked            |
| batch open                                         | each call by its class, below                                         |
| batch finished, an unknown among its calls         | the missing marker, then the terminal `interrupted`                   |
| turn finished                                      | the stop conditions again, then the next step                         |

| class of a call | found in the log                               | what a resume does                              |
|-----------------|------------------------------------------------|-------------------------------------------------|
| `result`        | its terminal result                            | include it                                      |
| `returned`      | an early return                                | include it; `tool_result` follows at the commit |
| `no_dispatch`   | refused, or an intent in a torn write          | include the refusal; never dispatch             |
| `indeterminate` | an intent without an outcome                   | reconcile, else rerun, else unknown             |
| `never_sent`    | an intent behind the first open one, in a      | dispatch in its turn, under its key and intent  |
|                 | sequential batch                               |                                                 |
| `never_left`    | planned, no intent                             | intent, then dispatch                           |
"""

import enum

from msgspec.structs import replace

from semel.core.decide import after_answer, plan_batch
from semel.core.effects import CallModel, Decision
from semel.core.records import Failure, Record, Replayed, ResumeStarted, StepStarted, TurnFinished
from semel.core.settle import doubtful, settle, turn_facts
from semel.core.state import Batch, CallState, Run, Session, Step
from semel.core.turn import after_turn, begin_step, finish


class CallClass(enum.StrEnum):
    """What the log says of one planned call (D8); exactly one each."""

    RESULT = "result"
    RETURNED = "returned"
    NO_DISPATCH = "no_dispatch"
    INDETERMINATE = "indeterminate"
    NEVER_SENT = "never_sent"
    NEVER_LEFT = "never_left"


def classify(call: CallState, *, doubt: bool) -> CallClass:
    """The class of a call; `doubt` says that a dead process may have sent it (`settle.doubtful`)."""
    if call.result is not None:
        return CallClass.RESULT
    if call.refusal is not None or call.planned.refused is not None or call.torn_intent:
        return CallClass.NO_DISPATCH
    if call.returned is not None:
        return CallClass.RETURNED
    if not call.intent:
        return CallClass.NEVER_LEFT
    return CallClass.INDETERMINATE if doubt else CallClass.NEVER_SENT


def recover(state: Session) -> Decision:
    """The first decision of a resume; empty when no run is open. `resume_started` stands first (P27)."""
    run = state.run
    if run is None:
        return Decision()
    step = run.step
    if step is None:
        records, effects = begin_step(state, run, 1)
        return Decision(records=(_resume_started(state, run), *records), effects=effects)
    if step.answer is None:
        return _redo(state, run, step)
    if not step.answer.calls:
        return _after_final_answer(state, run, step)
    if step.batch is None:
        return plan_batch(state, run, step, head=(_resume_started(state, run),))
    if not step.batch.finished:
        return _open_batch(state, run, step.batch)
    return _after_batch(state, run, step, step.batch)


def _resume_started(state: Session, run: Run, *, redone: tuple[str, ...] = (), lost: tuple[str, ...] = ()) -> ResumeStarted:
    return ResumeStarted(
        episode=run.run_id,
        resumed_from_seq=state.head,
        replayed=Replayed(messages=len(state.transcript), model_steps=run.model_steps, tool_results=run.tool_results),
        redone=redone,
        indeterminate=lost,
    )


def _redo(state: Session, run: Run, step: Step) -> Decision:
    """Ask again: the request is a function of the transcript, which has not changed, so its bytes are the same (P4)."""
    resumed = _resume_started(state, run, redone=(f"step {step.step_id}",))
    if step.attempt >= run.limits.step_attempts:
        why = Failure(kind="semel", code="step_attempts", message=f"step {step.step_id} was cut short {step.attempt} times")
        return Decision(records=(resumed, finish(run, "error", run.usage, why)))
    again = StepStarted(
        run_id=run.run_id,
        step_id=step.step_id,
        attempt=step.attempt + 1,
        result_entry=step.result_entry,
        drained=step.drained,
    )
    ask = CallModel(step_id=step.step_id, attempt=again.attempt, used=step.redeliveries, not_before_ms=step.not_before_ms)
    return Decision(records=(resumed, again), effects=(ask,))


def _after_final_answer(state: Session, run: Run, step: Step) -> Decision:
    return after_answer(state, run, step, head=(_resume_started(state, run),))


def _open_batch(state: Session, run: Run, batch: Batch) -> Decision:
    doubt = doubtful(run, batch)
    classes = {at: classify(call, doubt=at in doubt) for at, call in enumerate(batch.calls)}
    decision = settle(state, run, batch, doubt=doubt)
    lost = tuple(batch.calls[at].planned.call_key for at, kind in classes.items() if kind is CallClass.INDETERMINATE)
    return replace(decision, records=(_resume_started(state, run, lost=lost), *decision.records))


def _after_batch(state: Session, run: Run, step: Step, batch: Batch) -> Decision:
    marker: tuple[Record, ...] = () if step.finished else (TurnFinished(run_id=run.run_id, step_id=step.step_id),)
    head: tuple[Record, ...] = (_resume_started(state, run), *marker)
    if batch.unknown:
        # The terminal has a barrier of its own (P28); `seal` writes it next, and straight away if the marker is there.
        return Decision(records=head) if marker else Decision(records=(*head, finish(run, "interrupted", run.usage)))
    known = {at: call.settled for at, call in enumerate(batch.calls) if call.settled is not None}
    records, effects = after_turn(state, run, turn_facts(run, batch, known))
    return Decision(records=(*head, *records), effects=effects)
