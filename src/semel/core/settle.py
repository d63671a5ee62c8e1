"""What an open batch does next: reconcile, dispatch, wait, or settle and close (B3-B21, P16-P29, design 7). Pure.

One function serves the live run and every resume. What differs is `doubt`: the open calls that a dead process may have sent.
A live run has none; a resume starts with those that its log cannot rule out. Each rule below acts on calls in issue order.
"""

from msgspec.structs import replace

from semel.core.batch_records import arrived, before_sending, close_turn, deferred, stand_ins, terminals
from semel.core.calls import Batch, CallState
from semel.core.effects import CameBack, Decision, Dispatch, Reconcile
from semel.core.outcomes import HeldClosed, HeldReason, NeverSent, Outcome, Settlement, lost
from semel.core.outcomes import settle as settlement
from semel.core.policy import Policy, allow_all
from semel.core.records import Record, RunFinished, RunPaused
from semel.core.standing import is_sequential
from semel.core.state import Run, Session
from semel.core.stopping import ends_behind
from semel.core.texts import SUBMIT_ACCEPTED, SUBMIT_TOOL
from semel.core.turn import STOPPED, TurnFacts, after_turn, asked_end, finish
from semel.core.uncertainty import LostReason
from semel.core.values import Effect as ToolEffect

SUBMITTED = Settlement(outcome=Outcome.COMPLETED, is_error=False, text=SUBMIT_ACCEPTED)
NOTHING = CameBack()


def settle(
    state: Session,
    run: Run,
    batch: Batch,
    *,
    news: CameBack = NOTHING,
    doubt: frozenset[int] = frozenset(),
    closing: bool = False,
    policy: Policy = allow_all,
) -> Decision:
    """The next decision about the open batch, given what just came back and what is still running.

    `closing` says that the run is to end without sending anything more. One that is stopped otherwise ends behind this turn.
    """
    waiting = batch.held
    news = _with_kept(state, batch, news, waiting) if waiting else news
    new = news.settled | stand_ins(news)
    known = {at: call.settled for at, call in enumerate(batch.calls) if call.settled is not None} | new
    held = (frozenset(waiting) | news.held.keys()) - known.keys()
    doubt = doubt - known.keys() - held
    sequential = is_sequential(run, batch)
    if news.in_flight:
        return Decision(records=arrived(batch, news, sequential=sequential), doubt=doubt)
    ask = next((at for at in sorted(doubt) if _effect(run, batch, at) is ToolEffect.ONCE and _reconciles(run, batch, at)), None)
    if ask is not None:
        return Decision(records=arrived(batch, news, sequential=sequential), effects=(Reconcile(ordinal=ask),), doubt=doubt)
    known |= {at: crashed(run, batch, at) for at in doubt if _effect(run, batch, at) is ToolEffect.ONCE}
    doubt = doubt - known.keys()
    begun = _closing_as(batch)
    if closing or begun is not None or any(settled.outcome is Outcome.UNKNOWN for settled in known.values()):
        stop = run.stopping and not run.aborting if begun is None else begun is Outcome.MAX_STEPS
        known |= _rest(run, batch, known, doubt=doubt, held=held, stop=stop)
        return _close(run, batch, news, known)
    reruns = tuple(at for at in sorted(doubt) if batch.calls[at].reruns < run.limits.reruns)
    given_up = {at: crashed(run, batch, at) for at in doubt if at not in reruns}
    known |= given_up
    ready = _ready(batch, known, held, sequential=sequential)
    if not ready and not held:
        return _commit(state, run, batch, news, known, policy=policy)
    came = arrived(batch, news, sequential=sequential)
    # What is given up is recorded before anything behind it leaves, lest a later resume take that for never sent (P2); and before
    # the run waits for held calls, which it does when nothing else is open (R31).
    left = arrived(batch, CameBack(settled=given_up), sequential=sequential)
    if ready:
        sending = ready[:1] if sequential else ready
        first = (*_settled_first(run, batch, news, came), *left)
        records = (*first, *before_sending(run, batch, ready, sending, reruns))
        return Decision(records=records, effects=(Dispatch(ordinals=sending),), doubt=doubt - set(sending))
    return Decision(records=(*came, *left, *_pause(run)), doubt=doubt)


def _with_kept(state: Session, batch: Batch, news: CameBack, held: tuple[int, ...]) -> CameBack:
    """What came back, and the results of held calls that came while nobody carried the run."""
    kept = {at: state.late.get(batch.calls[at].planned.call_key) for at in held if at not in news.settled}
    delivered = {
        at: Settlement(outcome=Outcome.COMPLETED, is_error=late.is_error, text=late.output.text, parts=late.output.parts)
        for at, late in kept.items()
        if late is not None
    }
    return replace(news, settled=delivered | news.settled) if delivered else news


def turn_facts(run: Run, batch: Batch, known: dict[int, Settlement], policy: Policy) -> TurnFacts:
    """What the turn comes to once these settlements are committed."""
    submits = [at for at, call in enumerate(batch.calls) if call.planned.tool == SUBMIT_TOOL]
    submitted = run.config.output_schema is not None and any(_good(known.get(at)) for at in submits)
    every = [known.get(at) for at in range(len(batch.calls))]
    return TurnFacts(
        step_id=batch.step_id,
        usage=run.usage,
        output_misses=run.output_misses + (0 if batch.finished else bool(submits) and not submitted),
        truncations=run.truncations,
        # A typed output is submitted; the wish of a tool to end the run does not stand in for it.
        done=submitted or (run.config.output_schema is None and all(one is not None and one.terminate for one in every)),
        ends=ends_behind(policy, run.step, batch, known) if run.step is not None else False,
        unpriced=run.unpriced,
        stop=run.step.stop if run.step else None,
    )


def end_of(run: Run, batch: Batch) -> RunFinished:
    """The terminal of a run whose batch was closed out: told from what its calls came to, so that every resume says the same.

    A cancelled run is cancelled, also with an unknown call in it (CON8). Where a held call was closed because another one of the
    batch is unknown, it is interrupted all the same.
    """
    mixed = any(call.closed_out for call in batch.calls) and bool(batch.unknown)
    if batch.unknown and (mixed or not run.aborting):
        return finish(run, "interrupted", run.usage)
    if batch.stopped:
        return finish(run, "max_steps", run.usage, STOPPED)
    return asked_end(run, run.usage) if run.ending else finish(run, "interrupted", run.usage)


def crashed(run: Run, batch: Batch, at: int) -> Settlement:
    """A call that a dead process may have sent and that is not run again: unknown for `once`, else interrupted."""
    return settlement(_effect(run, batch, at), lost(LostReason.CRASHED), after_crash=True)


def _closing_as(batch: Batch) -> Outcome | None:
    """How the batch is being closed out, where its log says that it is (R39); None while it goes on."""
    if batch.stopped:
        return Outcome.MAX_STEPS
    return Outcome.INTERRUPTED if any(call.closed_out for call in batch.calls) else None


def _rest(
    run: Run, batch: Batch, known: dict[int, Settlement], *, doubt: frozenset[int], held: frozenset[int], stop: bool
) -> dict[int, Settlement]:
    """A settlement for every call that a close-out leaves without one (P25, P27, R38)."""
    unknown = any(settled.outcome is Outcome.UNKNOWN for settled in known.values())
    why = HeldReason.INTERRUPTED if unknown else HeldReason.STOPPED if stop else HeldReason.CANCELLED
    outcome = Outcome.MAX_STEPS if stop and not unknown else Outcome.INTERRUPTED
    unsent = settlement(ToolEffect.ONCE, NeverSent(outcome=outcome), after_crash=False)
    closed = settlement(ToolEffect.ONCE, HeldClosed(reason=why), after_crash=False)
    rest: dict[int, Settlement] = {}
    for at, call in enumerate(batch.calls):
        if at in known or call.terminal or call.planned.refused is not None or call.torn_intent:
            continue
        doubted = at in doubt or call.reruns > 0  # a call is only run again where a dead process may have sent it
        rest[at] = closed if at in held else crashed(run, batch, at) if doubted else unsent
    return rest


def close_out(run: Run, batch: Batch, known: dict[int, Settlement]) -> tuple[Record, ...]:
    """Barrier 1 of a run that is closed from outside (P27): a terminal for every call, and the markers.

    What is not `known` was never sent, or is held by its provider, whose result nobody waits for any more.
    """
    held = frozenset(batch.held) - known.keys()
    rest = _rest(run, batch, known, doubt=frozenset(), held=held, stop=False)
    return (*terminals(run, batch, known | rest), *close_turn(run, batch))


def _close(run: Run, batch: Batch, news: CameBack, known: dict[int, Settlement]) -> Decision:
    """The batch with a terminal for every call. With an unknown one, `run_finished` has a barrier of its own (P27, P28)."""
    closed = (*deferred(batch, news), *terminals(run, batch, known), *close_turn(run, batch))
    done = _as_closed(batch, known)
    return Decision(records=closed if done.unknown else (*closed, end_of(run, done)))


def _as_closed(batch: Batch, known: dict[int, Settlement]) -> Batch:
    calls = (replace(call, result=known.get(at, call.result)) for at, call in enumerate(batch.calls))
    return replace(batch, calls=tuple(calls))


def _effect(run: Run, batch: Batch, at: int) -> ToolEffect:
    spec = run.tool(batch.calls[at].planned.tool)
    return spec.effect if spec else ToolEffect.ONCE


def _reconciles(run: Run, batch: Batch, at: int) -> bool:
    spec = run.tool(batch.calls[at].planned.tool)
    return spec is not None and spec.reconciles


def _good(settled: Settlement | None) -> bool:
    return settled is not None and settled.outcome is Outcome.COMPLETED and not settled.is_error


def _ready(batch: Batch, known: dict[int, Settlement], held: frozenset[int], *, sequential: bool) -> tuple[int, ...]:
    """Calls that may be sent now: dispatchable and without an outcome. Behind a held call of a sequential batch none is (B19).

    A submitted output never leaves, so it is not one.
    """
    end = min(held) if sequential and held else len(batch.calls)
    return tuple(
        at
        for at, call in enumerate(batch.calls[:end])
        if at not in known and at not in held and not call.terminal and call.planned.refused is None and not call.torn_intent
        if call.planned.tool != SUBMIT_TOOL
    )


def _settled_first(run: Run, batch: Batch, news: CameBack, came: tuple[Record, ...]) -> tuple[Record, ...]:
    """The result of a held call is its terminal before any later call is sent (B19); other returns are early returns."""
    delivered = [at for at in news.settled if batch.calls[at].held is not None]
    if not delivered or not is_sequential(run, batch):
        return came
    known = {at: call.settled for at, call in enumerate(batch.calls) if call.settled is not None} | news.settled
    return terminals(run, batch, known, range(max(delivered) + 1))


def _pause(run: Run) -> tuple[RunPaused, ...]:
    """Say that the run waits for held calls, unless the log says so already."""
    said = run.pause is not None and run.pause.reason == "tool_held"
    return () if said else (RunPaused(run_id=run.run_id, reason="tool_held"),)


def _commit(state: Session, run: Run, batch: Batch, news: CameBack, known: dict[int, Settlement], *, policy: Policy) -> Decision:
    known = known | {at: SUBMITTED for at, call in enumerate(batch.calls) if _submits(call) and at not in known}
    records, effects = after_turn(state, run, turn_facts(run, batch, known, policy))
    results = (*deferred(batch, news), *terminals(run, batch, known), *close_turn(run, batch))
    return Decision(records=(*results, *records), effects=effects)


def _submits(call: CallState) -> bool:
    return call.planned.tool == SUBMIT_TOOL and call.planned.refused is None
