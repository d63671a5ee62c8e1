"""What an open batch does next: reconcile, dispatch, wait, or settle and close (B3-B17, P16-P29, design 7). Pure.

One function serves the live run and every resume. What differs is `doubt`: the open calls that a dead process may have sent.
A live run has none; a resume starts with those that its log cannot rule out. Each rule below acts on calls in issue order.
"""

from semel.core.effects import Decision, Dispatch, Reconcile
from semel.core.outcomes import NeverSent, Outcome, RefusalReason, Settlement, lost, refuse
from semel.core.outcomes import settle as settlement
from semel.core.records import (
    Record,
    ToolBatchFinished,
    ToolCallReturned,
    ToolDispatchIntent,
    ToolNoDispatch,
    ToolOutput,
    ToolRerun,
    ToolResult,
    TurnFinished,
)
from semel.core.state import Batch, CallState, Run, Session
from semel.core.texts import SUBMIT_ACCEPTED, SUBMIT_TOOL
from semel.core.turn import TurnFacts, after_turn
from semel.core.uncertainty import LostReason
from semel.core.values import Effect as ToolEffect

SUBMITTED = Settlement(outcome=Outcome.COMPLETED, is_error=False, text=SUBMIT_ACCEPTED)


def settle(
    state: Session,
    run: Run,
    batch: Batch,
    *,
    came_back: dict[int, Settlement] | None = None,
    in_flight: frozenset[int] = frozenset(),
    doubt: frozenset[int] = frozenset(),
) -> Decision:
    """The next decision about the open batch, given what just came back and what is still running."""
    new = came_back or {}
    known = {at: call.settled for at, call in enumerate(batch.calls) if call.settled is not None} | new
    doubt = doubt - known.keys()
    if in_flight:
        return Decision(records=_returned(batch, new), doubt=doubt)
    ask = next((at for at in sorted(doubt) if _effect(run, batch, at) is ToolEffect.ONCE and _reconciles(run, batch, at)), None)
    if ask is not None:
        return Decision(records=_returned(batch, new), effects=(Reconcile(ordinal=ask),), doubt=doubt)
    known |= {at: crashed(run, batch, at) for at in doubt if _effect(run, batch, at) is ToolEffect.ONCE}
    doubt = doubt - known.keys()
    if any(settled.outcome is Outcome.UNKNOWN for settled in known.values()):
        return Decision(records=close_out(run, batch, known | {at: crashed(run, batch, at) for at in doubt}))
    reruns = tuple(at for at in sorted(doubt) if batch.calls[at].reruns < run.limits.reruns)
    given_up = {at: crashed(run, batch, at) for at in doubt if at not in reruns}
    known |= given_up
    ready = _ready(batch, known)
    if not ready:
        return _commit(state, run, batch, known)
    sending = ready[:1] if is_sequential(run, batch) else ready
    # What is given up is recorded before anything behind it leaves: a later resume must not take that for never sent (P2).
    records = (*_returned(batch, new | given_up), *_before_sending(batch, ready, sending, reruns))
    return Decision(records=records, effects=(Dispatch(ordinals=sending),), doubt=doubt - set(sending))


def is_sequential(run: Run, batch: Batch) -> bool:
    """Whether any call of the batch demands that all of it runs one at a time (A13)."""
    specs = (run.tool(call.planned.tool) for call in batch.calls if call.planned.refused is None)
    return any(spec is not None and spec.sequential for spec in specs)


def doubtful(run: Run, batch: Batch) -> frozenset[int]:
    """The open calls that a dead process may have sent: every intent without an outcome; of a sequential batch only the first."""
    opened = [at for at, call in enumerate(batch.calls) if call.intent and call.settled is None]
    if not is_sequential(run, batch):
        return frozenset(opened)
    # Behind an unknown nothing more of a sequential batch was sent: what its torn close-out left open never left (P21, P29).
    return frozenset() if batch.unknown else frozenset(opened[:1])


def close_turn(run: Run, batch: Batch) -> tuple[Record, ...]:
    """The markers of a batch whose calls all have their terminal."""
    return (ToolBatchFinished(batch_id=batch.batch_id), TurnFinished(run_id=run.run_id, step_id=batch.step_id))


def turn_facts(run: Run, batch: Batch, known: dict[int, Settlement]) -> TurnFacts:
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
        stop=run.step.stop if run.step else None,
    )


def _effect(run: Run, batch: Batch, at: int) -> ToolEffect:
    spec = run.tool(batch.calls[at].planned.tool)
    return spec.effect if spec else ToolEffect.ONCE


def crashed(run: Run, batch: Batch, at: int) -> Settlement:
    """A call that a dead process may have sent and that is not run again: unknown for `once`, else interrupted."""
    return settlement(_effect(run, batch, at), lost(LostReason.CRASHED), after_crash=True)


def _reconciles(run: Run, batch: Batch, at: int) -> bool:
    spec = run.tool(batch.calls[at].planned.tool)
    return spec is not None and spec.reconciles


def _good(settled: Settlement | None) -> bool:
    return settled is not None and settled.outcome is Outcome.COMPLETED and not settled.is_error


def _ready(batch: Batch, known: dict[int, Settlement]) -> tuple[int, ...]:
    """Calls that may be sent now: dispatchable and without an outcome. A submitted output never leaves, so it is not one."""
    return tuple(
        at
        for at, call in enumerate(batch.calls)
        if at not in known and not call.terminal and call.planned.refused is None and not call.torn_intent
        if call.planned.tool != SUBMIT_TOOL
    )


def _before_sending(
    batch: Batch, ready: tuple[int, ...], sending: tuple[int, ...], reruns: tuple[int, ...]
) -> tuple[Record, ...]:
    """What must be durable first: a mark for each call that runs again, and an intent for every call that has none.

    All intents of a batch ride one barrier, also those of a sequential batch, which sends one call at a time (B3). In front,
    in issue order, stands what a torn write has left undispatched, so that no later terminal overtakes it (CON9).
    """
    torn = [at for at, call in enumerate(batch.calls) if call.torn_intent and not call.terminal]
    records: list[Record] = []
    for call in batch.calls[: torn[-1] + 1] if torn else ():
        refused = None if call.terminal else _no_dispatch(batch, call)
        if refused is not None:
            records.append(refused)
    records += [
        ToolRerun(call_key=batch.calls[at].planned.call_key, n=batch.calls[at].reruns + 1) for at in sending if at in reruns
    ]
    records += [intent_of(batch, batch.calls[at]) for at in ready if not batch.calls[at].intent]
    return tuple(records)


def intent_of(batch: Batch, call: CallState) -> ToolDispatchIntent:
    """The record that a call is about to leave."""
    planned = call.planned
    return ToolDispatchIntent(
        batch_id=batch.batch_id,
        ordinal=planned.ordinal,
        tool_call_id=planned.tool_call_id,
        args_digest=planned.args_digest,
    )


def _no_dispatch(batch: Batch, call: CallState) -> ToolNoDispatch | None:
    planned = call.planned
    if planned.refused is not None:
        reason, message = planned.refused.reason, planned.refused.message
    elif call.torn_intent:
        refusal = refuse(RefusalReason.NEVER_DISPATCHED)
        reason, message = str(refusal.reason), refusal.message
    else:
        return None
    return ToolNoDispatch(
        batch_id=batch.batch_id,
        ordinal=planned.ordinal,
        tool_call_id=planned.tool_call_id,
        reason=reason,
        message=message,
    )


def _returned(batch: Batch, new: dict[int, Settlement]) -> tuple[Record, ...]:
    """An early return for each call that came back while others of its batch are open (B20, CON9)."""
    return tuple(
        ToolCallReturned(
            step_id=batch.step_id,
            batch_id=batch.batch_id,
            ordinal=at,
            call_key=batch.calls[at].planned.call_key,
            output=ToolOutput(text=settled.text),
            is_error=settled.is_error,
            outcome=settled.outcome,
            reason=settled.reason,
            terminate=settled.terminate,
        )
        for at, settled in sorted(new.items())
    )


def _terminals(batch: Batch, known: dict[int, Settlement]) -> tuple[Record, ...]:
    """The terminal of each call that has none yet, in issue order; an early return is named, not repeated."""
    records: list[Record] = []
    for at, call in enumerate(batch.calls):
        if call.terminal:
            continue
        refused = _no_dispatch(batch, call)
        if refused is not None:
            records.append(refused)
            continue
        settled = known[at]
        records.append(
            ToolResult(
                batch_id=batch.batch_id,
                ordinal=at,
                tool_call_id=call.planned.tool_call_id,
                is_error=settled.is_error,
                outcome=settled.outcome,
                output=None if call.returned is not None else ToolOutput(text=settled.text),
                reason=settled.reason,
                terminate=settled.terminate,
            )
        )
    return tuple(records)


def _commit(state: Session, run: Run, batch: Batch, known: dict[int, Settlement]) -> Decision:
    known = known | {at: SUBMITTED for at, call in enumerate(batch.calls) if _submits(call) and at not in known}
    records, effects = after_turn(state, run, turn_facts(run, batch, known))
    return Decision(records=(*_terminals(batch, known), *close_turn(run, batch), *records), effects=effects)


def _submits(call: CallState) -> bool:
    return call.planned.tool == SUBMIT_TOOL and call.planned.refused is None


def close_out(run: Run, batch: Batch, known: dict[int, Settlement]) -> tuple[Record, ...]:
    """Barrier 1 of an interrupted run (P27): a terminal for every call, and the markers. `run_finished` has its own barrier.

    What is not `known` was never sent.
    """
    unsent = settlement(ToolEffect.ONCE, NeverSent(), after_crash=False)
    rest = {at: unsent for at in range(len(batch.calls)) if at not in known}
    return (*_terminals(batch, known | rest), *close_turn(run, batch))
