"""Wakes sessions when something of theirs is due. What is due stands in their logs; this only keeps the time (design 7).

A session in which something failed is woken again by itself: what fails for a passing reason, as on a disk that is full for a
while, is not to wait for somebody to notice. Each time it waits longer, so that one that cannot go well takes next to nothing.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from semel.ports.world import Clock

LONGEST_SLEEP_SECONDS = 60.0
"""A wall clock may be set: it is looked at again at least this often."""

FIRST_AGAIN_SECONDS, MOST_AGAIN_SECONDS = 1.0, 60.0
"""So long a session is left alone behind its first failure, twice as long behind the next, and never longer than the second."""


@dataclass
class _Failing:
    """A session that has failed so often in a row. It is not woken before this time, and at it if it is to be tried `again`."""

    count: int = 0
    not_before_ms: int = 0
    again: bool = False

    def rest_from(self, now_ms: int) -> None:
        """Leave it alone for a while."""
        doublings = min(self.count - 1, 16)
        self.not_before_ms = now_ms + int(1000 * min(FIRST_AGAIN_SECONDS * 2**doublings, MOST_AGAIN_SECONDS))


class Alarm:
    """One timer for all sessions of a process."""

    def __init__(self, clock: Clock, wake: Callable[[str], Awaitable[None]]) -> None:
        """`wake` is told the session; it is not to raise, and says whether it went well by `failed` or `went_well`."""
        self._clock = clock
        self._wake = wake
        self._due: dict[str, int] = {}
        self._failing: dict[str, _Failing] = {}
        self._task: asyncio.Task[None] | None = None
        self._sleeps_until_ms = 0
        self._waking: dict[str, asyncio.Task[None]] = {}

    def set(self, session: str, due_ms: int | None) -> None:
        """Wake a session at this time, in Unix milliseconds, and not at any time that was set before; None for never.

        One that has failed is woken again whatever is set, and not before that.
        """
        if due_ms is None:
            self._due.pop(session, None)
            return
        self._due[session] = due_ms
        self._look_at_the_time()

    def failed(self, session: str, *, again: bool) -> None:
        """Leave a session alone for a while, longer each time; then wake it for what is due, or in any case if `again`."""
        failing = self._failing.setdefault(session, _Failing())
        failing.count += 1
        failing.again = again
        failing.rest_from(self._clock.now_ms())
        self._look_at_the_time()

    def went_well(self, session: str) -> None:
        """What had failed is over, unless something failed again since the session was woken."""
        failing = self._failing.get(session)
        if failing is not None and not failing.again:
            del self._failing[session]
            self._look_at_the_time()

    async def close(self) -> None:
        """Wake nobody any more."""
        self._due.clear()
        self._failing.clear()
        tasks = [*self._waking.values(), *([] if self._task is None else [self._task])]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _times(self) -> dict[str, int]:
        """When each session is woken next; one that is being woken is not, before that is over."""
        times = dict(self._due)
        for session, failing in self._failing.items():
            if failing.again:
                times[session] = failing.not_before_ms
            elif session in times:
                times[session] = max(times[session], failing.not_before_ms)
        return {session: at for session, at in times.items() if session not in self._waking}

    def _look_at_the_time(self) -> None:
        """Have the timer sleep no longer than to what is due first."""
        earliest = min(self._times().values(), default=None)
        if earliest is None or (self._task is not None and earliest >= self._sleeps_until_ms):
            return
        if self._task is not None:
            self._task.cancel()
        self._sleeps_until_ms = earliest
        self._task = asyncio.ensure_future(self._keep_time())

    async def _keep_time(self) -> None:
        while self._times():
            now_ms = self._clock.now_ms()
            for session in [name for name, due_ms in self._times().items() if due_ms <= now_ms]:
                self._wake_now(session, now_ms)
            if times := self._times():
                self._sleeps_until_ms = min(times.values())
                seconds = (self._sleeps_until_ms - now_ms) / 1000
                await self._clock.sleep(min(seconds, LONGEST_SLEEP_SECONDS))
        self._task = None

    def _wake_now(self, session: str, now_ms: int) -> None:
        if self._due.get(session, now_ms) <= now_ms:
            self._due.pop(session, None)
        failing = self._failing.get(session)
        if failing is not None:  # until it is known how that went, which may be long behind the wake, it is left alone
            failing.again = False
            failing.rest_from(now_ms)
        waking = self._waking[session] = asyncio.ensure_future(self._wake(session))
        waking.add_done_callback(lambda _done: self._woken(session))

    def _woken(self, session: str) -> None:
        del self._waking[session]
        self._look_at_the_time()
