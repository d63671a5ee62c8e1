"""T13: a storm of signals changes nothing: calls that are interrupted are made again, and the log holds the same."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from semel.core.frame import TailKind, scan
from semel.testing.faults import FaultyDisk
from storage.scenario import Oracle, scenario, store_at

SIGNALS = (signal.SIGCHLD, signal.SIGWINCH, signal.SIGUSR1)
RUNS = 20


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


async def payloads(root: Path) -> list[tuple[bytes, tuple[str, ...]]]:
    """What one scenario leaves in its log."""
    disk = FaultyDisk()
    await scenario(store_at(root, disk), Oracle())
    disk.bury()
    (log,) = root.glob("sessions/*/wal.log")
    found = scan(log.read_bytes())
    assert found.tail.kind is TailKind.CLEAN
    return [(frame.payload, frame.requires) for frame in found.frames[1:]]


@pytest.mark.anyio
async def test_t13_a_storm_of_signals_leaves_the_same_records(tmp_path: Path) -> None:
    quiet = await payloads(tmp_path / "quiet")
    with storm() as caught:
        for number in range(RUNS):
            assert await payloads(tmp_path / str(number)) == quiet
        while len(caught) < RUNS:
            await payloads(tmp_path / f"more-{len(caught)}-{os.urandom(4).hex()}")
    print(f"{RUNS} runs under {len(caught)} signals")
    assert len(caught) >= RUNS
