"""The raw floors: the same bytes and the same number of syncs without semel, and a log read, hashed and decoded without it."""

import fcntl
import hashlib
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from msgspec import json

from semel.core.records import Record
from semel.testing.faults import NumberedDisk


class RecordingDisk(NumberedDisk):
    """A real disk that keeps how many bytes were written before each sync, over all files and directories, in order."""

    def __init__(self) -> None:
        """Nothing was written yet; `pending` are bytes that no sync has followed."""
        super().__init__()
        self.syncs: list[int] = []
        self.pending = 0

    def write_some(self, fd: int, data: memoryview, offset: int | None) -> int:
        """Counts what was written."""
        done = super().write_some(fd, data, offset)
        self.pending += done
        return done

    def sync(self, fd: int) -> None:
        """Counted."""
        super().sync(fd)
        self._synced()

    def sync_directory(self, fd: int) -> None:
        """Counted like any other."""
        super().sync_directory(fd)
        self._synced()

    def _synced(self) -> None:
        self.syncs.append(self.pending)
        self.pending = 0


def plain_sync(fd: int) -> None:
    """The plain call that makes a file durable, as semel's own disk makes it."""
    if sys.platform == "darwin":
        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
    else:
        os.fdatasync(fd)


def write_and_sync(directory: Path, syncs: Sequence[int], *, files: int = 1) -> float:
    """Seconds that it takes to write so many bytes before each sync, at the end of a growing file, with the plain calls.

    With several files each gets all of it, and they take turns sync by sync.
    """
    data = memoryview(b"x" * max(syncs, default=0))
    paths = [directory / f"floor-{at}" for at in range(files)]
    fds = [os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_TRUNC, 0o600) for path in paths]
    try:
        started = time.perf_counter()
        for size in syncs:
            for fd in fds:
                if size:
                    os.write(fd, data[:size])
                plain_sync(fd)
        return time.perf_counter() - started
    finally:
        for path, fd in zip(paths, fds, strict=True):
            os.close(fd)
            path.unlink()


def read_hash_decode(log: Path) -> float:
    """Seconds that it takes to read a log, hash its chain and decode its records: what no reader of it can do without."""
    started, previous = time.perf_counter(), b"0" * 64
    decode = json.Decoder(Record).decode
    for seq, line in enumerate(log.read_bytes().split(b"\n")[:-1]):
        fields = line.split(b" ", 10)
        digest = hashlib.sha256(previous + line[: -len(fields[10]) - 65])
        digest.update(fields[10])
        previous = digest.hexdigest().encode()
        if seq:
            decode(fields[10])
    return time.perf_counter() - started
