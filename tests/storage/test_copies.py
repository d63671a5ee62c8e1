"""A backup, and what a backup or restore that died has left: nothing goes on with either, and both say what they are (P2, P7)."""

import asyncio
import os
import shutil
from pathlib import Path

import pytest

from semel.adapters.file.backup import back_up, restore
from semel.adapters.file.disk import Disk
from semel.adapters.file.repair import assess, repair
from semel.adapters.file.root import Root
from semel.errors import IsCopy, StoreError, UnsafeStore
from semel.faces.listing import listing_of
from semel.testing.faults import Crashed, FaultyDisk
from storage.conftest import contents, plant
from storage.golden_logs import SESSION
from storage.media_log import media_log, plant_media
from storage.test_upkeep import FEATURES, LOG, store_at, sweep

LOGS = {SESSION: media_log(), "box": LOG.data}


@pytest.fixture
def origin(tmp_path: Path) -> Path:
    """A state directory with two sessions, one of which names blobs."""
    plant_media(tmp_path / "origin")
    plant(tmp_path / "origin", LOG.data)
    return tmp_path / "origin"


@pytest.fixture
def copy(origin: Path) -> Path:
    back_up(store_at(origin), origin.with_name("copy"), 1)
    return origin.with_name("copy")


def refuses_all_writing(root: Path, remedy: str) -> None:
    before = contents(root)
    for session in LOGS:
        with pytest.raises(IsCopy, match=remedy):
            asyncio.run(store_at(root).open(session))
        with pytest.raises(IsCopy, match=remedy):
            asyncio.run(store_at(root, parking=True).open(session))
        for act in (assess, repair):
            with pytest.raises(IsCopy, match=remedy):
                act(Root(root, Disk()), session, FEATURES)
    with pytest.raises(IsCopy, match=remedy):
        store_at(root).refuse_copy()
    assert contents(root) == before


def test_p2_nobody_writes_to_a_backup_and_everybody_may_read_it(copy: Path) -> None:
    before = contents(copy)
    refuses_all_writing(copy, "`semel restore .*copy --state NEW`")
    assert [one.session for one in listing_of(store_at(copy))] == sorted(LOGS)
    assert store_at(copy).read("box").frames == LOG.frames
    assert contents(copy) == before, "a listing writes no index into it"


def test_a_backup_without_its_list_would_be_written_to(copy: Path) -> None:
    (copy / "backup.json").unlink()
    with pytest.raises(pytest.fail.Exception):
        refuses_all_writing(copy, "semel restore")


def test_a_backup_can_be_copied_again(copy: Path, tmp_path: Path) -> None:
    again = back_up(store_at(copy), tmp_path / "second", 2)
    assert [one.session for one in again.sessions] == sorted(LOGS)
    restore(tmp_path / "second", Root(tmp_path / "new", Disk()), FEATURES)


def ways_into(directory: Path) -> dict[str, Path]:
    """Names that lead to a place within a directory."""
    (directory.parent / "link").symlink_to(directory)
    (directory.parent / "beside").mkdir()
    return {
        "plain": directory / "inside",
        "deep": directory / "sessions" / "inside",
        "a link": directory.parent / "link" / "inside",
        "dots": directory.parent / "beside" / ".." / directory.name / "inside",
        "both": directory.parent / "beside" / ".." / "link" / "sessions" / "box" / "inside",
    }


def test_a_copy_is_never_made_within_what_it_copies_whatever_its_path_is_called(origin: Path) -> None:
    before = contents(origin)
    for how, target in ways_into(origin).items():
        with pytest.raises(UnsafeStore, match="a copy belongs elsewhere"):
            back_up(store_at(origin), target, 1)
        with pytest.raises(UnsafeStore, match="a copy belongs elsewhere"):
            back_up(store_at(origin.parent / "link"), target, 1)
        assert not target.exists(), how
    assert contents(origin) == before
    back_up(store_at(origin), origin.parent / "beside" / ".." / "outside", 1)  # control


def test_a_backup_is_never_restored_into_itself_whatever_its_path_is_called(copy: Path) -> None:
    before = contents(copy)
    for how, target in ways_into(copy).items():
        with pytest.raises(UnsafeStore, match="a copy belongs elsewhere"):
            restore(copy, Root(target, Disk()), FEATURES)
        assert not target.exists(), how
    assert contents(copy) == before


def is_whole(root: Path) -> bool:
    """Whether all sessions are there as they were copied."""
    logs = {session: root / "sessions" / session / "wal.log" for session in LOGS}
    return all(path.exists() and path.read_bytes() == LOGS[session] for session, path in logs.items())


def restore_dies_anywhere(place: Path, copy: Path) -> int:
    """Let a restore die at each of its calls; returns how many deaths left something that is not whole."""
    left = sweep(
        place, lambda root: root.parent.mkdir(exist_ok=True), lambda root, disk: restore(copy, Root(root, disk), FEATURES)
    )
    cut_short = 0
    for root, _ in left:
        begun = any((root / "sessions").glob("*"))
        if (root / "unfinished").exists():
            cut_short += 1
            refuses_all_writing(root, f"`semel restore .*{copy.name} --state .*{root.name}`")
            with pytest.raises(IsCopy):
                back_up(store_at(root), place / "other", 1)
            with pytest.raises(IsCopy, match="Remove it, and begin again"):
                restore(copy, Root(root, Disk()), FEATURES)
            shutil.rmtree(root)
            restore(copy, Root(root, FaultyDisk()), FEATURES)
        elif not begun:
            continue
        assert is_whole(root), "a part of a restore that died looks whole"
        assert all((root / "sessions" / session / "parking").exists() for session in LOGS)
        assert repair(Root(root, Disk()), "box", FEATURES) is None
    print(f"{len(left)} deaths of a restore, {cut_short} left something that says that it is not whole")
    assert len(left) >= 120
    return cut_short


def test_a_restore_that_died_at_any_call_is_named_as_that_until_all_of_it_is_there(copy: Path, tmp_path: Path) -> None:
    assert restore_dies_anywhere(tmp_path / "deaths", copy) >= 90


@pytest.mark.parametrize("step", ["begin", "end"])
def test_a_restore_that_does_not_say_that_it_is_unfinished_or_says_so_too_short_is_caught(
    step: str, copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from semel.adapters.file import copies

    begin = copies.begin

    def short(root: Root, what: copies.What, other: Path) -> None:
        begin(root, what, other)
        copies.end(root)

    monkeypatch.setattr("semel.adapters.file.backup.begin", short if step == "end" else lambda *_words: None)
    monkeypatch.setattr("semel.adapters.file.backup.end", lambda _root: None)
    with pytest.raises(AssertionError, match="looks whole"):
        restore_dies_anywhere(tmp_path / "deaths", copy)


class HalfDisk(FaultyDisk):
    """The power goes while a log is synced: a part of what was written has arrived, whole frames of it."""

    def sync(self, fd: int) -> None:
        if os.fstat(fd).st_size == len(LOG.data):
            os.ftruncate(fd, LOG.writes[4].frames[2].offset)
            raise Crashed
        super().sync(fd)


def test_a_part_of_a_log_that_a_power_loss_left_of_a_restore_is_not_gone_on_with(copy: Path, tmp_path: Path) -> None:
    disk = HalfDisk()
    with pytest.raises(Crashed):
        restore(copy, Root(tmp_path / "new", disk), FEATURES)
    disk.bury()
    assert (tmp_path / "new" / "sessions" / "box" / "wal.log").stat().st_size < len(LOG.data)
    refuses_all_writing(tmp_path / "new", "semel restore")


def test_a_backup_that_died_at_any_call_is_gone_on_with_by_nobody(origin: Path, tmp_path: Path) -> None:
    def act(root: Path, disk: FaultyDisk) -> None:
        store = store_at(origin)
        store.root.disk = disk  # its target uses it, too
        back_up(store, root, 1)

    left = sweep(tmp_path / "deaths", lambda root: root.parent.mkdir(exist_ok=True), act)
    begun = 0
    for root, _ in left:
        if root.exists() and any((root / "sessions").glob("*")):
            begun += 1
            whole = (root / "backup.json").exists()
            refuses_all_writing(root, "`semel restore" if whole else f"`semel backup .*{root.name} --state .*{origin.name}`")
    print(f"{len(left)} deaths of a backup, {begun} of them with a session in it")
    assert begun >= 90


@pytest.mark.parametrize("content", [b"", b"nonsense", b'{"schema":9}'])
def test_a_word_of_what_was_cut_short_that_cannot_be_read_still_counts(content: bytes, tmp_path: Path) -> None:
    plant(tmp_path / "state", LOG.data)
    (tmp_path / "state" / "unfinished").write_bytes(content)
    (tmp_path / "state" / "unfinished").chmod(0o600)
    with pytest.raises(IsCopy, match="did not end"):
        asyncio.run(store_at(tmp_path / "state").open("box"))


def test_a_directory_that_cannot_be_looked_at_is_refused_and_not_taken_for_a_place_to_work_in(tmp_path: Path) -> None:
    class Blind(Disk):
        def status_of(self, path: Path | str) -> os.stat_result:
            if str(path).endswith("backup.json"):
                raise PermissionError(13, "Permission denied")
            return super().status_of(path)

    plant(tmp_path / "state", LOG.data)
    with pytest.raises(StoreError, match="could not look at"):
        asyncio.run(store_at(tmp_path / "state", Blind()).open("box"))
    asyncio.run(asyncio.run(store_at(tmp_path / "state").open("box")).close())
