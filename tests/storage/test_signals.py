"""T13: a storm of signals changes nothing: calls that are interrupted are made again, and the log holds the same."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from semel.adapters.file.store import FileStore
from semel.adapters.system import SystemClock
from semel.core.frame import TailKind, scan
from semel.testing.faults import NumberedDisk
from storage.conftest import KNOWN
from storage.logs import START_MS
from storage.scenario import Oracle, scenario

SIGNALS = (signal.SIGCHLD, signal.SIGWINCH, signal.SIGUSR1)


@contextmanager
def storm() -> Iterator[list[int]]:
    """Signals at a kilohertz, each with a handler of Python, until the block ends."""
    caught: list[int] = []
    before = {one: signal.signal(one, lambda number, _frame: caught.append(number)) for one in SIGNALS}
    over, main = threading.Event(), threading.main_thread().ident

    def send() -> None:
        number = 0
        while not over.wait(0.0005):
            signal.pthread_kill(main or 0, SIGNALS[number % len(SIGNALS)])
            number += 1

    sender = threading.Thread(target=send)
    sender.start()
    try:
        yield caught
    finally:
        over.set()
        sender.join()
        for one, handler in before.items():
            signal.signal(one, handler)


class StillClock(SystemClock):
    """A clock that stands: what a log then holds depends on nothing but its records."""

    def now_ms(self) -> int:
        return START_MS


async def log_of(root: Path) -> bytes:
    """The bytes that one scenario leaves, under a clock that stands."""
    disk = NumberedDisk()
    await scenario(FileStore(root, StillClock(), known=KNOWN, disk=disk), Oracle())
    (log,) = root.glob("sessions/*/wal.log")
    found = log.read_bytes()
    assert scan(found).tail.kind is TailKind.CLEAN
    return found


async def runs_under_a_storm(place: Path, runs: int) -> int:
    quiet = await log_of(place / "quiet")
    with storm() as caught:
        for number in range(runs):
            assert await log_of(place / str(number)) == quiet
        while len(caught) < runs:
            await log_of(place / f"more-{len(caught)}-{os.urandom(4).hex()}")
    print(f"T13: {runs} runs under {len(caught)} signals, all byte for byte the quiet one of {len(quiet)} bytes")
    return len(caught)


@pytest.mark.anyio
async def test_t13_a_hundred_runs_under_a_storm_of_signals_leave_the_same_bytes(tmp_path: Path) -> None:
    assert await runs_under_a_storm(tmp_path, 100) >= 100


@pytest.mark.anyio
async def test_t13_a_log_that_differs_in_one_stamp_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stamps = iter(range(START_MS, START_MS + 1000))
    monkeypatch.setattr(StillClock, "now_ms", lambda _self: next(stamps))
    with pytest.raises(AssertionError):
        await runs_under_a_storm(tmp_path, 1)
