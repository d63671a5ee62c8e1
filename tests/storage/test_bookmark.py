"""A log is gone on with from a bookmark where nothing happened to what lies in front of it, and from nowhere else (STORE-8)."""

import os
from pathlib import Path

import pytest

from semel.adapters.file.bookmark import FileBookmark
from semel.adapters.file.disk import Disk
from semel.adapters.file.floor import forget_proven
from semel.adapters.file.store import FileStore
from semel.core.frame import Frame, encode_frames, line_of, scan
from semel.core.reading import PIECE_BYTES
from semel.errors import ForeignWrite, LogDamaged
from storage.conftest import MakeStore, contents, plant, written_once_more
from storage.logs import LINEAGE, build, lineage_payload, payload

pytestmark = pytest.mark.anyio


class WatchingDisk(Disk):
    """Notes what is written in place, the lease's one sector aside, and can remove a log as it is first closed."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[tuple[int, bytes]] = []
        self.remove: Path | None = None

    def write_some(self, fd: int, data: memoryview, offset: int | None) -> int:
        if offset is not None and len(data) != 512:
            self.written.append((offset, bytes(data)))
        return super().write_some(fd, data, offset)

    def close(self, fd: int) -> None:
        if self.remove is not None and os.fstat(fd).st_ino == self.remove.stat().st_ino:
            self.remove.unlink()
            self.remove = None
        super().close(fd)


async def left(store: FileStore, *, requires: tuple[str, ...] = (), records: int = 4) -> FileBookmark:
    """The bookmark of a log of a few records."""
    writer = await store.open("box")
    await writer.append([lineage_payload(), payload(200, requires=requires), *(payload(200) for _ in range(records - 1))])
    await writer.close()
    assert writer.bookmark is not None
    return writer.bookmark


async def added(store: FileStore) -> None:
    """What another process adds."""
    writer = await store.open("box")
    await writer.append([payload(50)])
    await writer.close()


async def handed_out(store: FileStore, bookmark: FileBookmark) -> list[int]:
    taken: list[Frame] = []
    writer = await store.open("box", take=taken.extend, bookmark=bookmark)
    await writer.close()
    return [frame.seq for frame in taken]


def damaged(data: bytes) -> bytes:
    return data[:700] + bytes([data[700] ^ 1]) + data[701:]


@pytest.mark.parametrize("another", [False, True], ids=["nobody", "another process"])
async def test_p7_damage_in_front_is_found_whoever_had_the_session_meanwhile(
    another: bool, make_store: MakeStore, place: Path
) -> None:
    store, log = make_store(), place / "wal.log"
    bookmark = await left(store)
    if another:
        await added(make_store())
    written_once_more(log, damaged(log.read_bytes()))
    before = log.read_bytes()
    with pytest.raises(LogDamaged, match="record 2 should start"):
        await store.open("box", bookmark=bookmark)
    assert log.read_bytes() == before


async def test_p7_damage_whose_time_was_put_back_is_found(make_store: MakeStore, place: Path) -> None:
    store, log = make_store(), place / "wal.log"
    bookmark, found = await left(store), log.stat()
    written_once_more(log, damaged(log.read_bytes()))
    os.utime(log, ns=(found.st_atime_ns, found.st_mtime_ns))
    assert log.stat().st_mtime_ns == found.st_mtime_ns
    with pytest.raises(LogDamaged):
        await store.open("box", bookmark=bookmark)


@pytest.mark.parametrize("how", ["between two frames", "to nothing", "removed"])
async def test_p7_a_log_that_is_cut_between_two_tenures_of_one_process_is_damaged(
    how: str, make_store: MakeStore, place: Path
) -> None:
    store, log = make_store(), place / "wal.log"
    bookmark = await left(store)
    if how == "removed":
        log.unlink()
    else:
        os.truncate(log, scan(log.read_bytes()).frames[3].offset if how.startswith("between") else 0)
    before = contents(place)
    with pytest.raises(LogDamaged, match="record 4 was durable"):
        await store.open("box", bookmark=bookmark)
    assert contents(place) == before


async def test_a_log_that_was_replaced_by_the_same_bytes_is_gone_on_with(make_store: MakeStore, place: Path) -> None:
    store, log = make_store(), place / "wal.log"
    bookmark = await left(store)
    (place / "copy").write_bytes(log.read_bytes())
    (place / "copy").chmod(0o600)
    (place / "copy").rename(log)
    assert await handed_out(store, bookmark) == []
    await added(make_store())
    assert await handed_out(store, bookmark) == [5]


async def test_a_log_longer_than_a_piece_is_gone_on_with_behind_another_process(make_store: MakeStore) -> None:
    store = make_store()
    bookmark = await left(store, records=3 * PIECE_BYTES // 300)
    assert bookmark.point.offset > 2 * PIECE_BYTES
    await added(make_store())
    assert await handed_out(store, bookmark) == [bookmark.point.seq]


async def test_a_bookmark_serves_again_behind_an_open_that_failed(make_store: MakeStore, place: Path) -> None:
    store, log = make_store(), place / "wal.log"
    bookmark = await left(store)
    await added(make_store())
    await added(make_store())
    whole = log.read_bytes()
    log.write_bytes(whole[:-20] + b"~" + whole[-19:])
    for _ in range(2):
        with pytest.raises(LogDamaged):
            await store.open("box", bookmark=bookmark)
    log.write_bytes(whole)
    assert await handed_out(store, bookmark) == [5, 6]


async def test_the_features_of_what_is_not_read_again_are_put_back_into_a_floor_that_was_deleted(
    make_store: MakeStore, root: Path
) -> None:
    bookmark = await left(make_store(), requires=("a/v1",))
    (root / "wal-feature-floor").unlink()
    store = make_store()
    forget_proven(store.path)
    assert await handed_out(store, bookmark) == []
    assert "a/v1" in store.floor.names()


@pytest.mark.parametrize("from_bookmark", [False, True])
async def test_haz3_exactly_the_frames_that_nothing_calls_durable_are_written_again(
    from_bookmark: bool, make_store: MakeStore, root: Path
) -> None:
    """Also where the log is longer than a piece, and where its frames testify to less than the bookmark does."""
    bookmark = await left(make_store())
    plan = [([payload(700)], 2, True) for _ in range(2 * PIECE_BYTES // 700)]
    plan += [([payload(300)], 2, False), ([payload(300), payload(300)], 2, False)]
    log = build(plan, start=bookmark.point, durable=4)
    path, disk = root / "sessions" / "box" / "wal.log", WatchingDisk()
    plant(root, path.read_bytes() + log.data)
    assert path.stat().st_size > 2 * PIECE_BYTES
    writer = await make_store(disk).open("box", bookmark=bookmark if from_bookmark else None)
    await writer.close()
    unproven = [frame for frame in log.frames if frame.seq > log.frames[-1].synced]
    assert len(unproven) == 3
    assert disk.written == [(unproven[0].offset, b"".join(map(line_of, unproven)))]


async def test_haz3_frames_that_testify_to_less_than_the_bookmark_are_all_written_again(
    make_store: MakeStore, root: Path
) -> None:
    bookmark, path, disk = await left(make_store()), root / "sessions" / "box" / "wal.log", WatchingDisk()
    more = encode_frames([payload(100)] * 5, bookmark.point, at_ms=1, fence=2, synced=1)
    plant(root, path.read_bytes() + more.data)
    writer = await make_store(disk).open("box", bookmark=bookmark)
    await writer.close()
    assert disk.written == [(bookmark.point.offset, more.data)]


async def test_a_log_that_is_removed_while_it_is_opened_gets_no_second_beginning(make_store: MakeStore, place: Path) -> None:
    await left(make_store())
    disk = WatchingDisk()
    disk.remove = place / "wal.log"
    with pytest.raises(ForeignWrite, match="removed while it was being opened"):
        await make_store(disk).open("box")
    assert not (place / "wal.log").exists()
    assert make_store().owner("box") is None


async def test_a_reader_that_saw_a_log_reads_another_one_in_its_file_from_the_start(make_store: MakeStore, root: Path) -> None:
    store = make_store()
    await left(store)
    reader = make_store()
    assert reader.read("box").head == 4
    other = build([([lineage_payload(lineage="f" * len(LINEAGE)), *(payload(90) for _ in range(30))], 9, True)])
    plant(root, other.data)
    assert [frame.seq for frame in reader.read("box", after=4).frames] == list(range(5, 31))
    plant(root, damaged(other.data))
    for _ in range(2):
        with pytest.raises(LogDamaged):
            reader.read("box")


async def test_store_9_a_mark_changes_also_where_the_time_of_the_write_is_put_back(make_store: MakeStore, place: Path) -> None:
    store, log = make_store(), place / "wal.log"
    await left(store)
    mark, found = store.mark("box"), log.stat()
    written_once_more(log, damaged(log.read_bytes()))
    os.utime(log, ns=(found.st_atime_ns, found.st_mtime_ns))
    assert store.mark("box") != mark
