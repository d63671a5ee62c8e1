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
