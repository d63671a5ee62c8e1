"""Whom a lease file names to those who want to reach its holder, and what a tenure leaves in that file and open behind it."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from semel.adapters.file.disk import Disk
from semel.adapters.file.lease import Look, contact_of, decode_holder
from semel.errors import LeaseLost, SemelError
from semel.ports.control import Contact
from semel.testing.faults import FaultyDisk
from storage.conftest import MakeStore, plant
from storage.logs import LINEAGE, lineage_payload, payload, reference_log

LOG = reference_log()
SECTOR = 512
HOST, BOOT = Disk().machine()
US = {"fence": 7, "pid": os.getpid(), "started": Disk().process()[1], "host": HOST, "boot": BOOT, "socket": "/run/x.sock"}


@contextmanager
def locked(lease: Path, content: bytes) -> Iterator[None]:
    """Somebody holds a lease whose file says this."""
    lease.write_bytes(content)
    lease.chmod(0o600)
    with lease.open("r+b") as file:
        assert Disk().lock(file.fileno())
        yield


def test_nobody_is_to_be_reached_where_nobody_holds_the_lease_whatever_its_file_says(
    make_store: MakeStore, root: Path, place: Path
) -> None:
    plant(root, LOG.data)
    assert make_store().contact("box") is None
    (place / "lease").write_bytes(msgspec.json.encode(US))
    (place / "lease").chmod(0o600)
    assert make_store().contact("box") is None
    assert make_store().contact("other") is None
    assert contact_of(Disk(), Look(content=msgspec.json.encode(US), owner=None), LINEAGE) is None


def test_a_holder_of_this_machine_is_reached_where_its_lease_says(make_store: MakeStore, root: Path, place: Path) -> None:
    plant(root, LOG.data)
    with locked(place / "lease", msgspec.json.encode(US)):
        owner = f"process {os.getpid()} on {HOST}"
        found = make_store().contact("box")
        assert found == Contact(owner=owner, fence=7, lineage=LINEAGE, address="/run/x.sock")
    with locked(place / "lease", msgspec.json.encode({**US, "socket": None})):
        assert make_store().contact("box") == Contact(owner=owner, fence=7, lineage=LINEAGE, address=None)


@pytest.mark.parametrize(
    ("change", "owner"),
    [
        ({"host": "elsewhere"}, f"process {os.getpid()} on elsewhere"),
        ({"boot": "another boot"}, f"process {os.getpid()} on {HOST}"),
        ({"started": "1"}, "a process that is just opening it"),
        ({"pid": 0, "started": ""}, "a process that is just opening it"),
        ({"fence": -1}, "a process that does not say which"),
        ({"fence": 0}, "a process that does not say which"),  # no tenure has it
        ({"fence": 2**63 - 1}, "a process that does not say which"),  # none could follow
    ],
    ids=str,
)
def test_a_holder_that_its_lease_does_not_name_for_certain_has_no_address(
    change: dict[str, object], owner: str, make_store: MakeStore, root: Path, place: Path
) -> None:
    """Of another machine or boot, gone with its pid used again, or garbage: asking there could reach anybody."""
    plant(root, LOG.data)
    with locked(place / "lease", msgspec.json.encode({**US, **change})):
        assert make_store().contact("box") == Contact(owner=owner, fence=None, lineage=LINEAGE, address=None)
    with locked(place / "lease", b"\0 garbage"):
        assert (make_store().contact("box") or US) == Contact(
            owner="a process that does not say which", fence=None, lineage=LINEAGE, address=None
        )


def test_a_holder_that_is_the_first_process_of_its_machine_is_one_like_any_other(
    make_store: MakeStore, root: Path, place: Path
) -> None:
    """As semel is in a container that runs nothing else."""
    plant(root, LOG.data)

    class Container(Disk):
        def process_started(self, pid: int) -> str | None:
            return "5" if pid == 1 else None

    with locked(place / "lease", msgspec.json.encode({**US, "pid": 1, "started": "5"})):
        found = make_store(Container()).contact("box")
        assert found == Contact(owner=f"process 1 on {HOST}", fence=7, lineage=LINEAGE, address="/run/x.sock")


@pytest.mark.anyio
async def test_a_lease_file_is_always_one_sector_and_names_every_address_that_has_room_in_it(
    make_store: MakeStore, place: Path
) -> None:
    store, named = make_store(), set[int]()
    for length in (1, *range(280, SECTOR)):
        store.answer_at("/" * length)
        writer = await store.open("box")
        content = (place / "lease").read_bytes()
        assert len(content) == SECTOR
        assert content.endswith(b"\n")
        holder = decode_holder(content)
        assert holder is not None
        assert holder.fence == writer.fence
        if holder.socket is not None:
            assert holder.socket == "/" * length
            named.add(len(content.rstrip()))
        writer.check()
        await writer.close()
    assert max(named) == SECTOR - 1  # the newline needs the last byte


@pytest.mark.anyio
async def test_a_tenure_is_stamped_by_one_write_and_one_sync(make_store: MakeStore, root: Path, place: Path) -> None:
    plant(root, LOG.data)
    for content in (b"", b"garbage", b"x" * SECTOR, b"x" * (SECTOR + 1)):
        (place / "lease").write_bytes(content)
        (place / "lease").chmod(0o600)
        for too_long in (len(content) > SECTOR, False):
            disk = FaultyDisk()
            writer = await make_store(disk).open("box")
            expected = ["truncate", "write", "sync"] if too_long else ["write", "sync"]
            assert disk.calls[disk.calls.index("sync_directory") + 1 :][: len(expected)] == expected
            assert (place / "lease").stat().st_size == SECTOR
            await writer.close()


@pytest.mark.anyio
async def test_a_look_at_the_stamp_that_comes_short_does_not_take_the_lease_away(make_store: MakeStore, place: Path) -> None:
    class Short(Disk):
        def reads_as(self, fd: int, content: bytes) -> bool:
            return False

    writer = await make_store(Short()).open("box")
    writer.check()
    content = (place / "lease").read_bytes()
    for other in (content[:-1], content + b"x", content.replace(b'"fence":1', b'"fence":2')):
        (place / "lease").write_bytes(other)
        with pytest.raises(LeaseLost):
            writer.check()
    (place / "lease").write_bytes(content)
    writer.check()
    await writer.close()
    with pytest.raises(LeaseLost):
        writer.check()


class _Replacing(FaultyDisk):
    """A disk on which the lease file is replaced just before it is locked, the first few times."""

    def __init__(self, lease: Path) -> None:
        super().__init__()
        self.lease, self.times = lease, 2

    def lock(self, fd: int) -> bool:
        if self.times > 0:
            self.times -= 1
            self.lease.unlink()
            self.lease.touch(mode=0o600)
        return super().lock(fd)


@pytest.mark.anyio
async def test_no_descriptor_stays_open_behind_a_look_an_open_or_a_refusal(
    make_store: MakeStore, root: Path, place: Path
) -> None:
    """A lock lives as long as a descriptor of its file, so one that is forgotten keeps a session for the life of the process."""
    plant(root, LOG.data[:-5])
    (place / "lease").touch(mode=0o600)
    disk = _Replacing(place / "lease")
    store = make_store(disk)
    writer = await store.open("box")
    held = set(disk._open)
    for _ in range(3):
        assert store.owner("box") is not None
        assert store.contact("box") is not None
        assert store.read("box").frames
        with pytest.raises(SemelError):
            await make_store(disk).open("box")
    assert disk._open == held
    await writer.close()
    for call in ("lock", "sync", "sync_directory", "write"):
        disk.fail_next(call, errno.EIO)
        with pytest.raises(SemelError):
            await store.open("box")
        assert disk._open == set(), call
    (place / "wal.log").write_bytes(LOG.data.replace(b"\n", b"~", 1))
    for _ in range(2):
        with pytest.raises(SemelError):
            await store.open("box")
        with pytest.raises(SemelError):
            store.read("box")
    assert disk._open == set()


@pytest.mark.anyio
async def test_an_open_writes_again_exactly_what_no_later_record_calls_durable(make_store: MakeStore, root: Path) -> None:
    """The rest is on the disk for certain, and writing it once more could only harm it."""
    written: list[tuple[int | None, bytes]] = []

    class Watching(Disk):
        def write_some(self, fd: int, data: memoryview, offset: int | None) -> int:
            if os.fstat(fd).st_ino == log.stat().st_ino:
                written.append((offset, bytes(data)))
            return super().write_some(fd, data, offset)

    for frames in range(1, len(LOG.frames) + 1):
        end = LOG.data.index(b"\n", LOG.frames[frames - 1].offset) + 1
        testimony = max(frame.synced for frame in LOG.frames[:frames])
        first = LOG.frames[testimony + 1 if testimony else 0].offset  # a testimony of 0 is that of the lineage line, to nothing
        log = plant(root, LOG.data[:end])
        written.clear()
        await (await make_store(Watching()).open("box")).close()
        expected = [] if first == end else [(first, LOG.data[first:end])]
        assert written == expected, frames


@pytest.mark.anyio
async def test_a_session_that_was_opened_before_remembers_its_first_tenure(make_store: MakeStore, root: Path) -> None:
    """Fence 1 is a tenure like any other: the next one is above it, also where nothing was ever written."""
    fences = []
    for _ in range(3):
        writer = await make_store().open("box")
        fences.append(writer.fence)
        await writer.close()
    assert fences == [1, 2, 3]
    writer = await make_store().open("box")
    await writer.append([lineage_payload(), payload(20)])
    assert writer.fence == 4
    await writer.close()
