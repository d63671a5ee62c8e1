"""Looks at sessions that were given back while something waits in them: another process may answer for them (design 3).

Whoever answers takes the lease, appends and goes; nobody is told. So the mark of the log is looked at, which costs no reading.
"""

import asyncio
from collections.abc import Awaitable, Callable

from semel.ports.log import SessionStore
from semel.ports.world import Clock

LOOK_SECONDS = 1.0


class Lookout:
    """One timer for all sessions that a process waits for."""

    def __init__(self, store: SessionStore, clock: Clock, go_on: Callable[[str], Awaitable[None]]) -> None:
        """`go_on` is told a session that nobody holds and that is not watched any more; it is not to raise."""
        self._store, self._clock, self._go_on = store, clock, go_on
        self._marks: dict[str, str | None] = {}
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    def watch(self, session: str, mark: str | None) -> None:
        """Until it is free and its log has another mark than this one; None for as soon as it is free."""
        self._marks[session] = mark
        if self._task is None and not self._closed:
            self._task = asyncio.ensure_future(self._look())

    def forget(self, session: str) -> None:
        """This process has it."""
        self._marks.pop(session, None)

    async def close(self) -> None:
        """Look no more."""
        self._closed = True
        self._marks.clear()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _look(self) -> None:
        while self._marks:
            await self._clock.sleep(LOOK_SECONDS)
            for session in list(self._marks):
                if self._is_due(session):
                    del self._marks[session]
                    await self._go_on(session)
        self._task = None

    def _is_due(self, session: str) -> bool:
        known = session in self._marks  # it may have been forgotten while another one was gone on with
        return known and self._store.mark(session) != self._marks[session] and self._store.owner(session) is None
