"""What became of a call: the one classifier."""

import enum

from semel.core.values import Frozen


class Outcome(enum.StrEnum):
    """The closed set that replay acts on (CON11)."""

    COMPLETED = "completed"
    UNKNOWN = "unknown"
    INTERRUPTED = "interrupted"
    MAX_STEPS = "max_steps"


class Settlement(Frozen, frozen=True, kw_only=True):
    """What is recorded of a call and what the model is told."""

    outcome: Outcome
    is_error: bool
    text: str
    reason: str | None = None
    terminate: bool = False


def lost() -> Settlement:
    """A once call whose process died before it could say what became of it."""
    text = "No result was recorded: the outcome of this call is unknown. It may have taken effect. Verify before you repeat it."
    return Settlement(outcome=Outcome.UNKNOWN, is_error=True, text=text, reason="outcome_unknown")


def may_have_run() -> Settlement:
    """A read or idempotent call that was open when its batch was closed out."""
    text = "The run was interrupted; this call may have run."
    return Settlement(outcome=Outcome.INTERRUPTED, is_error=True, text=text, reason="interrupted")


def never_sent() -> Settlement:
    """A call that had not left the process when its batch was closed out."""
    text = "The run was interrupted before this call was sent. It did not run."
    return Settlement(outcome=Outcome.INTERRUPTED, is_error=True, text=text, reason="never_sent")


NEVER_DISPATCHED = "This call was not sent: the process ended before it could be. It did not run."
