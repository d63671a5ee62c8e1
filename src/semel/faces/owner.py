"""Asking whoever holds a session, and waiting for what it does; the lease alone says who that is (design 3)."""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any

from semel.core.status import is_left
from semel.engine.resume import Ground
from semel.errors import SessionBusy
from semel.faces.following import FileLogs, follow_log
from semel.faces.report import report_of
from semel.faces.views import view_of
from semel.ports.control import Item, Leaving, NotReached

REACH_SECONDS = 2.0
"""How long an owner that does not answer is tried: it may just be opening the session, or giving it back."""
LEAVING_SECONDS = 45.0
"""How long one that is stopping is waited for: longer than calls under way usually get to come back."""
_PAUSE_SECONDS = 0.05


def _nobody_is_told(_owner: str) -> None:
    pass


async def ask_owner(
    ground: Ground, session: str, verb: str, args: Item, *, leaving: Callable[[str], None] = _nobody_is_told
) -> Item | None:
    """What the process that holds a session answers; None where nobody holds it.

    Whatever breaks off is asked again with the same arguments, so a key in them is made before. One that is stopping is waited
    for, and `leaving` is told its name, once. Raises what the request was refused with, and SessionBusy where somebody holds the
    session and does not answer.
    """
    control, clock = ground.control, ground.clock
    begun, wait_seconds = clock.monotonic(), REACH_SECONDS
    while control is not None and (contact := control.contact(session)) is not None:
        try:
            return await control.ask(contact, session, verb, args)
        except NotReached as error:
            if isinstance(error, Leaving) and wait_seconds == REACH_SECONDS:
                wait_seconds = LEAVING_SECONDS
                leaving(contact.owner)
            if clock.monotonic() >= begun + wait_seconds:
                raise SessionBusy(_unanswered(session, contact.owner, error, args)) from None
        await clock.sleep(_PAUSE_SECONDS)
    return None


def _unanswered(session: str, owner: str, error: NotReached, args: Item) -> str:
    key = args.get("key")
    again = f"ask again with --key {key}" if isinstance(key, str) else "ask again"
    if isinstance(error, Leaving):
        return f"session {session!r} is in use by {owner}, which is stopping and still waits for a call. Later, {again}"
    return (
        f"session {session!r} is in use by {owner}, and that does not answer ({error}). It may have taken "
        f"what you asked for. Wait until it is done, or {again}: nothing happens twice"
    )


async def run_events(
    ground: Ground, logs: FileLogs, session: str, run_id: str, *, live: bool = False, waits_behind: int | None = None
) -> AsyncGenerator[dict[str, Any], None]:
    """What comes from now on of a run that another process carries, to its end; ends before that where nobody carries it.

    With `waits_behind`, what comes behind that seq of a run that waits; ends also where that was answered and nobody has it.
    """
    after = waits_behind
    if after is None:
        state = view_of(logs, session).state
        if run_id in state.ended:
            return
        after = state.head
    events = follow_log(logs, session, ground.clock, control=ground.control, after=after, forever=True, live=live)
    async with aclosing(events):
        async for event in events:
            if isinstance(event, dict):
                yield event
                if event.get("type") == "run_finished" and event["record"]["run_id"] == run_id:
                    return
            elif not event.held and (waits_behind is None or _is_left(logs, session)):
                return


def _is_left(logs: FileLogs, session: str) -> bool:
    report = report_of(logs, session)
    return report is not None and is_left(report.status)
