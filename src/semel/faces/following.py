"""Following a session that another process runs: each record once, in order, none that could vanish (P6, S1)."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import Any, Protocol

from semel.faces.views import frame_event, view_of
from semel.ports.control import Contact, Control, NotReached
from semel.ports.log import SessionStore
from semel.ports.world import Clock

POLL_SECONDS = 0.1


class FileLogs(SessionStore, Protocol):
    """A store whose logs are files, which one can look at without reading them."""

    def log_path(self, session: str) -> Path:
        """Where the log of a session is."""


class Lull:
    """Nothing new for now. `stranded` says that a run is open and nobody carries it, `held` that somebody has the session."""

    def __init__(self, *, stranded: bool, held: bool) -> None:
        """Made by `follow_log`."""
        self.stranded, self.held = stranded, held


async def follow_log(
    store: FileLogs, session: str, clock: Clock, *, control: Control | None, after: int, forever: bool = False, live: bool = False
) -> AsyncGenerator[dict[str, Any] | Lull, None]:
    """Every record with seq > `after`, then those that come. Ends when no run is open and nobody holds the session.

    With `forever` it waits for the next run instead. A run that nobody carries is waited for: somebody will resume it. Whoever
    holds the session is asked over its socket for what comes, with `live` also for what is not durable yet. Where it does not
    answer, the log is read when its file, its status document or its lease changed, and never twice from the start.
    """
    open_run = view_of(store, session).state.run is not None
    while True:
        looked = _look(store, session)  # before the read: what changes meanwhile is seen at the next look
        view = store.read(session, after)
        for event in map(frame_event, (frame for frame in view.frames if frame.seq > 0)):
            open_run = _opens(event, otherwise=open_run)
            yield event
            after = event["seq"]
        if not (open_run or forever) and view.owner is None:
            return
        yield Lull(stranded=open_run and view.owner is None, held=view.owner is not None)
        contact = control.contact(session) if control is not None else None
        told = False
        if control is not None and contact is not None:
            async with aclosing(_from_owner(control, contact, session, after, live=live)) as events:
                async for event in events:
                    told = True
                    after = event.get("seq", after)
                    open_run = _opens(event, otherwise=open_run)
                    yield event
        while not told and _look(store, session) == looked:
            await clock.sleep(POLL_SECONDS)


async def _from_owner(
    control: Control, contact: Contact, session: str, after: int, *, live: bool
) -> AsyncGenerator[dict[str, Any], None]:
    """What the owner tells, until it gives the session back, is gone, or tells something that does not come next."""
    try:
        async with aclosing(control.stream(contact, session, "tail", {"after": after, "live": live})) as items:
            async for item in items:
                if "seq" in item:
                    if item["seq"] != after + 1:
                        return
                    after = item["seq"]
                yield item
    except NotReached:
        return


def _opens(event: dict[str, Any], *, otherwise: bool) -> bool:
    return {"run_started": True, "run_finished": False}.get(str(event.get("type")), otherwise)


def _look(store: FileLogs, session: str) -> object:
    """What tells a change: size and time of the log and of the status beside it, and who holds the lease."""
    log = store.log_path(session)
    return _stamp(log), _stamp(log.with_name("status.json")), store.owner(session)


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
