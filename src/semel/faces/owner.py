"""Asking whoever holds a session, and waiting for what it does; the lease alone says who that is (design 3)."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from semel.engine.resume import Ground
from semel.errors import SessionBusy
from semel.faces.following import FileLogs, follow_log
from semel.faces.views import view_of
from semel.ports.control import Item, NotReached

REACH_SECONDS = 2.0
"""How long an owner that does not answer is tried: it may just be opening the session, or giving it back."""
_PAUSE_SECONDS = 0.05


async def ask_owner(ground: Ground, session: str, verb: str, args: Item) -> Item | None:
    """What the process that holds a session answers; None where nobody holds it.

    Whatever breaks off is asked again with the same arguments, so a key in them is made before. Raises what the request was
    refused with, and SessionBusy where somebody holds the session and does not answer.
    """
    control = ground.control
    until = ground.clock.monotonic() + REACH_SECONDS
    while control is not None and (contact := control.contact(session)) is not None:
        try:
            return await control.ask(contact, session, verb, args)
        except NotReached as error:
            if ground.clock.monotonic() >= until:
                key = args.get("key")
                again = f"ask again with --key {key}" if isinstance(key, str) else "ask again"
                raise SessionBusy(
                    f"session {session!r} is in use by {contact.owner}, and that does not answer ({error}). It may have taken "
                    f"what you asked for. Wait until it is done, or {again}: nothing happens twice"
                ) from None
        await ground.clock.sleep(_PAUSE_SECONDS)
    return None


async def run_events(
    ground: Ground, logs: FileLogs, session: str, run_id: str, *, live: bool = False
) -> AsyncGenerator[dict[str, Any], None]:
    """What comes from now on of a run that another process carries, to its end; ends before that where nobody carries it."""
    view = view_of(logs, session)
    if run_id in view.state.ended:
        return
    after = view.state.head
    events = follow_log(logs, session, ground.clock, control=ground.control, after=after, forever=True, live=live)
    async with aclosing(events):
        async for event in events:
            if isinstance(event, dict):
                yield event
                if event.get("type") == "run_finished" and event["record"]["run_id"] == run_id:
                    return
            elif not event.held:
                return
