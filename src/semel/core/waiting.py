"""What an open run waits for: people, providers, points in time. Derived, and the source of what is due when (design 7)."""

import enum

from semel.core.state import Run, Session
from semel.core.values import Frozen


class WaitKind(enum.StrEnum):
    """What is waited for."""

    APPROVAL = "approval"
    TOOL_HELD = "tool_held"
    AUTH_REQUIRED = "auth_required"
    RESTART = "restart"
    CONTEXT_CEILING = "context_ceiling_wait"
    RETRY = "retry"


PAUSES = frozenset({WaitKind.APPROVAL, WaitKind.TOOL_HELD, WaitKind.AUTH_REQUIRED, WaitKind.RESTART})
"""Waits that make a run `paused`; the others are a part of its work (C15)."""


RESUMED = frozenset({WaitKind.AUTH_REQUIRED, WaitKind.RESTART})
"""Pauses that a resume ends: nothing has to come first that the log could tell."""


class Wait(Frozen, frozen=True, kw_only=True):
    """One thing that is waited for; `until_ms` is when it is over, whatever comes, None if never."""

    kind: WaitKind
    call_key: str | None = None
    ordinal: int | None = None
    until_ms: int | None = None


def waits_of(state: Session) -> tuple[Wait, ...]:
    """What the open run waits for; empty where it is at work, or no run is open."""
    run = state.run
    if run is None:
        return ()
    return (*_of_calls(run), *_of_pause(run), *_of_step(run))


def pause_of(state: Session) -> WaitKind | None:
    """Why the open run is paused; None while it is not."""
    return next((wait.kind for wait in waits_of(state) if wait.kind in PAUSES), None)


def _of_calls(run: Run) -> tuple[Wait, ...]:
    step = run.step
    if step is None:
        return ()
    asked = [
        Wait(kind=WaitKind.APPROVAL, call_key=one.call_key, ordinal=one.ordinal, until_ms=one.expires_at_ms)
        for one in step.undecided
    ]
    held: list[Wait] = []
    batch = step.batch
    if batch is not None and not batch.finished and run.pause is not None and run.pause.reason == "tool_held":
        for at in batch.held:
            record = batch.calls[at].held
            until = record.until_ms if record is not None else None
            held.append(Wait(kind=WaitKind.TOOL_HELD, call_key=batch.calls[at].planned.call_key, ordinal=at, until_ms=until))
    return (*asked, *held)


def _of_pause(run: Run) -> tuple[Wait, ...]:
    if run.pause is None or run.pause.reason == "tool_held":
        return ()
    return (Wait(kind=WaitKind(run.pause.reason)),)


def _of_step(run: Run) -> tuple[Wait, ...]:
    step, ceiling = run.in_flight, run.ceiling
    if step is None:
        return ()
    waits: list[Wait] = []
    if ceiling is not None and ceiling.step_id == step.step_id and not ceiling.decided and ceiling.deadline_ms is not None:
        waits.append(Wait(kind=WaitKind.CONTEXT_CEILING, until_ms=ceiling.deadline_ms))
    if step.not_before_ms is not None:
        waits.append(Wait(kind=WaitKind.RETRY, until_ms=step.not_before_ms))
    return tuple(waits)
