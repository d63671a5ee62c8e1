"""What a session at rest wants a person to look at, and since which record. Pure."""

from semel.core.open_calls import open_calls
from semel.core.state import Run, Session
from semel.core.waiting import WaitKind, pause_of

Look = tuple[str, str, str, str]
"""A call: its key, its tool, its arguments, and `unknown`, `approval` or `held`."""


def wants_a_look(state: Session) -> tuple[Look, ...]:
    """The calls of the newest run that wait for a person; a deferred call holds nothing up, so it is not among them."""
    run = state.run
    if run is None:
        newest = state.newest
        return tuple((call.call_key, call.tool, call.arguments, "unknown") for call in state.unknown if call.run_id == newest)
    waiting = (call for call in open_calls(state) if call.run_id == run.run_id and call.kind != "deferred")
    return tuple((call.call_key, call.tool, call.arguments, call.kind) for call in waiting)


Began = tuple[tuple[str, ...], int]
"""What a waiting began with, by name, and the seq of the record that made it wait."""


def began_with(state: Session) -> Began:
    """Names the waiting of a session that waits, and it alone: the same from its first call to the answer of its last (PARKED-2).

    A run that waits for another key is one waiting for each step, however often that is tried.
    """
    run = state.run
    if run is None:
        ended = state.ended[state.newest or ""]
        return ended.unknown, ended.head
    if pause_of(state) is WaitKind.AUTH_REQUIRED:
        return (WaitKind.AUTH_REQUIRED, str(run.step.step_id if run.step is not None else 0)), state.head
    return _asked(run) or _held(state, run)


def _asked(run: Run) -> Began | None:
    step = run.step
    if step is None or not step.undecided:
        return None
    return tuple(one.asked.call_key for one in step.approvals), max(one.at for one in step.approvals)


def _held(state: Session, run: Run) -> Began:
    batch = run.step.batch if run.step is not None else None
    held = {call.planned.call_key: call.held_at for call in batch.calls if call.held is not None} if batch is not None else {}
    return tuple(key for key in state.owed if key in held), max(held.values(), default=state.head)
