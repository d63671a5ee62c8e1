"""Looks at sessions that were given back while something waits in them: another process may answer for them (design 3).

Whoever answers takes the lease, appends and goes; nobody is told. So the mark of the log is looked at, which costs no reading.
"""

import asyncio
from collections.abc import Awaitable, Callable

from semel.ports.log import SessionStore
from semel.ports.world import Clock

LOOK_SECONDS = 1.0

GO_ON_MOST = 16
"""So many sessions are gone on with at a time: a slow one delays no other, and many do not open all at once."""


class Lookout:
    """One timer for all sessions that a process waits for."""

    def __init__(
        self,
        store: SessionStore,
        clock: Clock,
        go_on: Callable[[str], Awaitable[None]],
        failed: Callable[[str, Exception], None],
    ) -> None:
        """`go_on` is told a session that nobody holds and that is not watched any more; it is not to raise.

        `failed` is told once of a session that cannot be looked at. It is looked at again all the same, and so are the others.
        """
        self._store, self._clock, self._go_on, self._failed = store, clock, go_on, failed
        self._marks: dict[str, str | None] = {}
        self._unseen: set[str] = set()
        self._room = asyncio.Semaphore(GO_ON_MOST)
        self._going: dict[str, asyncio.Task[None]] = {}
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
        tasks = [*self._going.values(), *([] if self._task is None else [self._task])]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _look(self) -> None:
        while self._marks:
            await self._clock.sleep(LOOK_SECONDS)
            for session in list(self._marks):
                if session not in self._going and self._is_due(session):
                    self._going[session] = asyncio.ensure_future(self._go(session))
        self._task = None

    async def _go(self, session: str) -> None:
        try:
            async with self._room:
                if self._is_due(session):  # it may have been forgotten, or taken, while it had to wait
                    del self._marks[session]
                    await self._go_on(session)
        finally:
            self._going.pop(session, None)

    def _is_due(self, session: str) -> bool:
        if session not in self._marks:
            return False
        try:
            due = self._store.mark(session) != self._marks[session] and self._store.owner(session) is None
        except Exception as error:  # noqa: BLE001  one that cannot be looked at keeps no other from being looked at
            if session not in self._unseen:
                self._unseen.add(session)
                self._failed(session, error)
            return False
        self._unseen.discard(session)
        return due
