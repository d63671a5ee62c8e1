"""Following a session that another process runs: each record once, in order, none that could vanish (P6, S1)."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Protocol

from semel.faces.views import frame_event, view_of
from semel.ports.log import SessionStore
from semel.ports.world import Clock

POLL_SECONDS = 0.1


class FileLogs(SessionStore, Protocol):
    """A store whose logs are files, which one can look at without reading them."""

    def log_path(self, session: str) -> Path:
        """Where the log of a session is."""


class Lull:
    """Nothing new for now. `stranded` says that a run is open and nobody carries it."""

    def __init__(self, *, stranded: bool) -> None:
        """Made by `follow_log`."""
        self.stranded = stranded


async def follow_log(
    store: FileLogs, session: str, clock: Clock, *, after: int, forever: bool = False
) -> AsyncIterator[dict[str, Any] | Lull]:
    """Every record with seq > `after`, then those that come. Ends when no run is open and nobody holds the session.

    With `forever` it waits for the next run instead. A run that nobody carries is waited for: somebody will resume it. The
    log is read when its file, its status document or its lease changed, and never twice from the start.
    """
    open_run = view_of(store, session).state.run is not None
    while True:
        looked = _look(store, session)  # before the read: what changes meanwhile is seen at the next look
        view = store.read(session, after)
        for frame in view.frames:
            if frame.seq <= 0:
                continue
            event = frame_event(frame)
            open_run = {"run_started": True, "run_finished": False}.get(str(event["type"]), open_run)
            yield event
            after = frame.seq
        if not (open_run or forever) and view.owner is None:
            return
        yield Lull(stranded=open_run and view.owner is None)
        while _look(store, session) == looked:
            await clock.sleep(POLL_SECONDS)


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
