"""A disk that fails on command: every persistence call is numbered, and can end the process, fail, or write short.

`FaultyDisk` is for one test process: `Crashed` stands for its death, and `bury` gives back what the kernel would. For a real
death by SIGKILL a test program uses `KillingDisk.from_environment()`; nothing that ships constructs it.
"""

import errno
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from semel.adapters.file.disk import Disk
from semel.adapters.file.locks import Locks
from semel.core.values import Frozen
from semel.errors import BadSettings

KILL_VARIABLE = "SEMEL_TEST_KILL"
T = TypeVar("T")


class Crashed(BaseException):
    """The process died at a persistence call; nothing that it does afterwards has any effect."""


class Fault(Frozen, frozen=True, kw_only=True):
    """What goes wrong at persistence call number `at` (from 1) and, with `forever`, at each later call of the same name.

    `kind` is `crash_entry` (die before it), `crash_exit` (die right after it), `error` (fail with `code`) or `short` (a write
    stores `short_bytes` bytes and says so, as on a full disk; the next write fails with `code`).
    """

    at: int
    kind: str = "crash_entry"
    code: int = errno.EIO
    forever: bool = False
    short_bytes: int = 0


class NumberedDisk(Disk):
    """A disk that numbers its persistence calls: whatever changes a file, a directory or a lock, and opening files."""

    def __init__(self, locks: Locks | None = None) -> None:
        """`calls` are the names of the calls so far, in order.

        `levels_above` says how many directories above a path lead to it, None for all that there are: how deep a test's own
        directory is differs from machine to machine, and the numbers of calls shall not.
        """
        super().__init__(locks)
        self.calls: list[str] = []
        self.levels_above: int | None = 1

    def above(self, path: Path) -> list[Path]:
        """As many as there shall be."""
        return super().above(path) if self.levels_above is None else list(path.parents)[: self.levels_above]

    def step(self, name: str, act: Callable[[], T]) -> T:
        """Do one numbered call."""
        self.calls.append(name)
        return act()

    def make_directory(self, name: str, within: int | None) -> None:
        """Numbered."""
        self.step("make_directory", lambda: Disk.make_directory(self, name, within))

    def open_file(self, name: str, within: int, flags: int) -> int:
        """Numbered."""
        return self.step("open", lambda: Disk.open_file(self, name, within, flags))

    def write_some(self, fd: int, data: memoryview, offset: int | None) -> int:
        """Numbered."""
        return self.step("write", lambda: Disk.write_some(self, fd, data, offset))

    def sync(self, fd: int) -> None:
        """Numbered."""
        self.step("sync", lambda: self.flush(fd, directory=False))

    def sync_directory(self, fd: int) -> None:
        """Numbered."""
        self.step("sync_directory", lambda: self.flush(fd, directory=True))

    def flush(self, fd: int, *, directory: bool) -> None:
        """What a sync does."""
        if directory:
            Disk.sync_directory(self, fd)
        else:
            Disk.sync(self, fd)

    def truncate(self, fd: int, size: int) -> None:
        """Numbered."""
        self.step("truncate", lambda: Disk.truncate(self, fd, size))

    def rename(self, old: str, new: str, within: int) -> None:
        """Numbered."""
        self.step("rename", lambda: Disk.rename(self, old, new, within))

    def unlink(self, name: str, within: int) -> None:
        """Numbered."""
        self.step("unlink", lambda: Disk.unlink(self, name, within))

    def lock(self, fd: int) -> bool:
        """Numbered."""
        return self.step("lock", lambda: Disk.lock(self, fd))

    def unlock(self, fd: int) -> None:
        """Numbered."""
        self.step("unlock", lambda: Disk.unlock(self, fd))


class FaultyDisk(NumberedDisk):
    """A numbered disk with at most one fault."""

    def __init__(self, fault: Fault | None = None, locks: Locks | None = None) -> None:
        """Without a fault it only counts."""
        super().__init__(locks)
        self.fault = fault
        self.dead = False
        self._failing: str | None = None  # name of the calls that fail from now on
        self._open: set[int] = set()

    def fail_next(self, name: str, code: int) -> None:
        """Let the next call of that name fail, whatever its number."""
        self.fault = Fault(at=0, kind="error", code=code)
        self._failing = name

    def fail_always(self, name: str, code: int) -> None:
        """Let every later call of that name fail."""
        self.fault = Fault(at=0, kind="error", code=code, forever=True)
        self._failing = name

    def open_directory(self, name: str, within: int | None) -> int:
        """Remembers the descriptor."""
        fd = super().open_directory(name, within)
        self._open.add(fd)
        return fd

    def open_file(self, name: str, within: int, flags: int) -> int:
        """Remembers the descriptor."""
        fd = super().open_file(name, within, flags)
        self._open.add(fd)
        return fd

    def flush(self, fd: int, *, directory: bool) -> None:
        """Nothing, on a descriptor that is open: the machine of a simulated death stays up, and flushing would only take time."""
        os.fstat(fd)

    def close(self, fd: int) -> None:
        """Forgets the descriptor."""
        self._open.discard(fd)
        super().close(fd)

    def write_some(self, fd: int, data: memoryview, offset: int | None) -> int:
        """Stores only a part if that is the fault."""
        fault = self.fault
        if fault is not None and fault.kind == "short" and len(self.calls) + 1 == fault.at:
            data = data[: fault.short_bytes]
            self._failing = "write"
            self.calls.append("write")
            return Disk.write_some(self, fd, data, offset) if data else self._fail(fault)
        return super().write_some(fd, data, offset)

    def step(self, name: str, act: Callable[[], T]) -> T:
        """Do one numbered call, or what the fault makes of it."""
        if self.dead:
            raise Crashed
        self.calls.append(name)
        fault = self.fault
        if fault is None:
            return act()
        hit = len(self.calls) == fault.at
        if (hit and fault.kind == "error") or name == self._failing:
            self._failing = name if fault.forever else None
            self._fail(fault)
        if hit and fault.kind == "crash_entry":
            self._die()
        try:
            return act()
        finally:
            if hit and fault.kind == "crash_exit":
                self._die()

    def bury(self) -> None:
        """Close every descriptor that the dead process left open, which also frees its locks."""
        self.dead = True
        for fd in self._open:
            with suppress(OSError):
                os.close(fd)
        self._open.clear()

    def _die(self) -> None:
        self.dead = True
        raise Crashed

    def _fail(self, fault: Fault) -> int:
        raise OSError(fault.code, os.strerror(fault.code))


class KillingDisk(NumberedDisk):
    """A numbered disk that ends its process by SIGKILL at one call."""

    def __init__(self, at: int, *, exit_of_call: bool, locks: Locks | None = None) -> None:
        """Die at call number `at` (from 1): before it, or with `exit_of_call` right after it returned."""
        super().__init__(locks)
        self._at, self._exit_of_call = at, exit_of_call

    @classmethod
    def from_environment(cls) -> "NumberedDisk":
        """The disk that `SEMEL_TEST_KILL` asks for, as in `17:entry` or `17:exit`; one that only counts if it is not set."""
        text = os.environ.get(KILL_VARIABLE, "")
        if not text:
            return NumberedDisk()
        number, _, when = text.partition(":")
        if not number.isdecimal() or when not in ("entry", "exit"):
            raise BadSettings(f"{KILL_VARIABLE}={text!r} is not a number and `entry` or `exit`, as in 17:entry")
        return cls(int(number), exit_of_call=when == "exit")

    def step(self, name: str, act: Callable[[], T]) -> T:
        """Do one numbered call, or die."""
        self.calls.append(name)
        hit = len(self.calls) == self._at
        if hit and not self._exit_of_call:
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            return act()
        finally:
            if hit:
                os.kill(os.getpid(), signal.SIGKILL)
