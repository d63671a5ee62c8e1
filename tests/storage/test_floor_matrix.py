"""T20f: three builds write and three read, on a floor in each of eight states: an older one refuses before it reads a record."""

import errno
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

from semel.adapters.file.disk import Disk
from semel.adapters.file.floor import FileFloor, decode_floor, encode_floor
from semel.adapters.file.store import FileStore
from semel.adapters.system import SystemClock
from semel.core.frame import scan
from semel.errors import NewerWriter, StoreError
from semel.testing.faults import FaultyDisk
from storage.logs import lineage_payload, payload

BUILDS = {"N-1": ("a/v1",), "N": ("a/v1", "b/v1"), "N+1": ("a/v1", "b/v1", "c/v1")}
NEWEST = frozenset(BUILDS["N+1"])
FILES = ("absent", "older", "equal", "newer", "torn", "flipped", "unreadable", "directory not synced")
DAMAGED = ("torn", "flipped", "unreadable")


class Watching(FaultyDisk):
    """Sees what the floor held when the first gated frame was written, and which records a reader looked at."""

    def __init__(self, root: Path, *, unreadable: bool = False) -> None:
        super().__init__()
        self.path, self.unreadable, self.floor, self.logs_read = root / "wal-feature-floor", unreadable, None, 0

    def open_file(self, name: str, within: int, flags: int) -> int:
        if self.unreadable and name == self.path.name:
            raise OSError(errno.EACCES, "Permission denied")
        self.logs_read += name == "wal.log"
        return super().open_file(name, within, flags)

    def write_some(self, fd: int, data: memoryview, offset: int | None) -> int:
        if b"\n3 " in bytes(data) and self.floor is None:
            self.floor = decode_floor(self.path.read_bytes())
        return super().write_some(fd, data, offset)


def plant_floor(root: Path, state: str, names: tuple[str, ...]) -> None:
    path = root / "wal-feature-floor"
    whole = encode_floor(frozenset(names))
    content = {
        "older": encode_floor(frozenset(names[:-1])),
        "newer": encode_floor(NEWEST | {"d/v1"} if names == BUILDS["N+1"] else NEWEST),
        "torn": whole[: len(whole) // 2],
        "flipped": whole[:20] + bytes([whole[20] ^ 4]) + whole[21:],
    }
    if state not in ("absent", "directory not synced"):
        root.mkdir(mode=0o700)
        path.write_bytes(content.get(state, whole))
        path.chmod(0o600)


def store(root: Path, names: frozenset[str], disk: Disk) -> FileStore:
    return FileStore(root, SystemClock(), known=names, disk=disk)


async def write(root: Path, build: str, state: str) -> str:
    """What a build comes to that writes a record with its newest feature."""
    names = BUILDS[build]
    disk = Watching(root, unreadable=state == "unreadable")
    try:
        writer = await store(root, frozenset(names), disk).open("box")
    except NewerWriter:
        assert disk.logs_read == 0
        return "refused as newer"
    except StoreError:
        assert not (root / "sessions" / "box").exists()
        return "refused as damaged"
    await writer.append([lineage_payload(), payload(20)])
    if state == "directory not synced":
        disk.fail_next("sync_directory", errno.EIO)
        with pytest.raises(StoreError):
            await writer.append([payload(20), payload(20, requires=names[-1:])])
        assert scan((root / "sessions" / "box" / "wal.log").read_bytes()).point.seq == 2
    await writer.append([payload(20), payload(20, requires=names[-1:])])
    await writer.close()
    assert disk.floor is not None
    assert names[-1] in disk.floor, "the floor is raised before the first record that needs it"
    return "written"


async def read(root: Path, build: str) -> str:
    """What a build comes to that reads and opens that session, in a process of its own."""
    names, before = frozenset(BUILDS[build]), {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    disk = Watching(root)
    try:
        assert store(root, names, disk).read("box").head == 3
        await (await store(root, names, disk).open("box")).close()
    except NewerWriter:
        assert disk.logs_read == 0, "it refuses before it reads a record"
        assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before
        return "refused as newer"
    return "read"


@pytest.mark.anyio
async def test_t20f_every_build_meets_every_floor(tmp_path: Path) -> None:
    ends: Counter[str] = Counter()
    for writer, names in BUILDS.items():
        for state in FILES:
            for reader, known in BUILDS.items():
                root = tmp_path / f"{writer}-{reader}-{state.replace(' ', '-')}"
                plant_floor(root, state, names)
                wrote = await write(root, writer, state)
                expected = {"newer": "refused as newer", **dict.fromkeys(DAMAGED, "refused as damaged")}
                assert wrote == expected.get(state, "written"), (writer, state)
                if wrote == "written":
                    found = await read(root, reader)
                    assert found == ("read" if set(names) <= set(known) else "refused as newer"), (writer, reader, state)
                    ends[found] += 1
                else:
                    ends[wrote] += 1
    print(f"T20f: {ends.total()} cells: {dict(ends)}")
    assert ends.total() == 72
    assert ends == {"read": 24, "refused as newer": 21, "refused as damaged": 27}


@pytest.mark.anyio
async def test_t20f_a_writer_that_raises_the_floor_too_low_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = FileFloor.raise_to

    def too_low(self: FileFloor, names: Iterable[str]) -> None:
        whole(self, sorted(names)[:-1])

    monkeypatch.setattr(FileFloor, "raise_to", too_low)
    plant_floor(tmp_path / "root", "older", BUILDS["N"])
    with pytest.raises(AssertionError, match="the floor is raised before"):
        await write(tmp_path / "root", "N", "older")


@pytest.mark.anyio
async def test_t20f_a_reader_that_does_not_look_at_the_floor_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert await write(tmp_path / "root", "N", "absent") == "written"
    monkeypatch.setattr(FileStore, "_refuse_newer_floor", lambda _self: None)
    with pytest.raises(AssertionError, match="it refuses before it reads a record"):
        await read(tmp_path / "root", "N-1")
