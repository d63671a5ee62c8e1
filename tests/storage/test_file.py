"""The file store on real files: what is written when, and what an open makes of what it finds."""

import asyncio
import os
import threading
from pathlib import Path

import pytest

from semel.adapters.file.disk import Disk
from semel.core.frame import scan
from semel.errors import AppendRefused, ForeignWrite, InvariantBroken, LogDamaged, NewerWriter, StoreError, UnknownSession
from semel.testing.faults import FaultyDisk
from storage.conftest import MakeStore, contents, plant, refused_unchanged, written_once_more
from storage.logs import lineage_payload, payload, reference_log
from storage.test_frame import frame_line

LOG = reference_log()


@pytest.mark.anyio
async def test_the_first_barrier_syncs_the_file_and_every_directory_above_it(make_store: MakeStore) -> None:
    disk = FaultyDisk()
    writer = await make_store(disk).open("box")
    disk.calls.clear()
    await writer.append([lineage_payload(), payload(20)])
    assert disk.calls == ["open", "sync_directory", "sync_directory", "sync_directory", "sync_directory", "write", "sync"]
    disk.calls.clear()
    await writer.append([payload(20), payload(20), payload(20)])
    assert disk.calls == ["write", "sync"]
    await writer.close()


@pytest.mark.anyio
async def test_the_first_barrier_after_every_open_syncs_the_directories_again(make_store: MakeStore) -> None:
    disk = FaultyDisk()
    store = make_store(disk)
    for batch in ([lineage_payload(), payload(20)], [payload(20)], [payload(20)]):
        writer = await store.open("box")
        disk.calls.clear()
        await writer.append(batch)
        assert disk.calls.count("sync_directory") >= 2
        await writer.close()


@pytest.mark.anyio
async def test_a_batch_reaches_the_disk_as_one_write(make_store: MakeStore, place: Path) -> None:
    sizes: list[int] = []

    class Watching(Disk):
        def write_some(self, fd: int, data: memoryview, offset: int | None) -> int:
            sizes.append(len(data))
            return super().write_some(fd, data, offset)

    writer = await make_store(Watching()).open("box")
    sizes.clear()
    await writer.append([lineage_payload(), *(payload(500) for _ in range(9))])
    await writer.close()
    assert sizes == [len((place / "wal.log").read_bytes())]


@pytest.mark.anyio
async def test_a_directory_sync_that_fails_refuses_the_barrier_until_one_succeeds(make_store: MakeStore, place: Path) -> None:
    disk = FaultyDisk()
    writer = await make_store(disk).open("box")
    for _ in range(3):
        disk.fail_next("sync_directory", 5)
        with pytest.raises(AppendRefused, match=r"could not sync the directories of .*wal\.log: Input/output error"):
            await writer.append([lineage_payload(), payload(20)])
        assert (place / "wal.log").read_bytes() == b""
    disk.calls.clear()
    await writer.append([lineage_payload(), payload(20)])
    assert disk.calls == [*["sync_directory"] * 4, "write", "sync"]
    assert writer.head == 1
    await writer.close()


@pytest.mark.anyio
async def test_a_torn_tail_is_cut_and_the_log_accepts_new_records(make_store: MakeStore, root: Path, place: Path) -> None:
    cut = LOG.frames[20].offset + 77
    path = plant(root, LOG.data[:cut])
    writer = await make_store().open("box")
    assert writer.frames == LOG.frames[:20]
    assert path.read_bytes() == LOG.data[: LOG.frames[20].offset]
    torn = place / f"wal.torn-{LOG.frames[20].offset}"
    assert torn.read_bytes() == LOG.data[LOG.frames[20].offset : cut]
    assert torn.stat().st_mode & 0o777 == 0o600
    (frame,) = await writer.append([payload(20)])
    assert (frame.seq, frame.fence, frame.synced) == (20, 4, 19)
    await writer.close()
    assert scan(path.read_bytes()).frames[:20] == LOG.frames[:20]
    path.write_bytes(LOG.data[:cut])
    await (await make_store().open("box")).close()
    assert (place / f"{torn.name}-1").read_bytes() == torn.read_bytes()


@pytest.mark.anyio
async def test_the_torn_bytes_are_durable_before_they_are_cut(make_store: MakeStore, root: Path) -> None:
    plant(root, LOG.data[:-5])
    disk = FaultyDisk()
    writer = await make_store(disk).open("box")
    calls = disk.calls[disk.calls.index("lock") :]
    assert calls[:6] == ["lock", "open", "open", "sync", "sync_directory", "write"]  # status, log; believe only what is synced
    assert calls[6:13] == ["sync", "open", "write", "sync", "sync_directory", "truncate", "sync"]
    assert calls[13:15] == ["write", "sync"]  # and what nothing testifies to is written again
    await writer.close()


@pytest.mark.anyio
@pytest.mark.parametrize("length", [0, 1, 100, LOG.frames[1].offset, LOG.frames[1].offset + 1])
async def test_a_log_cut_within_its_first_lines_starts_anew_or_goes_on(length: int, make_store: MakeStore, root: Path) -> None:
    plant(root, LOG.data[:length])
    writer = await make_store().open("box")
    assert writer.frames == LOG.frames[: int(length >= LOG.frames[1].offset)]
    batch = [payload(20)] if writer.frames else [lineage_payload(), payload(20)]
    await writer.append(batch)
    assert writer.head == 1
    await writer.close()


@pytest.mark.anyio
async def test_damage_names_file_offset_and_reason_and_changes_nothing(make_store: MakeStore, root: Path) -> None:
    at = LOG.frames[10].offset
    path = plant(root, LOG.data[: at + 3] + b"~" + LOG.data[at + 4 :])
    await refused_unchanged(make_store, root, LogDamaged)
    with pytest.raises(LogDamaged) as caught:
        await make_store().open("box")
    assert (caught.value.path, caught.value.offset, caught.value.seq) == (str(path), at, 10)
    assert str(path) in str(caught.value)
    assert f"byte {at}" in str(caught.value)
    assert "semel verify" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.anyio
async def test_a_newer_log_is_refused_before_anything_is_changed(make_store: MakeStore, root: Path) -> None:
    line = frame_line("4 27 1767225600000 12 23 0", b'{"type":"new"}', LOG.frames[-1].digest)
    plant(root, LOG.data + line)
    await refused_unchanged(make_store, root, NewerWriter)


@pytest.mark.anyio
async def test_a_feature_that_this_build_lacks_is_named_before_a_torn_tail_is_cut(make_store: MakeStore, root: Path) -> None:
    plant(root, LOG.data[:-4])
    await refused_unchanged(make_store, root, NewerWriter, known=frozenset({"early-return/v1"}))
    with pytest.raises(NewerWriter, match="terminate/v1") as caught:
        await make_store(known=frozenset({"early-return/v1"})).open("box")
    assert caught.value.features == ("terminate/v1",)


@pytest.mark.anyio
async def test_a_log_shorter_than_its_status_says_is_refused(make_store: MakeStore, root: Path, place: Path) -> None:
    plant(root, LOG.data[: LOG.frames[-1].offset])
    (place / "status.json").write_bytes(b'{"schema":1,"head_seq":26}')
    await refused_unchanged(make_store, root, LogDamaged)
    (place / "wal.log").unlink()
    await refused_unchanged(make_store, root, LogDamaged)
    (place / "wal.log").write_bytes(b"")
    await refused_unchanged(make_store, root, LogDamaged)
    (place / "wal.log").write_bytes(LOG.data)
    await (await make_store().open("box")).close()


@pytest.mark.anyio
async def test_a_log_that_was_copied_into_another_session_is_refused(make_store: MakeStore, root: Path) -> None:
    plant(root, LOG.data, session="copy")
    with pytest.raises(LogDamaged, match="log of session 'box', not of 'copy'"):
        await make_store().open("copy")


@pytest.mark.anyio
async def test_opening_raises_the_floor_to_every_feature_of_the_log(make_store: MakeStore, root: Path) -> None:
    plant(root, LOG.data)
    store = make_store()
    assert store.floor.names() == frozenset()
    await (await store.open("box")).close()
    assert store.floor.names() == {"early-return/v1", "terminate/v1"}


@pytest.mark.anyio
async def test_a_root_whose_floor_names_an_unknown_feature_is_refused_whole(make_store: MakeStore, root: Path) -> None:
    store = make_store()
    writer = await store.open("box")
    await writer.append([lineage_payload(), payload(10)])
    await writer.append([payload(10, requires=("a/v1",))])
    await writer.close()
    older = make_store(known=frozenset())
    for act in (lambda: older.open("other"), lambda: older.open("box")):
        with pytest.raises(NewerWriter, match="a/v1"):
            await act()
    with pytest.raises(NewerWriter, match="a/v1"):
        older.read("box")
    assert not (root / "sessions" / "other").exists()


@pytest.mark.anyio
async def test_fences_are_above_the_lease_file_and_the_log(make_store: MakeStore, root: Path, place: Path) -> None:
    plant(root, LOG.data)  # its last fence is 12, and there is no lease file
    fences = []
    for _ in range(3):
        writer = await make_store().open("box")
        fences.append(writer.fence)
        await writer.close()
    (place / "lease").write_bytes(b"\0\0 garbage")
    writer = await make_store().open("box")
    fences.append(writer.fence)
    await writer.close()
    assert fences == [13, 14, 15, 13]


@pytest.mark.anyio
@pytest.mark.parametrize("how", ["grown", "shrunk", "replaced", "removed", "same size by another file", "same file"])
async def test_a_log_that_changes_under_its_writer_is_noticed_before_the_next_byte(
    how: str, make_store: MakeStore, place: Path
) -> None:
    writer = await make_store().open("box")
    await writer.append([lineage_payload(), payload(20)])
    path = place / "wal.log"
    data = path.read_bytes()
    if how == "grown":
        path.write_bytes(data + b"x")
    elif how == "shrunk":
        os.truncate(path, len(data) - 1)
    elif how == "same file":
        written_once_more(path, data[:-9] + b"~" + data[-8:])
    else:
        path.rename(place / "moved")
        if how != "removed":
            path.write_bytes(data if how.startswith("same") else b"other")
    before = contents(place)
    with pytest.raises(ForeignWrite, match="changed under its writer"):
        await writer.append([payload(20)])
    with pytest.raises(ForeignWrite):
        writer.note([payload(20)])
    with pytest.raises(ForeignWrite):
        writer.check()
    assert contents(place) == before
    await writer.close()
    assert writer.bookmark is None


@pytest.mark.anyio
async def test_a_log_that_gets_another_name_or_other_rights_under_its_writer_is_not_changed(
    make_store: MakeStore, place: Path
) -> None:
    writer = await make_store().open("box")
    await writer.append([lineage_payload(), payload(20)])
    os.link(place / "wal.log", place / "copy")
    (place / "copy").chmod(0o400)
    await writer.append([payload(20)])
    assert writer.head == 2
    await writer.close()


@pytest.mark.anyio
async def test_a_status_may_only_name_what_is_durable(make_store: MakeStore) -> None:
    store = make_store()
    writer = await store.open("box")
    await writer.append([lineage_payload(), payload(20)])
    writer.note([payload(20)])
    with pytest.raises(InvariantBroken):
        writer.publish_status(b'{"head_seq":2}')
    writer.publish_status(b'{"head_seq":1}')
    assert store.read_status("box") == b'{"head_seq":1}'
    await writer.close()


@pytest.mark.anyio
async def test_an_unknown_session_reads_as_unknown_and_creates_nothing(make_store: MakeStore, root: Path) -> None:
    store = make_store()
    assert store.sessions() == []
    assert store.read_status("box") is None
    assert store.owner("box") is None
    with pytest.raises(UnknownSession, match="no session 'box'"):
        store.read("box")
    assert not root.exists()


class _SlowSync(Disk):
    """A disk whose syncs of files wait for the test, once `held` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.held = False
        self.entered, self.released = threading.Event(), threading.Event()

    def sync(self, fd: int) -> None:
        super().sync(fd)
        if self.held:
            self.entered.set()
            assert self.released.wait(20)


@pytest.mark.anyio
async def test_a_cancelled_append_waits_for_its_sync_and_leaves_a_settled_writer(make_store: MakeStore) -> None:
    disk = _SlowSync()
    writer = await make_store(disk, inline=False).open("box")
    await writer.append([lineage_payload(), payload(20)])
    disk.held = True
    append = asyncio.ensure_future(writer.append([payload(20)]))
    await asyncio.to_thread(disk.entered.wait, 20)
    (noted,) = writer.note([payload(20)])
    assert (noted.seq, noted.synced) == (3, 1)  # written while the sync runs, so nothing says yet that record 2 is durable
    append.cancel()
    append.cancel()
    closing = asyncio.ensure_future(writer.close())
    await asyncio.sleep(0)
    assert not append.done()
    disk.held = False
    disk.released.set()
    with pytest.raises(asyncio.CancelledError):
        await append
    assert writer.durable == 2
    await closing
    found = await make_store().open("box")
    assert found.head == 3
    await found.close()


@pytest.mark.anyio
async def test_an_open_that_is_cancelled_gives_the_lease_back(make_store: MakeStore) -> None:
    disk = _SlowSync()
    disk.held = True
    store = make_store(disk, inline=False)
    opening = asyncio.ensure_future(store.open("box"))
    await asyncio.to_thread(disk.entered.wait, 20)
    opening.cancel()
    disk.held = False
    disk.released.set()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert store.owner("box") is None
    await (await store.open("box")).close()


@pytest.mark.anyio
async def test_appends_that_wait_for_each_other_keep_their_order(make_store: MakeStore) -> None:
    writer = await make_store(inline=False).open("box")
    await writer.append([lineage_payload(), payload(20)])
    batches = await asyncio.gather(*(writer.append([payload(20), payload(30)]) for _ in range(20)))
    assert [frame.seq for batch in batches for frame in batch] == list(range(2, 42))
    await writer.close()


@pytest.mark.anyio
async def test_a_torn_tail_that_cannot_be_kept_aside_is_not_cut(make_store: MakeStore, root: Path, place: Path) -> None:
    log = reference_log()
    end = log.frames[20].offset
    plant(root, log.data[: end + 40])
    for name in (f"wal.torn-{end}", *(f"wal.torn-{end}-{number}" for number in range(1, 1000))):
        (place / name).write_bytes(b"")
    with pytest.raises(StoreError, match=r"1000 files wal\.torn-3764 already"):
        await make_store().open("box")
    assert (place / "wal.log").read_bytes() == log.data[: end + 40]
