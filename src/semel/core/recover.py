"""recover: what a resume does with an open run (design 7, P12-P32). A pure table over the state that the log folds to.

`FOUND` says what a resume does by how far the newest step came; `CLASSES` gives every call of an open batch exactly one action by
its class. `docs/recovery.md` is written from both. What a close-out left undone is done by the next resume in the same way, and
nothing that is there is written twice (P29).
"""

import enum
from typing import NamedTuple

from msgspec.structs import replace

from semel.core.calls import Batch, Step
from semel.core.decide import after_answer
from semel.core.effects import CallModel, Decision
from semel.core.ending import close_unstarted
from semel.core.keys import definition
from semel.core.planning import plan_batch
from semel.core.policy import Policy, allow_all
from semel.core.records import (
    Config,
    Failure,
    Record,
    Replayed,
    ResumeStarted,
    RunFinished,
    RunRefrozen,
    StepStarted,
    TurnFinished,
)
from semel.core.settle import end_of, settle, turn_facts
from semel.core.standing import CallClass, classify
from semel.core.state import Run, Session
from semel.core.turn import after_turn, asked_end, begin_step, finish


class Action(enum.StrEnum):
    """What a resume does with one call of an open batch."""

    INCLUDE = "include"
    INCLUDE_REFUSAL = "include_refusal"
    FIND_OUT = "find_out"
    KEEP_WAITING = "keep_waiting"
    SEND_BEHIND_HELD = "send_behind_held"
    SEND_IN_TURN = "send_in_turn"
    DISPATCH = "dispatch"


class ClassRow(NamedTuple):
    """One line of the table of calls: what the log has, what is done, and that in words."""

    found: str
    action: Action
    does: str


CLASSES: dict[CallClass, ClassRow] = {
    CallClass.RESULT: ClassRow("its terminal result", Action.INCLUDE, "include it; never dispatch it"),
    CallClass.RETURNED: ClassRow(
        "an early return, or the stand-in of a deferred call",
        Action.INCLUDE,
        "include it; its `tool_result` follows at the commit",
    ),
    CallClass.NO_DISPATCH: ClassRow(
        "refused by the plan or a person, or an intent in a torn write",
        Action.INCLUDE_REFUSAL,
        "include the refusal; never dispatch it",
    ),
    CallClass.INDETERMINATE: ClassRow(
        "an intent without an outcome",
        Action.FIND_OUT,
        "ask the outside where its tool can (one more call each pass); else run a `read` or `idempotent` one again under its "
        "key, three times at most; else it is `unknown`: the batch is closed, the run ends `interrupted`, no model is called",
    ),
    CallClass.PROVIDER_HELD: ClassRow(
        "an intent, and that the provider holds the call",
        Action.KEEP_WAITING,
        "wait for its result; if another call of the batch becomes unknown, close it as `interrupted`",
    ),
    CallClass.HELD_SUCCESSOR: ClassRow(
        "in a sequential batch, an intent behind a call that is held, or that was held and closed without a result",
        Action.SEND_BEHIND_HELD,
        "it was never sent: send it once, under its key and intent, behind the held result; with a close-out it is `interrupted`",
    ),
    CallClass.NEVER_SENT: ClassRow(
        "in a sequential batch, an intent behind the first one without an outcome",
        Action.SEND_IN_TURN,
        "it was never sent: send it in its turn, under its key and intent; with a close-out it is `interrupted`",
    ),
    CallClass.NEVER_LEFT: ClassRow("planned, and no intent", Action.DISPATCH, "write the intent, then dispatch it"),
}

FOUND: tuple[tuple[str, str, str], ...] = (
    ("no open run", "nothing", "nothing"),
    ("a refusal by the context ceiling", "end the run as `context_ceiling`", "the same"),
    ("a run without a step", "begin its first step", "end it"),
    ("a step without its answer", "ask again: next attempt, same answer entry, same drained", "end it, without asking"),
    (
        "an answer without calls",
        "end the run without asking, or take one more step where a steer or follow-up waits or a typed output is missing",
        "end it",
    ),
    (
        "an answer with calls, no batch",
        "plan again, with the approvals that are there; the model is not asked",
        "close the batch",
    ),
    ("an open batch", "each call by its class, below", "close the batch: nothing more is sent"),
    (
        "a finished batch with an unknown call",
        "the missing marker, then the end as `interrupted`",
        "the same; a run that was cancelled ends as `cancelled`",
    ),
    ("a finished batch", "the stop conditions again, then the next step", "end it"),
)
"""What is found, what a resume does, and what it does where a cancel or a stop is in the log."""


def recover(state: Session, policy: Policy = allow_all, *, refrozen: Config | None = None) -> Decision:
    """The first decision of a resume; empty when no run is open. `resume_started` stands first (P27).

    `refrozen` is another config that a run which no model has answered goes on with (P11).
    """
    run = state.run
    if run is None:
        return Decision()
    step = run.step
    if run.ceiling is not None and run.ceiling.detail is not None:
        return _ends(state, run, finish(run, "context_ceiling", run.usage))
    if step is None or step.answer is None:
        if run.ending:
            return _ends(state, run, asked_end(run, run.usage))
        anew = () if refrozen is None else (_refrozen(state, run, refrozen),)
        return _begins(state, run, anew) if step is None else _redo(state, run, step, anew)
    if not step.answer.calls:
        return after_answer(state, run, step, policy, head=(_resume_started(state, run),))
    if step.batch is None:
        return _plan_again(state, run, step, policy)
    if not step.batch.finished:
        return _open_batch(state, run, step.batch, policy)
    return _after_batch(state, run, step, step.batch, policy)


def _resume_started(state: Session, run: Run, *, redone: tuple[str, ...] = (), lost: tuple[str, ...] = ()) -> ResumeStarted:
    return ResumeStarted(
        episode=run.run_id,
        resumed_from_seq=state.head,
        replayed=Replayed(messages=len(state.transcript), model_steps=run.model_steps, tool_results=run.tool_results),
        redone=redone,
        indeterminate=lost,
    )


def _ends(state: Session, run: Run, end: RunFinished) -> Decision:
    return Decision(records=(_resume_started(state, run), end))


def _refrozen(state: Session, run: Run, config: Config) -> RunRefrozen:
    entry = definition(config)
    return RunRefrozen(run_id=run.run_id, config=entry.entry_id, entries=() if entry.entry_id in state.entries else (entry,))


def _begins(state: Session, run: Run, anew: tuple[RunRefrozen, ...]) -> Decision:
    records, effects = begin_step(state, run, 1)
    return Decision(records=(_resume_started(state, run), *anew, *records), effects=effects)


def _redo(state: Session, run: Run, step: Step, anew: tuple[RunRefrozen, ...]) -> Decision:
    """Ask again: the request is a function of the transcript, which has not changed, so its bytes are the same (P4)."""
    resumed = _resume_started(state, run, redone=(f"step {step.step_id}",))
    cut_short = step.attempt - step.put_off
    if cut_short >= run.limits.step_attempts:
        why = Failure(kind="semel", code="step_attempts", message=f"step {step.step_id} was cut short {cut_short} times")
        return Decision(records=(resumed, finish(run, "error", run.usage, why)))
    again = StepStarted(
        run_id=run.run_id,
        step_id=step.step_id,
        attempt=step.attempt + 1,
        result_entry=step.result_entry,
        drained=step.drained,
    )
    ask = CallModel(step_id=step.step_id, attempt=again.attempt, used=step.redeliveries, not_before_ms=step.not_before_ms)
    return Decision(records=(resumed, *anew, again), effects=(ask,))


def _plan_again(state: Session, run: Run, step: Step, policy: Policy) -> Decision:
    head = (_resume_started(state, run),)
    if run.ending:
        return close_unstarted(state, run, step, asked_end(run, run.usage), head=head)
    return plan_batch(state, run, step, policy, head=head)


def _open_batch(state: Session, run: Run, batch: Batch, policy: Policy) -> Decision:
    classes = classify(run, batch)
    doubt = frozenset(at for at, found in enumerate(classes) if CLASSES[found].action is Action.FIND_OUT)
    decision = settle(state, run, batch, doubt=doubt, closing=run.ending, policy=policy)
    lost = tuple(batch.calls[at].planned.call_key for at in sorted(doubt))
    return replace(decision, records=(_resume_started(state, run, lost=lost), *decision.records))


def _after_batch(state: Session, run: Run, step: Step, batch: Batch, policy: Policy) -> Decision:
    marker: tuple[Record, ...] = () if step.finished else (TurnFinished(run_id=run.run_id, step_id=step.step_id),)
    head: tuple[Record, ...] = (_resume_started(state, run), *marker)
    if batch.unknown:
        # The terminal has a barrier of its own (P28); `seal` writes it next, and straight away if the marker is there.
        return Decision(records=head) if marker else Decision(records=(*head, end_of(run, batch)))
    if batch.stopped or any(call.closed_out for call in batch.calls):
        return Decision(records=(*head, end_of(run, batch)))
    known = {at: call.settled for at, call in enumerate(batch.calls) if call.settled is not None}
    records, effects = after_turn(state, run, turn_facts(run, batch, known, policy))
    return Decision(records=(*head, *records), effects=effects)
