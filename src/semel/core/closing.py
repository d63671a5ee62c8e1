"""How a run ends whose log is full: what may be kept is kept, the rest is told in notices, and nothing more leaves (W12, HAZ2).

Nothing is decided here that a crash would decide otherwise: a call that may have left and has not come back is unknown.
"""

from collections.abc import Iterator

from semel.core.ceiling import SESSION_TOO_LARGE, bounded
from semel.core.decide import CUT
from semel.core.effects import Answered, CameBack, Decision, Outcome
from semel.core.fold_batch import calls_of
from semel.core.keys import batch_id_of
from semel.core.outcomes import Outcome as CallOutcome
from semel.core.outcomes import Settlement
from semel.core.plan import plan
from semel.core.records import Failure, Record, ToolBatchStarted, TurnFinished
from semel.core.settle import close_out, crashed, doubtful, settle
from semel.core.state import Batch, CallState, Run, Session, Step
from semel.core.turn import finish
from semel.core.values import Usage, add_usage
from semel.errors import need


def closings(state: Session, outcome: Outcome | None, doubt: frozenset[int] | None) -> Iterator[Decision]:
    """Decisions instead of one that did not fit, from the one that keeps most to the one that always fits.

    `outcome` is what came back, None at the start of a resume; `doubt` as in `settle`, None for what the log cannot rule out.
    """
    run = need(state.run, "only an open run is closed")
    step = run.step
    if step is not None and step.batch is not None and step.finished and step.batch.unknown:
        yield Decision(records=(finish(run, "interrupted", run.usage),))
        return
    if step is None or step.finished or step.answer is None:
        yield Decision(records=(_too_large(run, _usage_with(run, outcome)),))
        return
    batch = step.batch
    if batch is None and not step.answer.calls:
        yield Decision(records=(_turn_finished(run, step), _too_large(run, run.usage)))
        return
    if batch is not None and batch.finished:
        end = () if batch.unknown else (_too_large(run, run.usage),)
        yield Decision(records=(_turn_finished(run, step), *end))  # with an unknown call the terminal is alone (P28)
        return
    head: tuple[Record, ...] = ()
    if batch is None:
        batch, head = planned_batch(state, run, step)
    came = outcome if isinstance(outcome, CameBack) else CameBack(settled={})
    yield from _of_open_batch(state, run, batch, head=head, came=came, lost=doubtful(run, batch) if doubt is None else doubt)


def _of_open_batch(
    state: Session, run: Run, batch: Batch, *, head: tuple[Record, ...], came: CameBack, lost: frozenset[int]
) -> Iterator[Decision]:
    """Close the batch with as many whole results as there is room for; while calls are out, only what came back is settled."""
    new, in_flight = dict(came.settled), came.in_flight
    while True:
        natural = settle(state, run, batch, came_back=new, in_flight=in_flight, doubt=lost)
        if head or natural.effects:
            yield Decision(records=(*head, *_closed(run, batch, new, lost)))
        else:
            yield natural
        longest = max(new, key=lambda at: len(new[at].text), default=None)
        if longest is None or bounded(new[longest]) == new[longest]:
            return
        new[longest] = bounded(new[longest])


def _closed(run: Run, batch: Batch, new: dict[int, Settlement], doubt: frozenset[int]) -> tuple[Record, ...]:
    known = {at: call.settled for at, call in enumerate(batch.calls) if call.settled is not None} | new
    known |= {at: crashed(run, batch, at) for at in doubt if at not in known}
    unknown = any(settled.outcome is CallOutcome.UNKNOWN for settled in known.values())
    return (*close_out(run, batch, known), *(() if unknown else (_too_large(run, run.usage),)))


def planned_batch(state: Session, run: Run, step: Step) -> tuple[Batch, tuple[Record, ...]]:
    """The batch of an answer whose plan was torn, and its record: it is written now, and nothing of it is sent."""
    planned = plan(state.lineage, run, step.step_id, calls_of(step), truncated=step.stop in CUT)
    batch_id = batch_id_of(state.lineage, run.run_id, step.step_id)
    started = ToolBatchStarted(run_id=run.run_id, batch_id=batch_id, step_id=step.step_id, planned_calls=planned)
    batch = Batch(batch_id=batch_id, step_id=step.step_id, calls=tuple(CallState(planned=call) for call in planned))
    return batch, (started,)


def _turn_finished(run: Run, step: Step) -> Record:
    return TurnFinished(run_id=run.run_id, step_id=step.step_id)


def _too_large(run: Run, usage: Usage) -> Record:
    why = Failure(kind="semel", code=SESSION_TOO_LARGE, message="the log of this session is full; start a new session")
    return finish(run, "error", usage, why)


def _usage_with(run: Run, outcome: Outcome | None) -> Usage:
    """An answer that is not kept was paid for all the same; one in another currency cannot be added."""
    if not isinstance(outcome, Answered):
        return run.usage
    ours, theirs = run.usage.cost, outcome.usage.cost
    same = ours is None or theirs is None or ours.currency == theirs.currency
    return add_usage(run.usage, outcome.usage) if same else run.usage
