"""Reading what another process may be writing: nothing is shown that could vanish (P6)."""

import errno
from pathlib import Path

import pytest

from semel.adapters.file.disk import Disk
from semel.adapters.file.store import FileStore
from semel.adapters.memory.store import MemoryStore
from semel.adapters.system import SystemClock
from semel.core.frame import Frame
from semel.errors import LeaseLost, LogDamaged, UnknownSession
from semel.testing.conformance import KNOWN, LINEAGE, records
from semel.testing.faults import FaultyDisk
from storage.conftest import MakeStore, plant
from storage.logs import lineage_payload, payload, reference_log
from storage.processes import process

LOG = reference_log()


def seqs(frames: tuple[Frame, ...]) -> list[int]:
    return [frame.seq for frame in frames]


@pytest.mark.anyio
async def test_what_the_owner_only_noted_is_shown_to_others_when_a_later_frame_or_the_status_calls_it_durable(
    make_store: MakeStore, root: Path
) -> None:
    reader = make_store()
    with process("holder", root, "box") as holder:
        holder.hear()
        holder.ask("append one")
        assert seqs(reader.read("box").frames) == []  # the first barrier is over, but nothing on disk says so yet
        holder.ask("note two")
        assert seqs(reader.read("box").frames) == [0, 1]
        holder.ask("append three")
        assert reader.read("box").head == 1
        holder.ask("note four")
        assert (reader.read("box").head, seqs(reader.read("box", after=1).frames)) == (3, [2, 3])
        holder.ask("close")
        assert seqs(reader.read("box").frames) == [0, 1, 2, 3, 4]


@pytest.mark.anyio
async def test_the_process_that_writes_shows_its_own_readers_what_it_has_synced(make_store: MakeStore) -> None:
    store = make_store()
    writer = await store.open("box")
    await writer.append([lineage_payload(), payload(20)])
    assert seqs(store.read("box").frames) == [0, 1]
    writer.note([payload(20)])
    assert seqs(store.read("box").frames) == [0, 1]
    await writer.append([payload(20)])
    assert seqs(store.read("box", after=1).frames) == [2, 3]
    assert store.read("box", after=99).frames == ()
    assert store.read("box", after=99).head == 3
    await writer.close()


def test_without_an_owner_the_reader_syncs_the_file_before_it_shows_the_end(make_store: MakeStore, root: Path) -> None:
    plant(root, LOG.data)
    disk = FaultyDisk()
    view = make_store(disk).read("box")
    assert view.frames == LOG.frames
    assert view.head == 26
    assert [call for call in disk.calls if "sync" in call] == ["sync", "sync_directory"]
    for call in ("sync", "sync_directory"):
        disk.fail_next(call, errno.EIO)
        assert make_store(disk).read("box").head == 23  # what the frames testify to, and no more


@pytest.mark.anyio
async def test_an_owner_that_comes_and_goes_while_the_reader_syncs_hides_the_end(make_store: MakeStore, root: Path) -> None:
    plant(root, LOG.data)
    writer = await make_store().open("box")
    await writer.close()

    class Meanwhile(Disk):
        def sync_directory(self, fd: int) -> None:
            super().sync_directory(fd)
            lease = root / "sessions" / "box" / "lease"
            lease.write_bytes(lease.read_bytes().replace(b'"fence":13', b'"fence":14'))

    assert make_store(Meanwhile()).read("box").head == 23
    assert make_store().read("box").head == 26


def test_a_torn_tail_is_not_shown_and_not_touched(make_store: MakeStore, root: Path) -> None:
    path = plant(root, LOG.data[:-7])
    assert seqs(make_store().read("box").frames) == list(range(26))
    assert path.read_bytes() == LOG.data[:-7]
    assert [item.name for item in path.parent.iterdir()] == ["wal.log"]


def test_following_a_log_reads_only_what_is_new(make_store: MakeStore, root: Path) -> None:
    offsets: list[int] = []

    class Watching(Disk):
        def read(self, fd: int, offset: int = 0, limit: int | None = None) -> bytes:
            offsets.append(offset)
            return super().read(fd, offset, limit)

    store = make_store(Watching())
    shown: list[Frame] = []
    for end in LOG.boundaries[1:]:
        plant(root, LOG.data[:end])
        offsets.clear()
        view = store.read("box", after=shown[-1].seq if shown else -1)
        assert max(offsets) == ((shown and LOG.boundaries[len(shown)]) or 0)
        shown.extend(view.frames)
        assert view.head == shown[-1].seq
    assert tuple(shown) == LOG.frames
    assert store.read("box").frames == LOG.frames  # from the start again
    assert store.read("box", after=20).frames == LOG.frames[21:]


def test_a_file_that_was_replaced_or_became_shorter_is_read_from_its_start(make_store: MakeStore, root: Path) -> None:
    store = make_store()
    path = plant(root, LOG.data)
    assert store.read("box").head == 26
    path.write_bytes(LOG.data[: LOG.boundaries[9]])
    assert (store.read("box", after=26).frames, store.read("box", after=26).head) == ((), 8)
    other = reference_log(lineage="f" * 32)
    path.rename(path.with_name("old"))
    plant(root, other.data)
    assert store.read("box", after=26).head == 26
    assert store.read("box", after=25).frames == other.frames[26:]


@pytest.mark.anyio
async def test_what_looks_like_damage_while_somebody_writes_is_looked_at_again(
    make_store: MakeStore, root: Path, place: Path
) -> None:
    writer = await make_store().open("box")
    await writer.append([lineage_payload(), payload(20)])
    await writer.append([payload(20)])
    whole = (place / "wal.log").read_bytes()
    looks: list[int] = []

    class Glimpse(Disk):
        heals_at = 3

        def read(self, fd: int, offset: int = 0, limit: int | None = None) -> bytes:
            data = super().read(fd, offset, limit)
            if data[:2] == b"2 ":
                looks.append(len(data))
                return data if len(looks) >= self.heals_at else data[:-9] + b"x" * 9
            return data

    assert make_store(Glimpse()).read("box").head == 1
    assert looks == [len(whole)] * 3
    looks.clear()
    Glimpse.heals_at = 4
    with pytest.raises(LogDamaged):
        make_store(Glimpse()).read("box")
    await writer.close()
    looks.clear()
    with pytest.raises(LogDamaged):
        make_store(Glimpse()).read("box")
    assert len(looks) == 1  # nobody writes, so it is what it looks like


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kills", [range(13, 60, 5), pytest.param(range(1, 70), marks=pytest.mark.prove)])
def test_p6_a_reader_never_sees_what_a_killed_writer_takes_with_it(kills: range, make_store: MakeStore, root: Path) -> None:
    followed = 0
    for number in kills:
        session = f"s{number}"
        reader, shown = make_store(), list[Frame]()

        def follow(reader: FileStore = reader, shown: list[Frame] = shown, session: str = session) -> None:
            try:
                view = reader.read(session, after=shown[-1].seq if shown else -1)
            except UnknownSession:
                return
            shown.extend(view.frames)
            assert view.head == (shown[-1].seq if shown else 0)

        with process("writer", root, session, SEMEL_TEST_KILL=f"{number}:{'entry' if number % 2 else 'exit'}") as writer:
            while writer.child.poll() is None:
                follow()
        follow()
        with process("writer", root, session) as writer:
            while writer.child.poll() is None:
                follow()
            assert writer.hear() == "done"
        follow()
        assert seqs(tuple(shown)) == list(range(len(shown)))
        assert tuple(shown) == make_store().read(session).frames
        followed += len(shown)
    print(f"{len(kills)} kills, {followed} frames followed")
    assert followed > 100


@pytest.mark.anyio
async def test_memory_loses_notes_with_the_power_and_keeps_them_through_a_death() -> None:
    for lose_unsynced in (False, True):
        store = MemoryStore(SystemClock(), known=KNOWN)
        writer = await store.open("box")
        await writer.append([LINEAGE, *records("a")])
        writer.note(records("noted"))
        store.crash(lose_unsynced=lose_unsynced)
        for act in (writer.check, lambda: writer.note(records("late"))):  # noqa: B023  called at once
            with pytest.raises(LeaseLost):
                act()
        with pytest.raises(LeaseLost):
            await writer.append(records("late"))
        again = await store.open("box")
        assert (again.head, again.fence) == (1 if lose_unsynced else 2, 2)
        await again.close()


@pytest.mark.anyio
async def test_a_power_loss_in_memory_ends_every_process_and_a_death_only_its_own() -> None:
    one = MemoryStore(SystemClock(), known=KNOWN)
    two = MemoryStore(SystemClock(), known=KNOWN, medium=one.medium)
    for lose_unsynced in (False, True):
        mine, theirs = await one.open("mine"), await two.open("theirs")
        one.crash(lose_unsynced=lose_unsynced)
        with pytest.raises(LeaseLost):
            mine.check()
        if lose_unsynced:
            with pytest.raises(LeaseLost):
                theirs.check()
        else:
            theirs.check()
            await theirs.close()
