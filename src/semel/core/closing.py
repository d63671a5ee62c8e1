"""How a run ends whose log is full: what may be kept is kept, the rest is told in notices, and nothing more leaves (W12, HAZ2).

Nothing is decided here that a crash would decide otherwise: a call that may have left and has not come back is unknown.
"""

from collections.abc import Iterator

from semel.core.batch_records import arrived, deferred, stand_ins
from semel.core.calls import Batch, Step
from semel.core.ceiling import SESSION_TOO_LARGE, bounded_news
from semel.core.effects import Answered, CameBack, Decision, Outcome
from semel.core.ending import close_unstarted
from semel.core.outcomes import Outcome as CallOutcome
from semel.core.policy import Policy, allow_all
from semel.core.records import Failure, Record, RunFinished, TurnFinished
from semel.core.settle import close_out, crashed, end_of, settle
from semel.core.standing import doubtful, is_sequential
from semel.core.state import Run, Session
from semel.core.turn import finish
from semel.core.values import Usage, add_usage
from semel.errors import need


def closings(
    state: Session, outcome: Outcome | None, doubt: frozenset[int] | None, policy: Policy = allow_all
) -> Iterator[Decision]:
    """Decisions instead of one that did not fit, from the one that keeps most to the one that always fits.

    `outcome` is what came back, None at the start of a resume; `doubt` as in `settle`, None for what the log cannot rule out.
    """
    run = need(state.run, "only an open run is closed")
    step = run.step
    if step is not None and step.batch is not None and step.finished and step.batch.unknown:
        yield Decision(records=(end_of(run, step.batch),))
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
    if batch is None:
        yield close_unstarted(state, run, step, _too_large(run, run.usage))
        return
    came = outcome if isinstance(outcome, CameBack) else CameBack(settled={})
    yield from _of_open_batch(state, run, batch, came, lost=doubtful(run, batch) if doubt is None else doubt, policy=policy)


def _of_open_batch(
    state: Session, run: Run, batch: Batch, came: CameBack, *, lost: frozenset[int], policy: Policy
) -> Iterator[Decision]:
    """Close the batch with as many whole results as there is room for; while calls are out, only what came back is settled."""
    while True:
        natural = settle(state, run, batch, news=came, doubt=lost, policy=policy)
        yield Decision(records=_closed(run, batch, came, lost)) if natural.effects else natural
        smaller = bounded_news(came)
        if smaller is None:
            return
        came = smaller


def _closed(run: Run, batch: Batch, came: CameBack, doubt: frozenset[int]) -> tuple[Record, ...]:
    known = {at: call.settled for at, call in enumerate(batch.calls) if call.settled is not None}
    known |= came.settled | stand_ins(came)
    known |= {at: crashed(run, batch, at) for at in doubt if at not in known and at not in came.held}
    unknown = any(settled.outcome is CallOutcome.UNKNOWN for settled in known.values())
    held = arrived(batch, CameBack(held=came.held), sequential=is_sequential(run, batch))
    end = () if unknown else (_too_large(run, run.usage),)
    return (*held, *deferred(batch, came), *close_out(run, batch, known), *end)


def _turn_finished(run: Run, step: Step) -> Record:
    return TurnFinished(run_id=run.run_id, step_id=step.step_id)


def _too_large(run: Run, usage: Usage) -> RunFinished:
    return finish(run, "error", usage, too_large())


def too_large() -> Failure:
    """Why nothing more is begun in a session whose log is full."""
    return Failure(kind="semel", code=SESSION_TOO_LARGE, message="the log of this session is full; start a new session")


def _usage_with(run: Run, outcome: Outcome | None) -> Usage:
    """An answer that is not kept was paid for all the same; one in another currency cannot be added."""
    if not isinstance(outcome, Answered):
        return run.usage
    ours, theirs = run.usage.cost, outcome.usage.cost
    same = ours is None or theirs is None or ours.currency == theirs.currency
    return add_usage(run.usage, outcome.usage) if same else run.usage
