"""Disks that take their time and a clock that stands still, so that a test decides what happens meanwhile.

Syncs run in threads here, as a Runtime has them by default; nothing waits for a time that has to pass.
"""

import asyncio
import errno
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from semel.adapters.file.disk import Disk
from semel.adapters.file.store import FileStore
from semel.adapters.system import SystemClock, SystemIds
from semel.core.features import KNOWN
from semel.engine.resume import Ground
from semel.ports.world import Clock
from semel.testing.faults import NumberedDisk
from tests.engine.fakes import loop_turns

T = TypeVar("T")
HELD_SECONDS_MOST = 20
SYNC_SECONDS = 0.01
EPOCH_MS = 1_767_225_600_000


def disk_ground(root: Path, disk: Disk | None = None, clock: Clock | None = None) -> Ground:
    """A process on a state directory, whose syncs run in threads."""
    clock = clock or SystemClock()
    return Ground(store=FileStore(root, clock, known=KNOWN, disk=disk, inline_sync=False), clock=clock, ids=SystemIds())


class SlowDisk(Disk):
    """A disk on which a sync takes longer than anything that the event loop does meanwhile."""

    def sync(self, fd: int) -> None:
        time.sleep(SYNC_SECONDS)
        super().sync(fd)


class HeldDisk(Disk):
    """A disk whose syncs, of files and of directories, wait in their threads between `hold` and `let_go`.

    What the thread of its maker syncs itself does not wait: that thread runs the event loop, and the test within it.
    """

    def __init__(self) -> None:
        super().__init__()
        self._maker = threading.get_ident()
        self._entered, self._go = threading.Event(), threading.Event()
        self._go.set()
        self.full_for = 0  # so many writes from now on find no space

    def write(self, fd: int, data: bytes, offset: int | None = None) -> None:
        if self.full_for:
            self.full_for -= 1
            raise OSError(errno.ENOSPC, "No space left on device")
        super().write(fd, data, offset)

    def hold(self) -> None:
        """Let the next sync wait."""
        self._entered.clear()
        self._go.clear()

    async def held(self) -> None:
        """Wait until a sync waits."""
        assert await asyncio.to_thread(self._entered.wait, HELD_SECONDS_MOST), "nothing was synced"

    def let_go(self) -> None:
        """Let every sync through."""
        self._go.set()

    def sync(self, fd: int) -> None:
        self._wait()
        super().sync(fd)

    def sync_directory(self, fd: int) -> None:
        self._wait()
        super().sync_directory(fd)

    def _wait(self) -> None:
        if threading.get_ident() == self._maker:
            return
        self._entered.set()
        assert self._go.wait(HELD_SECONDS_MOST), "nobody let the disk go on"


class StruckDisk(NumberedDisk):
    """A disk that has something done in the event loop at one persistence call, and goes on when the loop has reacted.

    No power is lost here, so what it syncs is not really synced: a sweep of many lives stays quick on a busy machine.
    """

    def strike_at(self, number: int, strike: Callable[[], object]) -> None:
        """At call `number` from now on, counted from 1, before it is made. Call it within the event loop."""
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
        self._due, self._strike = len(self.calls) + number, strike

    def sync(self, fd: int) -> None:
        self.step("sync", lambda: None)

    def sync_directory(self, fd: int) -> None:
        self.step("sync_directory", lambda: None)

    def step(self, name: str, act: Callable[[], T]) -> T:
        if len(self.calls) + 1 == getattr(self, "_due", 0):
            self._hit()
        return super().step(name, act)

    def _hit(self) -> None:
        if threading.get_ident() == self._thread:
            self._strike()  # the loop itself makes this call; it reacts at its next await
        else:
            asyncio.run_coroutine_threadsafe(self._struck(), self._loop).result(HELD_SECONDS_MOST)

    async def _struck(self) -> None:
        self._strike()
        await loop_turns()


class StandingClock:
    """Time that moves only when a test moves it. Implements `ports.world.Clock`."""

    def __init__(self) -> None:
        self._seconds = 0.0
        self._sleepers: list[tuple[float, asyncio.Future[None]]] = []

    def now_ms(self) -> int:
        return EPOCH_MS + int(self._seconds * 1000)

    def monotonic(self) -> float:
        return self._seconds

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        sleeper = self._seconds + seconds, asyncio.get_running_loop().create_future()
        self._sleepers.append(sleeper)
        try:
            await sleeper[1]
        finally:
            self._sleepers.remove(sleeper)

    def advance(self, seconds: float) -> None:
        """Let time pass, and wake who has waited for it."""
        self._seconds += seconds
        for due, woken in self._sleepers:
            if due <= self._seconds and not woken.done():
                woken.set_result(None)
