"""Blobs: one contract, two media; and deaths and power losses at every call of a put."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from semel.adapters.file.store import FileStore
from semel.adapters.file.writer import FileWriter
from semel.adapters.memory.store import Medium, MemoryStore
from semel.adapters.system import SystemClock
from semel.errors import UnsafeStore
from semel.ports.blobs import Blobs
from semel.testing.conformance import KNOWN
from semel.testing.conformance_blobs import BLOB_CHECKS, BlobBench, check_blobs
from semel.testing.faults import Crashed, Fault
from semel.testing.power import ForgetfulDisk


class MemoryBlobBench:
    def __init__(self) -> None:
        self.store = MemoryStore(SystemClock(), known=KNOWN, medium=Medium())

    def owner(self) -> Blobs:
        self.store.crash()
        return asyncio.run(self.store.open("box")).blobs

    def reader(self) -> Blobs:
        return self.store.blobs("box")

    def spoil(self, name: str) -> None:
        self.store.medium.logs["box"].blobs[name] = b"something else"

    def lose_power(self) -> None:
        self.store.crash(lose_unsynced=True)


class FileBlobBench:
    def __init__(self, root: Path, fault: Fault | None = None) -> None:
        self.root, self.fault, self.disks = root, fault, list[ForgetfulDisk]()
        self.writer: FileWriter | None = None

    def store(self) -> FileStore:
        self.disks.append(ForgetfulDisk(self.fault))
        return FileStore(self.root, SystemClock(), known=KNOWN, disk=self.disks[-1])

    def owner(self) -> Blobs:
        if self.writer is None:
            self.writer = asyncio.run(self.store().open("box"))
        return self.writer.blobs

    def reader(self) -> Blobs:
        return self.store().blobs("box")

    def spoil(self, name: str) -> None:
        (self.root / "sessions" / "box" / "blobs" / name).write_bytes(b"something else")

    def lose_power(self) -> None:
        self.disks[0].lose_power()
        self.writer = None


MEDIA: dict[str, Callable[[Path], BlobBench]] = {"memory": lambda root: MemoryBlobBench(), "file": FileBlobBench}


@pytest.mark.parametrize("medium", MEDIA)
@pytest.mark.parametrize("line", BLOB_CHECKS)
def test_blobs_keep_each_line_of_their_contract(line: str, medium: str, tmp_path: Path) -> None:
    BLOB_CHECKS[line](MEDIA[medium](tmp_path / "state"))


def test_the_suite_runs_whole_for_an_adapter_of_somebody_else() -> None:
    check_blobs(MemoryBlobBench)
    assert set(BLOB_CHECKS) == {f"BLOB-{n}" for n in range(1, 6)}


def put_calls(root: Path) -> range:
    """The numbers of the persistence calls of one put."""
    bench = FileBlobBench(root)
    blobs = bench.owner()
    before = len(bench.disks[-1].calls)
    blobs.put(b"content")
    after = len(bench.disks[-1].calls)
    bench.disks[-1].bury()
    return range(before + 1, after + 1)


def test_a_death_or_power_loss_at_any_call_of_a_put_leaves_it_whole_or_collectable(tmp_path: Path) -> None:
    calls, cases = put_calls(tmp_path / "reference"), 0
    for at in calls:
        for kind in ("crash_entry", "crash_exit"):
            for power in (False, True):
                root = tmp_path / f"{at}-{kind}-{power}"
                bench = FileBlobBench(root, Fault(at=at, kind=kind))
                blobs = bench.owner()
                with pytest.raises(Crashed):
                    blobs.put(b"content")
                bench.lose_power() if power else bench.disks[0].bury()
                after = FileBlobBench(root)
                again = after.owner()
                for name in again.names():
                    assert again.get(name) == b"content"
                name = again.put(b"content")
                again.collect({name})
                assert os.listdir(root / "sessions" / "box" / "blobs") == [name]
                after.disks[0].bury()
                cases += 1
    print(f"{len(calls)} calls of a put, {cases} deaths")
    assert len(calls) >= 8
    assert cases == 4 * len(calls)


def test_a_planted_link_is_neither_followed_nor_replaced(tmp_path: Path) -> None:
    bench = FileBlobBench(tmp_path / "state")
    blobs = bench.owner()
    name = blobs.put(b"content")
    path = tmp_path / "state" / "sessions" / "box" / "blobs" / name
    path.unlink()
    (tmp_path / "secret").write_bytes(b"content")
    path.symlink_to(tmp_path / "secret")
    with pytest.raises(UnsafeStore):
        blobs.get(name)
    with pytest.raises(UnsafeStore):
        blobs.put(b"content")
    bench.disks[-1].bury()
