"""Where each call of an open batch stands: exactly one class, from the log alone (D8, P16-P23, MAP7).

A live run and a resume read the same table. A live run knows besides which calls it has in flight; a resume does not, so for it
an intent without an outcome is a call that a dead process may have sent.
"""

import enum

from semel.core.calls import Batch, CallState
from semel.core.outcomes import Outcome
from semel.core.state import Run
from semel.core.texts import SUBMIT_TOOL


class CallClass(enum.StrEnum):
    """What the log says of one planned call."""

    RESULT = "result"
    RETURNED = "returned"
    NO_DISPATCH = "no_dispatch"
    INDETERMINATE = "indeterminate"
    PROVIDER_HELD = "provider_held"
    HELD_SUCCESSOR = "held_successor"
    NEVER_SENT = "never_sent"
    NEVER_LEFT = "never_left"


def classify(run: Run, batch: Batch) -> tuple[CallClass, ...]:
    """The class of each call, in issue order."""
    sequential = is_sequential(run, batch)
    blocker: CallClass | None = None  # the first call of a sequential batch behind which nothing was sent
    classes: list[CallClass] = []
    for call in batch.calls:
        if call.result is not None:
            found = CallClass.RESULT
        elif call.refusal is not None or call.planned.refused is not None or call.torn_intent:
            found = CallClass.NO_DISPATCH
        elif call.returned is not None:
            found = CallClass.RETURNED
        elif call.held is not None:
            found = CallClass.PROVIDER_HELD
        elif not call.intent:
            found = CallClass.NEVER_LEFT
        elif blocker is CallClass.PROVIDER_HELD:
            found = CallClass.HELD_SUCCESSOR
        elif blocker is CallClass.INDETERMINATE:
            found = CallClass.NEVER_SENT
        else:
            found = CallClass.INDETERMINATE
        if sequential and blocker is None:
            if found is CallClass.PROVIDER_HELD or call.closed_out:
                blocker = CallClass.PROVIDER_HELD
            elif found is CallClass.INDETERMINATE or _last_sent(call):
                blocker = CallClass.INDETERMINATE
        classes.append(found)
    return tuple(classes)


def _last_sent(call: CallState) -> bool:
    """Whether nothing of a sequential batch was sent behind this call, though its outcome is there.

    Behind an unknown nothing is sent; and the next call is sent only when the outcome of this one is durable in a whole write.
    """
    return call.torn_outcome or (call.settled is not None and call.settled.outcome is Outcome.UNKNOWN)


def doubtful(run: Run, batch: Batch) -> frozenset[int]:
    """The open calls that a dead process may have sent: every intent without an outcome; of a sequential batch only the first."""
    return frozenset(at for at, found in enumerate(classify(run, batch)) if found is CallClass.INDETERMINATE)


def still_doubtful(run: Run | None, before: frozenset[int], decided: frozenset[int] | None) -> frozenset[int]:
    """What stays in doubt behind a decision: what it says, else what was; nothing once the batch is finished."""
    batch = run.step.batch if run is not None and run.step is not None else None
    if batch is None or batch.finished:
        return frozenset()
    return before if decided is None else decided


def is_sequential(run: Run, batch: Batch) -> bool:
    """Whether any call of the batch demands that all of it runs one at a time (A13)."""
    sequential = {spec.name for spec in run.tools if spec.sequential}
    return bool(sequential) and any(call.planned.tool in sequential for call in batch.calls if call.planned.refused is None)


def waits_for_held(run: Run, batch: Batch) -> bool:
    """Whether the batch waits for held calls and for nothing else (R31)."""
    if batch.finished or not batch.held:
        return False
    sequential, first = is_sequential(run, batch), batch.held[0]
    return all(
        found not in (CallClass.INDETERMINATE, CallClass.NEVER_LEFT)
        or batch.calls[at].planned.tool == SUBMIT_TOOL
        or (sequential and at > first)
        for at, found in enumerate(classify(run, batch))
    )
