"""What becomes of the open run of a log that is a copy, or of which a part was lost: it is closed, and nothing of it goes on.

What happened behind the last record of such a log nobody knows. So every `once` call that was or could have been sent is
unknown, and waits for a person; a run whose model was being asked ends, since the calls of an answer that is not here may have
been sent. An intent in a write that is not whole says nothing here: the rest of the write may be what was lost, and then its call
was sent. Pure.
"""

from msgspec.structs import replace

from semel.core.batch_records import intent_of
from semel.core.calls import Approval, Batch, Step
from semel.core.ceiling import bounded
from semel.core.ending import batch_started, new_batch
from semel.core.outcomes import HeldClosed, HeldReason, Outcome, Settlement, lost
from semel.core.outcomes import settle as settlement
from semel.core.plan import plan
from semel.core.policy import allow_all
from semel.core.records import ApprovalResolved, Failure, Record, TurnFinished
from semel.core.settle import close_out
from semel.core.state import Run, Session
from semel.core.texts import SUBMIT_TOOL
from semel.core.turn import finish
from semel.core.uncertainty import LostReason
from semel.core.values import Effect
from semel.errors import need

PARKED = "parked"


def parked(state: Session) -> tuple[Record, ...]:
    """The records that close the open run; none where no run is open. An unknown call leaves the terminal to a next barrier."""
    run = state.run
    if run is None:
        return ()
    step = run.step
    why = Failure(
        kind="semel", code=PARKED, message="the log was restored or repaired; what happened behind its end is not known"
    )
    end = finish(run, "error", run.usage, why)
    if step is not None and step.finished and step.batch is not None and step.batch.unknown:
        return (finish(run, "interrupted", run.usage, why),)
    if step is None or step.answer is None or step.finished:
        return (end,)
    if not step.answer.calls:
        return (TurnFinished(run_id=run.run_id, step_id=step.step_id), end)
    if step.batch is not None and step.batch.finished:
        marker = (TurnFinished(run_id=run.run_id, step_id=step.step_id),)
        return marker if step.batch.unknown else (*marker, end)
    assumed = tuple(_assumed(approval) for approval in step.approvals if approval.resolved is None)
    run = replace(run, step=_with_answers(step, assumed))
    batch, head = (step.batch, ()) if step.batch is not None else _planned(state, run)
    known = _settled(state, run, batch)
    intents = tuple(
        intent_of(run, batch, call)
        for at, call in enumerate(batch.calls)
        if at in known and not (call.intent or call.torn_intent or call.settled)
    )
    unknown = any(settled.outcome is Outcome.UNKNOWN for settled in known.values())
    return (*assumed, *head, *intents, *close_out(run, batch, known), *(() if unknown else (end,)))


def _assumed(approval: Approval) -> ApprovalResolved:
    """A person may have approved the call behind the end of this log, so it is closed as one that could have been sent."""
    asked = approval.asked
    return ApprovalResolved(
        run_id=asked.run_id,
        step_id=asked.step_id,
        ordinal=asked.ordinal,
        tool_call_id=asked.tool_call_id,
        call_key=asked.call_key,
        decision="approved",
        args_digest=asked.args_digest,
        by="semel",
        note="assumed, since the log was restored or repaired",
    )


def _with_answers(step: Step, records: tuple[ApprovalResolved, ...]) -> Step:
    answers = {record.ordinal: record for record in records}
    approvals = tuple(
        replace(approval, resolved=answers.get(approval.asked.ordinal, approval.resolved)) for approval in step.approvals
    )
    return replace(step, approvals=approvals)


def _planned(state: Session, run: Run) -> tuple[Batch, tuple[Record, ...]]:
    """The batch of an answer whose plan is not there, and its record: it is written now, and nothing of it is sent."""
    step = need(run.step, "a planned answer belongs to a step")
    batch = new_batch(state, run, step, plan(state.lineage, run, step, allow_all).calls)
    return batch, (batch_started(run, batch),)


def _settled(state: Session, run: Run, batch: Batch) -> dict[int, Settlement]:
    """What is known of each call that was or could have been sent."""
    known: dict[int, Settlement] = {}
    for at, call in enumerate(batch.calls):
        late = state.late.get(call.planned.call_key) if call.waits else None
        if call.settled is not None:
            known[at] = call.settled
        elif late is not None:
            text, is_error = late.output.text, late.is_error
            known[at] = bounded(Settlement(outcome=Outcome.COMPLETED, is_error=is_error, text=text))
        elif call.waits:
            known[at] = settlement(Effect.ONCE, HeldClosed(reason=HeldReason.INTERRUPTED), after_crash=True)
        elif not (call.planned.refused or call.refusal or call.planned.tool == SUBMIT_TOOL):
            spec = run.tool(call.planned.tool)
            crashed = settlement(spec.effect if spec else Effect.ONCE, lost(LostReason.CRASHED), after_crash=True)
            known[at] = bounded(crashed)
    return known
