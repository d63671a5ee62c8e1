"""The media that the conformance suites run on: memory, and real files under each kind of lock."""

import errno
from pathlib import Path
from typing import Literal

from semel.adapters.file.floor import FileFloor
from semel.adapters.file.locks import Locks
from semel.adapters.file.root import Root
from semel.adapters.file.store import FileStore
from semel.adapters.memory.store import Medium, MemoryFloor, MemoryStore
from semel.adapters.system import SystemClock
from semel.core.ceiling import CEILING_BYTES
from semel.core.frame import Point  # noqa: F401  re-exported for the tests
from semel.ports.log import SessionStore
from semel.testing.conformance import KNOWN
from semel.testing.faults import Fault, FaultyDisk


class MemoryBench:
    def __init__(self) -> None:
        self.medium = Medium()

    def process(self, ceiling_bytes: int = CEILING_BYTES) -> MemoryStore:
        return MemoryStore(SystemClock(), known=KNOWN, medium=self.medium, ceiling_bytes=ceiling_bytes)

    def end(self, store: SessionStore) -> None:
        assert isinstance(store, MemoryStore)
        store.crash()

    def raw(self, session: str) -> bytes:
        return bytes(self.medium.logs[session].data) if session in self.medium.logs else b""

    def plant(self, session: str, data: bytes) -> None:
        self.medium.logs[session].data[:] = data

    def steal(self, session: str) -> None:
        self.medium.logs[session].holder = None

    def fail_next(self, call: Literal["write", "sync"]) -> None:
        self.medium.fault = call


class FileBench:
    """Each process has a disk of its own, so that its death closes exactly its own descriptors."""

    def __init__(self, root: Path, *, inline: bool = True, locks: Locks | None = None) -> None:
        self.root, self.inline, self.locks = root, inline, locks
        self.disks: dict[int, FaultyDisk] = {}
        self.last: FaultyDisk | None = None

    def process(self, ceiling_bytes: int = CEILING_BYTES) -> FileStore:
        disk, clock = FaultyDisk(locks=self.locks), SystemClock()
        store = FileStore(self.root, clock, known=KNOWN, disk=disk, inline_sync=self.inline, ceiling_bytes=ceiling_bytes)
        self.disks[id(store)] = self.last = disk
        return store

    def end(self, store: SessionStore) -> None:
        self.disks[id(store)].bury()

    def path(self, session: str) -> Path:
        return self.root / "sessions" / session / "wal.log"

    def raw(self, session: str) -> bytes:
        path = self.path(session)
        return path.read_bytes() if path.exists() else b""

    def plant(self, session: str, data: bytes) -> None:
        with self.path(session).open("r+b") as file:
            file.truncate(0)
            file.write(data)

    def steal(self, session: str) -> None:
        self.path(session).with_name("lease").unlink()

    def fail_next(self, call: Literal["write", "sync"]) -> None:
        assert self.last is not None
        self.last.fail_next(call, errno.ENOSPC if call == "write" else errno.EIO)


class MemoryFloorBench:
    def __init__(self) -> None:
        self.medium = Medium()

    def process(self) -> MemoryFloor:
        return MemoryFloor(self.medium)

    def calls(self) -> int:
        return 0

    def spoil(self) -> None:
        self.medium.floor = None


class FileFloorBench:
    def __init__(self, root: Path, locks: Locks | None = None) -> None:
        self.root, self.disk = root, FaultyDisk(locks=locks)

    def process(self) -> FileFloor:
        return FileFloor(Root(self.root, self.disk))

    def calls(self) -> int:
        return len(self.disk.calls)

    def spoil(self) -> None:
        path = self.root / "wal-feature-floor"
        path.write_bytes(path.read_bytes()[:-1])


def fault(**fields: object) -> Fault:
    return Fault(**fields)  # type: ignore[arg-type]  # free words
