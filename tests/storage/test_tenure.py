"""Corners of taking and stamping a lease, and the system's own time and identities."""

import errno
from pathlib import Path

import pytest

from semel.adapters.file.disk import Disk
from semel.adapters.file.locks import WholeFileLocks
from semel.adapters.system import SystemClock, SystemIds
from semel.errors import SessionBusy, StoreError
from semel.testing.faults import FaultyDisk
from storage.conftest import MakeStore, plant, refused_unchanged
from storage.logs import build, lineage_payload, payload


class _Asked(Disk):
    """A platform whose readers hold the lock while they ask about it: the first tries run into one."""

    def __init__(self, in_the_way: int) -> None:
        super().__init__(WholeFileLocks())
        self.in_the_way, self.pauses = in_the_way, 0

    def lock(self, fd: int) -> bool:
        self.in_the_way -= 1
        return self.in_the_way < 0 and super().lock(fd)

    def pause(self) -> None:
        self.pauses += 1


@pytest.mark.anyio
async def test_an_open_that_runs_into_a_reader_asking_for_the_owner_tries_again_but_not_for_ever(make_store: MakeStore) -> None:
    disk = _Asked(in_the_way=3)
    await (await make_store(disk).open("box")).close()
    assert disk.pauses == 3
    with pytest.raises(SessionBusy, match="in time"):
        await make_store(_Asked(in_the_way=99)).open("box")


@pytest.mark.anyio
async def test_a_lock_that_fails_for_another_reason_is_named_and_nothing_stays_open(make_store: MakeStore, root: Path) -> None:
    disk = FaultyDisk()
    disk.fail_next("lock", errno.EIO)
    with pytest.raises(StoreError, match=r"could not lock .*lease: Input/output error. Nothing was changed"):
        await make_store(disk).open("box")
    assert not disk._open
    assert (root / "sessions" / "box" / "lease").read_bytes() == b""
    await (await make_store(disk).open("box")).close()


@pytest.mark.anyio
async def test_a_log_that_has_used_up_all_fences_is_refused_and_not_changed(make_store: MakeStore, root: Path) -> None:
    last = build([([lineage_payload(), payload(10)], 2**63 - 1, True)])
    path = plant(root, last.data)
    with pytest.raises(StoreError, match="used up all fences"):
        await make_store().open("box")
    assert path.read_bytes() == last.data
    assert make_store().read("box").head == 1
    over = build([([lineage_payload(), payload(10)], 2**63, True)])
    plant(root, over.data)
    await refused_unchanged(make_store, root, StoreError)


def test_the_clock_tells_unix_milliseconds_and_a_time_that_never_goes_back() -> None:
    clock = SystemClock()
    assert clock.now_ms() > 1_767_225_600_000
    assert clock.monotonic() <= clock.monotonic()


@pytest.mark.anyio
async def test_sleeping_passes_time_on_the_monotonic_clock() -> None:
    clock = SystemClock()
    before = clock.monotonic()
    await clock.sleep(0.002)
    assert clock.monotonic() - before >= 0.002


def test_identities_are_128_random_bits_in_hex() -> None:
    found = {SystemIds().fresh() for _ in range(100)}
    assert len(found) == 100
    assert all(len(one) == 32 and int(one, 16) >= 0 and one == one.lower() for one in found)
