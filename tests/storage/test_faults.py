"""Deaths, power losses and errors at every persistence call of the file store (proof T1, T2, T9 to T12).

The scenario acknowledges to an oracle outside the store. Whatever happens at whichever call, a later open finds everything
that was acknowledged, and nothing but prefixes of what was written.
"""

import errno
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from semel.adapters.file.store import FileStore
from semel.core.frame import TailKind, encode_frames, scan
from semel.errors import AppendRefused, SemelError, WriterPoisoned
from semel.testing.faults import Crashed, Fault, FaultyDisk
from semel.testing.power import ForgetfulDisk
from storage.conftest import MakeStore, plant
from storage.logs import lineage_payload, payload, reference_log
from storage.scenario import Oracle, copy_tree, death_sweep, holds, reference_calls, scenario, store_at

LOG = reference_log()
CODES = (errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EMFILE, errno.ENOMEM, errno.ESTALE)


async def outcome(root: Path, disk: FaultyDisk, oracle: Oracle) -> str:
    """What the scenario says to one error; afterwards the session holds what it should."""
    said = None
    try:
        await scenario(store_at(root, disk), oracle)
    except SemelError as error:
        said = error
    disk.bury()
    await holds(root, oracle)
    if said is None:
        return "went on"
    assert str(root) in str(said)
    assert "\n" not in str(said)
    return said.code


@pytest.mark.anyio
async def test_t1_a_death_at_any_call_loses_nothing_acknowledged(tmp_path: Path) -> None:
    calls = Counter(await reference_calls(tmp_path / "reference"))
    deaths = await death_sweep(tmp_path / "deaths")
    print(f"T1: {deaths} deaths before and behind {calls.total()} calls: {dict(calls)}")
    assert (calls.total(), deaths) == (61, 122)


@pytest.mark.anyio
async def test_t9_a_power_loss_at_any_call_loses_nothing_acknowledged(tmp_path: Path) -> None:
    losses = await death_sweep(tmp_path, disk=ForgetfulDisk)
    print(f"T9: {losses} power losses before and behind every call")
    assert losses == 122


async def _crashed_image(root: Path) -> None:
    """A log with a torn tail, a lease and a gated record, as a death in mid write leaves it."""
    plant(root, LOG.data[: LOG.frames[20].offset + 70])


@pytest.mark.anyio
async def test_a_death_at_any_call_of_a_recovery_can_be_recovered_from(tmp_path: Path) -> None:
    runs = 0
    for at in range(1, 100):
        root, disk = tmp_path / f"{at}", FaultyDisk(Fault(at=at))
        await _crashed_image(root)
        oracle = Oracle(list(LOG.frames[:20]), {frame.payload for frame in LOG.frames})
        try:
            await holds(root, Oracle(list(oracle.acknowledged), set(oracle.attempted)), disk)
        except Crashed:
            disk.bury()
        else:
            break
        again = 0
        for second in range(1 + at % 3, 100, 3):  # and the recovery of the recovery dies, too
            copy, disk = tmp_path / f"{at}-{second}", FaultyDisk(Fault(at=second, kind="crash_exit"))
            copy_tree(root, copy)
            try:
                await holds(copy, Oracle(list(oracle.acknowledged), set(oracle.attempted) | {payload(11).json}), disk)
            except Crashed:
                disk.bury()
            else:
                break
            if (at + second) % 5 == 0:
                await holds(copy, Oracle(list(oracle.acknowledged), set(oracle.attempted) | {payload(11).json}))
            again += 1
        runs += again
    print(f"T2: {at - 1} calls of a recovery, {runs} second deaths")
    assert at - 1 >= 30
    assert runs > 400


async def error_sweep(place: Path, make: Callable[[], FaultyDisk] = FaultyDisk, codes: Sequence[int] = CODES) -> Counter[str]:
    """Every error at every call, once and for ever; how often the scenario said what, by the name of the call."""
    outcomes: Counter[str] = Counter()
    for at, name in enumerate(await reference_calls(place / "reference"), 1):
        for code in codes:
            for forever in (False, True):
                disk = make()
                disk.fault = Fault(at=at, kind="error", code=code, forever=forever)
                said = await outcome(place / f"{at}-{code}-{forever}", disk, Oracle())
                outcomes[f"{name}: {said}"] += 1
    return outcomes


@pytest.mark.anyio
async def test_t10_every_error_at_every_call_is_named_and_loses_nothing_acknowledged(tmp_path: Path) -> None:
    outcomes = await error_sweep(tmp_path)
    print(f"T10: {outcomes.total()} errors: {dict(outcomes)}")
    assert {said for said in outcomes if said.endswith("went on")} == {"unlock: went on"}
    assert outcomes.total() == 61 * 9 * 2


@pytest.mark.anyio
async def test_t10_a_store_that_passes_over_an_error_of_a_sync_is_caught(tmp_path: Path) -> None:
    class Hushed(FaultyDisk):
        def sync(self, fd: int) -> None:
            with suppress(OSError):
                super().sync(fd)

    outcomes = await error_sweep(tmp_path, Hushed, codes=[errno.EIO])
    assert outcomes["sync: went on"] == 2 * 11


@pytest.mark.anyio
async def test_a_failed_sync_ends_its_writer_and_is_never_tried_again(tmp_path: Path) -> None:
    calls = await reference_calls(tmp_path / "reference")
    poisoned = 0
    for at, name in enumerate(calls, 1):
        if name != "sync":
            continue
        disk, oracle = FaultyDisk(Fault(at=at, kind="error")), Oracle()  # it fails once; the next sync would succeed
        with pytest.raises(SemelError) as caught:
            await scenario(store_at(tmp_path / f"{at}", disk), oracle)
        if isinstance(caught.value, WriterPoisoned):
            poisoned += 1
            assert disk.calls[at:] == []
            assert caught.value.happened == "maybe"
        disk.bury()
        await holds(tmp_path / f"{at}", oracle)
    print(f"T11: {poisoned} writers whose sync failed, of {calls.count('sync')} syncs")
    assert poisoned == 5  # the five barriers; the other syncs are those of leases, floor, status and recovery


@pytest.mark.anyio
async def test_a_poisoned_writer_is_closed_without_another_sync_and_frees_the_session(make_store: MakeStore) -> None:
    disk = FaultyDisk()
    store = make_store(disk)
    writer = await store.open("box")
    await writer.append([lineage_payload(), payload(20)])
    disk.fail_next("sync", errno.EIO)
    with pytest.raises(WriterPoisoned, match=r"wal\.log: a sync failed: .*Input/output error"):
        await writer.append([payload(30)])
    disk.calls.clear()
    with pytest.raises(WriterPoisoned):
        await writer.append([payload(40)])
    for refused in (lambda: writer.note([payload(40)]), writer.check, lambda: writer.publish_status(b"{}")):
        with pytest.raises(WriterPoisoned):
            refused()
    await writer.close()
    await writer.close()
    assert disk.calls == ["unlock"]
    disk.calls.clear()
    again = await store.open("box")
    assert disk.calls.count("write") == 2  # the lease, and once more what the page cache may only claim to have stored
    assert again.head == 2
    await again.close()


@pytest.mark.anyio
async def test_a_short_write_at_any_byte_is_taken_back_and_the_writer_goes_on(make_store: MakeStore, place: Path) -> None:
    batch = [payload(20), payload(60)]
    writer = await make_store().open("box")
    await writer.append([lineage_payload(), payload(20)])
    size = sum(len(frame.payload) for frame in await writer.append(batch)) + 2 * 100
    await writer.close()
    tried = 0
    disk = FaultyDisk()
    writer = await make_store(disk).open("box")
    await writer.append([payload(20)])
    for stored in range(1, size):
        before = (place / "wal.log").read_bytes()
        disk.fault = Fault(at=len(disk.calls) + 1, kind="short", code=errno.ENOSPC, short_bytes=stored)
        with pytest.raises(AppendRefused, match="No space left"):
            await writer.append(batch)
        assert (place / "wal.log").read_bytes() == before
        tried += 1
    (frame,) = await writer.append([payload(30)])
    assert frame.seq == writer.head == 5
    await writer.close()
    assert scan((place / "wal.log").read_bytes()).tail.kind is TailKind.CLEAN
    print(f"{tried} short writes")
    assert tried > 250


async def short_writes(store: FileStore, disk: FaultyDisk, log: Path) -> int:
    """24 frames of about 400 bytes, each cut short at every byte of it; once there is space again, each is written whole."""
    tried = 0
    writer = await store.open("box")
    await writer.append([lineage_payload(), payload(20)])
    for number in range(24):
        record, before = payload(245 + number * 3), log.read_bytes()
        size = encode_frames([record], scan(before).point, at_ms=1, fence=1, synced=0).point.offset - len(before)
        for stored in range(size):
            disk.fault = Fault(at=len(disk.calls) + 1, kind="short", code=errno.ENOSPC, short_bytes=stored)
            with pytest.raises(AppendRefused, match="No space left"):
                await writer.append([record])
            assert disk.status_of(log).st_size == len(before)
            tried += 1
        disk.fault = None
        await writer.append([record])
        assert log.read_bytes().startswith(before)
    await writer.close()
    assert scan(log.read_bytes()).point.seq == 26
    return tried


@pytest.mark.anyio
async def test_t12_a_short_write_at_every_byte_of_every_frame_is_taken_back_and_no_space_again_loses_nothing(
    make_store: MakeStore, place: Path
) -> None:
    disk = FaultyDisk()
    tried = await short_writes(make_store(disk), disk, place / "wal.log")
    print(f"T12: {tried} short writes of 24 frames")
    assert tried >= 9_600


@pytest.mark.anyio
async def test_t12_a_writer_that_leaves_what_arrived_is_caught(make_store: MakeStore, place: Path) -> None:
    class Uncut(FaultyDisk):
        def truncate(self, fd: int, size: int) -> None:
            pass

    disk = Uncut()
    with pytest.raises((AssertionError, SemelError)):
        await short_writes(make_store(disk), disk, place / "wal.log")


@pytest.mark.anyio
async def test_a_short_write_that_can_go_on_is_completed(make_store: MakeStore, place: Path) -> None:
    class Slow(FaultyDisk):
        def write_some(self, fd: int, data: memoryview, offset: int | None) -> int:
            return super().write_some(fd, data[:7], offset)

    writer = await make_store(Slow()).open("box")
    frames = await writer.append([lineage_payload(), payload(200)])
    await writer.close()
    assert scan((place / "wal.log").read_bytes()).frames == frames


@pytest.mark.anyio
async def test_a_write_that_cannot_be_taken_back_poisons_the_writer(make_store: MakeStore) -> None:
    class NoCut(FaultyDisk):
        def truncate(self, fd: int, size: int) -> None:
            raise OSError(errno.EIO, "Input/output error")

    disk = NoCut()
    writer = await make_store(disk).open("box")
    await writer.append([lineage_payload(), payload(20)])
    disk.fault = Fault(at=len(disk.calls) + 1, kind="short", code=errno.ENOSPC, short_bytes=9)
    with pytest.raises(WriterPoisoned, match=r"a write failed \(No space left on device\) and could not be taken back"):
        await writer.append([payload(20)])
    await writer.close()
    found = await make_store().open("box")
    assert found.head == 1
    await found.close()
