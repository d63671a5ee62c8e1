"""What the policy says of one call: let it go, refuse it, or ask a person (B2, design 6). `core.rules` makes one from rules.

A policy is asked when a call is planned, once; what it said is in the log and stands. Saying no is a clean decision and settles
the call; not being able to say is an error of the run, and nothing is settled by it (CON4, F16).
"""

from collections.abc import Callable

from semel.core.values import JSON, Frozen, ToolSpec


class Allow(Frozen, frozen=True, kw_only=True):
    """The call may be dispatched."""


class Deny(Frozen, frozen=True, kw_only=True):
    """The call may not be dispatched; `why` tells the model what is not allowed."""

    why: str


class Ask(Frozen, frozen=True, kw_only=True):
    """A person decides; `expires_at_ms` is when silence means no, None if it never does."""

    rule: str | None = None
    expires_at_ms: int | None = None


class Unfit(Frozen, frozen=True, kw_only=True):
    """The arguments fit the schema and yet do not become what the tool takes, so it would not run; `why` tells the model."""

    why: str


class Undecidable(Frozen, frozen=True, kw_only=True):
    """The policy could not be evaluated; `why` is for people."""

    why: str


Ruling = Allow | Deny | Ask | Unfit | Undecidable
Policy = Callable[[ToolSpec, dict[str, JSON]], Ruling]
"""The ruling on a call of this tool with these arguments, which fit its schema."""


def allow_all(_spec: ToolSpec, _arguments: dict[str, JSON]) -> Ruling:
    """The policy of an agent without rules."""
    return Allow()
