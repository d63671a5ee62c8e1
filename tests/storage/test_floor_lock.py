"""The lock of the feature floor: who removes or replaces it while a floor is raised makes nobody lose a name (A31)."""

import os
from pathlib import Path

import pytest

from semel.adapters.file.disk import Disk
from semel.adapters.file.floor import FileFloor, encode_floor, forget_proven
from semel.errors import StoreError
from storage.processes import process
from storage.test_floor import floor_at


class Meddled(Disk):
    """Somebody tidies the lock away just before a call of this process, and another process raises a name of its own."""

    def __init__(self, root: Path, before: str) -> None:
        super().__init__()
        self.root, self.before, self.met = root, before, 0

    def _meet(self, call: str) -> None:
        if call == self.before and not self.met:
            self.met += 1
            (self.root / "wal-feature-floor.lock").unlink()
            with process("raiser", self.root, "b/v1") as other:
                assert other.hear()

    def lock(self, fd: int) -> bool:
        self._meet("lock")
        return super().lock(fd)

    def open_file(self, name: str, within: int, flags: int) -> int:
        self._meet(f"open {name}")
        return super().open_file(name, within, flags)

    def truncate(self, fd: int, size: int) -> None:
        self._meet("truncate")
        super().truncate(fd, size)

    def sync(self, fd: int) -> None:
        self._meet("sync")
        super().sync(fd)

    def sync_directory(self, fd: int) -> None:
        self._meet("sync_directory")
        super().sync_directory(fd)


def lost_names(root: Path, before: str) -> set[str]:
    floor_at(root).raise_to(["x/v1"])
    forget_proven(root)
    disk = Meddled(root, before)
    floor = floor_at(root, disk)
    floor.raise_to(["a/v1"])
    assert disk.met == 1
    assert floor.holds(["a/v1"])
    assert sorted(path.name for path in root.iterdir()) == ["sessions", "wal-feature-floor", "wal-feature-floor.lock"]
    return {"a/v1", "b/v1", "x/v1"} - floor.names()


MEDDLING = ("lock", "open wal-feature-floor", "open wal-feature-floor.new", "truncate", "sync", "sync_directory")


@pytest.mark.parametrize("before", MEDDLING)
def test_a31_who_removes_the_lock_while_a_floor_is_raised_loses_no_name(root: Path, before: str) -> None:
    assert lost_names(root, before) == set()


def lost_to_a_late_one(root: Path) -> set[str]:
    """What the floor lacks behind a raise that gets its lock only when another process holds the one that is there now.

    That process is just about to put its floor in place.
    """
    floor_at(root).raise_to(["x/v1"])
    begun, path = root / "wal-feature-floor.new", root / "wal-feature-floor.lock"

    class Late(Disk):
        other = -1

        def lock(self, fd: int) -> bool:
            if self.other < 0:
                path.unlink()
                self.other = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
                assert super().lock(self.other)
                begun.write_bytes(encode_floor(frozenset({"b/v1", "x/v1"})))
            return super().lock(fd)

        def pause(self) -> None:
            begun.rename(root / "wal-feature-floor")
            os.close(self.other)

    floor_at(root, Late()).raise_to(["a/v1"])
    return {"a/v1", "b/v1", "x/v1"} - floor_at(root).names()


def test_a31_who_waited_for_a_lock_that_is_gone_takes_nothing_from_the_one_who_holds_its_successor(root: Path) -> None:
    assert lost_to_a_late_one(root) == set()


def test_a31_a_lock_that_is_not_compared_before_the_floor_is_read_is_caught(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check, asked = FileFloor._check, list[FileFloor]()

    def from_the_second_on(floor: FileFloor, lock: int) -> None:
        if floor in asked:
            check(floor, lock)
        asked.append(floor)

    monkeypatch.setattr(FileFloor, "_check", from_the_second_on)
    assert lost_to_a_late_one(root) == {"b/v1"}


def test_a31_a_lock_that_is_not_compared_with_its_path_is_caught(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FileFloor, "_check", lambda _floor, _lock: None)
    assert lost_names(root, "open wal-feature-floor.new") == {"b/v1"}


def overtaken(root: Path) -> frozenset[str]:
    """The floor behind a raise of `a/v1` while another process, which read it before that, puts its own in place."""
    floor_at(root).raise_to(["x/v1"])

    class Overtaken(Disk):
        met = 0

        def sync_directory(self, fd: int) -> None:
            super().sync_directory(fd)
            self.met += 1
            if self.met == 1:
                (root / "wal-feature-floor.lock").unlink()
                (root / "wal-feature-floor").write_bytes(encode_floor(frozenset({"b/v1", "x/v1"})))

    floor_at(root, Overtaken()).raise_to(["a/v1"])
    return floor_at(root).names()


def test_a31_a_raise_that_another_process_overtook_is_made_again(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert overtaken(root / "sound") == {"a/v1", "b/v1", "x/v1"}
    monkeypatch.setattr(FileFloor, "_check", lambda _floor, _lock: None)
    assert overtaken(root / "careless") == {"b/v1", "x/v1"}, "a lock that is not compared behind the rename is caught"


def test_a31_a_lock_that_is_removed_again_and_again_refuses_the_raise_by_name(root: Path) -> None:
    floor_at(root).raise_to(["x/v1"])

    class Removed(Disk):
        def lock(self, fd: int) -> bool:
            (root / "wal-feature-floor.lock").unlink()
            return super().lock(fd)

    floor = floor_at(root, Removed())
    with pytest.raises(StoreError, match=r"wal-feature-floor\.lock was removed or replaced while it was held"):
        floor.raise_to(["a/v1"])
    assert not floor.holds(["a/v1"])
    assert floor.names() == {"x/v1"}
