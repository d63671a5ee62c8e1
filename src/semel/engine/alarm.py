"""Wakes sessions when something of theirs is due. What is due stands in their logs; this only keeps the time (design 7)."""

import asyncio
from collections.abc import Awaitable, Callable

from semel.ports.world import Clock

LONGEST_SLEEP_SECONDS = 60.0
"""A wall clock may be set: it is looked at again at least this often."""


class Alarm:
    """One timer for all sessions of a process."""

    def __init__(self, clock: Clock, wake: Callable[[str], Awaitable[None]]) -> None:
        """`wake` is told the session; it is not to raise."""
        self._clock = clock
        self._wake = wake
        self._due: dict[str, int] = {}
        self._task: asyncio.Task[None] | None = None
        self._waking: set[asyncio.Task[None]] = set()

    def set(self, session: str, due_ms: int | None) -> None:
        """Wake a session at this time, in Unix milliseconds, and not at any time that was set before; None for never."""
        if due_ms is None:
            self._due.pop(session, None)
            return
        earlier = min(self._due.values(), default=None)
        self._due[session] = due_ms
        if self._task is None or earlier is None or due_ms < earlier:
            if self._task is not None:
                self._task.cancel()
            self._task = asyncio.ensure_future(self._keep_time())

    async def close(self) -> None:
        """Wake nobody any more."""
        self._due.clear()
        tasks = [*self._waking, *([] if self._task is None else [self._task])]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _keep_time(self) -> None:
        while self._due:
            now_ms = self._clock.now_ms()
            for session in [name for name, due_ms in self._due.items() if due_ms <= now_ms]:
                del self._due[session]
                waking = asyncio.ensure_future(self._wake(session))
                self._waking.add(waking)
                waking.add_done_callback(self._waking.discard)
            if self._due:
                seconds = (min(self._due.values()) - now_ms) / 1000
                await self._clock.sleep(min(seconds, LONGEST_SLEEP_SECONDS))
        self._task = None
