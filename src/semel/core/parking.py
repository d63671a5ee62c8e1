"""What becomes of the open run of a log that is a copy, or of which a part was lost: it is closed, and nothing of it goes on.

What happened behind the last record of such a log nobody knows. So every `once` call that was or could have been sent is
unknown, and waits for a person; a run whose model was being asked ends, since the calls of an answer that is not here may have
been sent. Pure.
"""

from semel.core.ceiling import bounded
from semel.core.closing import planned_batch
from semel.core.fold_batch import calls_of
from semel.core.outcomes import Outcome, Settlement, lost
from semel.core.outcomes import settle as settlement
from semel.core.records import Failure, Record, TurnFinished
from semel.core.settle import close_out, intent_of
from semel.core.state import Batch, Run, Session
from semel.core.texts import SUBMIT_TOOL
from semel.core.turn import finish
from semel.core.uncertainty import LostReason
from semel.core.values import Effect

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
    if not calls_of(step):
        return (TurnFinished(run_id=run.run_id, step_id=step.step_id), end)
    batch, head = (step.batch, ()) if step.batch is not None else planned_batch(state, run, step)
    if batch.finished:
        marker = (TurnFinished(run_id=run.run_id, step_id=step.step_id),)
        return marker if batch.unknown else (*marker, end)
    known = _settled(run, batch)
    intents = tuple(
        intent_of(batch, call) for at, call in enumerate(batch.calls) if at in known and not (call.intent or call.settled)
    )
    unknown = any(settled.outcome is Outcome.UNKNOWN for settled in known.values())
    return (*head, *intents, *close_out(run, batch, known), *(() if unknown else (end,)))


def _settled(run: Run, batch: Batch) -> dict[int, Settlement]:
    """What is known of each call that was or could have been sent."""
    known: dict[int, Settlement] = {}
    for at, call in enumerate(batch.calls):
        if call.settled is not None:
            known[at] = call.settled
        elif not (call.planned.refused or call.torn_intent or call.refusal or call.planned.tool == SUBMIT_TOOL):
            spec = run.tool(call.planned.tool)
            crashed = settlement(spec.effect if spec else Effect.ONCE, lost(LostReason.CRASHED), after_crash=True)
            known[at] = bounded(crashed)
    return known
