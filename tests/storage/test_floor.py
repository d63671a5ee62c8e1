"""The feature floor: durable before the first frame that needs it, never smaller, never guessed (W16-W24, proof T20f)."""

import errno
import os
from contextlib import ExitStack
from pathlib import Path

import pytest

from semel.adapters.file.disk import Disk
from semel.adapters.file.floor import FileFloor, decode_floor, encode_floor, forget_proven
from semel.adapters.file.locks import OpenFileLocks
from semel.adapters.file.root import Root
from semel.errors import StoreError
from semel.testing.faults import Crashed, Fault, FaultyDisk
from semel.testing.power import ForgetfulDisk
from storage.conftest import MakeStore
from storage.logs import lineage_payload, payload
from storage.processes import process


def floor_at(root: Path, disk: Disk | None = None) -> FileFloor:
    return FileFloor(Root(root, disk or Disk()))


def test_the_file_is_a_checked_list_that_a_person_can_read() -> None:
    content = encode_floor(frozenset({"terminate/v1", "resolution/v1"}))
    digest = b"aab746a990f3e98332d5e9aaf70bc4bcee66bbd4c1462f5990b37b5f4b58fae7"  # as sha256sum prints it
    assert content == b"semel-floor 1 " + digest + b"\nresolution/v1\nterminate/v1\n"
    assert decode_floor(content) == {"terminate/v1", "resolution/v1"}
    assert decode_floor(encode_floor(frozenset())) == frozenset()


@pytest.mark.parametrize("root_exists", [True, False])
def test_raising_writes_aside_and_renames_under_the_lock_and_syncs_the_directory(root: Path, root_exists: bool) -> None:
    disk = FaultyDisk()
    if root_exists:
        Root(root, disk).prepare()
        disk.calls.clear()
    floor_at(root, disk).raise_to(["b/v1"])
    calls = disk.calls[disk.calls.index("lock") - 1 :]
    assert calls == ["open", "lock", "open", "open", "truncate", "write", "sync", "rename", "sync_directory", "unlock"]
    assert (root / "wal-feature-floor").read_bytes() == encode_floor(frozenset({"b/v1"}))
    assert sorted(path.name for path in root.iterdir()) == ["sessions", "wal-feature-floor", "wal-feature-floor.lock"]


def test_w20_a_name_that_another_process_wrote_is_proven_once_by_syncing_again(root: Path) -> None:
    with process("raiser", root, "a/v1") as first:
        first.hear()
    with process("raiser", root, "a/v1", "a/v1") as second:
        calls = second.hear().split()
    assert calls[calls.index("lock") :] == ["lock", "open", "open", "sync", "sync_directory", "unlock"]


def test_w21_names_are_remembered_by_absolute_path(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root.mkdir(mode=0o700)
    monkeypatch.chdir(root)
    disk = FaultyDisk()
    floor_at(Path("."), disk).raise_to(["a/v1"])
    assert "sync_directory" in disk.calls
    disk.calls.clear()
    floor_at(root, disk).raise_to(["a/v1"])
    assert disk.calls == []
    monkeypatch.chdir(tmp_path)
    floor_at(Path("."), disk).raise_to(["a/v1"])  # another root, though spelled the same
    assert "rename" in disk.calls
    assert (tmp_path / "wal-feature-floor").exists()


def test_a_process_that_has_proven_nothing_yet_syncs_what_it_finds_again_and_leaves_nothing_open(root: Path) -> None:
    """Whoever wrote the floor may have died before its sync (W20)."""
    floor_at(root).raise_to(["a/v1", "b/v1"])
    disk = FaultyDisk()
    floor = floor_at(root, disk)
    floor.raise_to(["a/v1"])
    assert disk.calls == []
    forget_proven(root)
    assert not floor.holds(["a/v1"])
    floor.raise_to(["a/v1"])
    assert disk.calls[disk.calls.index("lock") :] == ["lock", "open", "open", "sync", "sync_directory", "unlock"]
    assert floor.holds(["a/v1", "b/v1"])
    assert floor.names() == {"a/v1", "b/v1"}
    forget_proven(root)
    disk.fail_next("sync", errno.EIO)
    with pytest.raises(StoreError, match="could not raise"):
        floor.raise_to(["a/v1"])
    assert not floor.holds(["a/v1"])
    assert disk._open == set()


def test_a_directory_sync_that_fails_proves_nothing_and_is_tried_again(root: Path) -> None:
    disk = FaultyDisk()
    floor = floor_at(root, disk)
    for _ in range(2):
        disk.fail_next("sync_directory", errno.EIO)
        with pytest.raises(StoreError, match=r"could not raise .*wal-feature-floor: Input/output error"):
            floor.raise_to(["a/v1"])
    disk.calls.clear()
    floor.raise_to(["a/v1"])
    assert "sync_directory" in disk.calls
    disk.calls.clear()
    floor.raise_to(["a/v1"])
    assert disk.calls == []


def test_a_floor_torn_at_any_byte_or_with_any_bit_flipped_is_refused_and_kept(root: Path) -> None:
    floor_at(root).raise_to(["early-return/v1", "terminate/v1"])
    path = root / "wal-feature-floor"
    whole = path.read_bytes()
    damaged = [whole[:length] for length in range(len(whole))]
    damaged += [whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1 :] for at in range(len(whole)) for bit in range(8)]
    damaged += [whole + b"x", whole + whole, whole.replace(b"\n", b"\r\n"), bytes(len(whole))]
    for content in damaged:
        path.write_bytes(content)
        with pytest.raises(StoreError, match="is damaged"):
            floor_at(root).names()
        with pytest.raises(StoreError, match="is damaged"):
            floor_at(root).raise_to(["new/v1"])
        assert path.read_bytes() == content
    print(f"T20f: {len(damaged)} damaged floors of {len(whole)} bytes")
    assert len(damaged) == 9 * len(whole) + 4 > 900
    path.write_bytes(whole)
    assert floor_at(root).names() == {"early-return/v1", "terminate/v1"}


def test_a_floor_that_cannot_be_read_is_not_taken_for_absent(root: Path) -> None:
    floor_at(root).raise_to(["a/v1"])

    class Unreadable(Disk):
        def open_file(self, name: str, within: int, flags: int) -> int:
            if name == "wal-feature-floor":
                raise OSError(errno.EACCES, "Permission denied")
            return super().open_file(name, within, flags)

    for act in (floor_at(root, Unreadable()).names, lambda: floor_at(root, Unreadable()).raise_to(["b/v1"])):
        with pytest.raises(StoreError, match="Permission denied"):
            act()
    assert floor_at(root).names() == {"a/v1"}


def test_what_is_no_feature_name_is_refused_before_anything_is_touched(root: Path) -> None:
    for bad in ("", "A/v1", "a b", "a\n", "a,b", "-"):
        with pytest.raises(StoreError, match="no feature names"):
            floor_at(root).raise_to([bad])
    assert not root.exists()


def test_eight_processes_that_raise_at_once_lose_no_name_and_keep_one_lock_file(root: Path) -> None:
    floor_at(root).raise_to(["first/v1"])
    lock = (root / "wal-feature-floor.lock").stat().st_ino
    names = [[f"p{number}-{name}/v1" for name in range(6)] for number in range(8)]
    with ExitStack() as stack:
        for raiser in [stack.enter_context(process("raiser", root, *mine)) for mine in names]:
            assert raiser.hear()
    found = floor_at(root).names()
    print(f"T20f: {len(names)} processes raised {len(found) - 1} names at once")
    assert found == {"first/v1", *(name for mine in names for name in mine)}
    assert len(found) == 49
    assert (root / "wal-feature-floor.lock").stat().st_ino == lock


class NoLocks(OpenFileLocks):
    """Excludes nobody: the planted fault."""

    def lock(self, fd: int) -> bool:
        return True


def test_a_raise_without_the_lock_would_lose_the_name_that_another_process_raises_meanwhile(root: Path) -> None:
    class Overtaken(FaultyDisk):
        def open_file(self, name: str, within: int, flags: int) -> int:
            if name.endswith(".new"):  # what the floor held was read before
                with process("raiser", root, "other/v1") as other:
                    assert other.hear()
            return super().open_file(name, within, flags)

    floor_at(root, Overtaken(locks=NoLocks())).raise_to(["mine/v1"])
    assert floor_at(root).names() == {"mine/v1"}, "this is what the lock prevents"


def test_a_process_killed_at_any_call_of_raising_leaves_the_old_floor_or_the_new(root: Path) -> None:
    with process("raiser", root / "reference", "b/v1") as raiser:
        calls = raiser.hear().split()
    floors, deaths = set(), [(number, when) for number in range(1, len(calls) + 1) for when in ("entry", "exit")]
    for number, when in deaths:
        place = root / f"{number}-{when}"
        floor_at(place).raise_to(["a/v1"])
        with process("raiser", place, "b/v1", SEMEL_TEST_KILL=f"{number}:{when}") as raiser:
            raiser.hear()
            raiser.child.wait(20)
        floors.add(floor_at(place).names())
        floor_at(place).raise_to(["c/v1"])
        assert floor_at(place).names() >= {"a/v1", "c/v1"}
    print(f"T20f: {len(deaths)} deaths of a raise, before and behind each of its calls: {len(floors)} different floors")
    assert len(deaths) == 26
    assert floors == {frozenset({"a/v1"}), frozenset({"a/v1", "b/v1"})}


def test_a_power_loss_at_any_call_leaves_the_old_floor_or_the_new_and_never_takes_back_a_raise(root: Path) -> None:
    done = 0
    for number in range(1, 100):
        disk = ForgetfulDisk(Fault(at=number, kind="crash_exit"))
        place = root / f"{number}"
        floor_at(place).raise_to(["a/v1"])
        try:
            floor_at(place, disk).raise_to(["b/v1"])
            done += 1
        except Crashed:
            pass
        disk.lose_power()
        names = floor_at(place).names()
        assert names in ({"a/v1"}, {"a/v1", "b/v1"})
        if done:
            assert names == {"a/v1", "b/v1"}
            break
    print(f"T20f: {number - 1} power losses of a raise")
    assert number > 9


def test_a_lock_that_stays_taken_is_waited_for_but_not_for_ever(root: Path) -> None:
    floor_at(root).raise_to(["a/v1"])

    class Patient(Disk):
        pauses = 0

        def pause(self) -> None:
            self.pauses += 1

    disk = Patient()
    with (root / "wal-feature-floor.lock").open("r+b") as lock:
        assert disk.lock(lock.fileno())
        with pytest.raises(StoreError, match="stayed locked by another process"):
            floor_at(root, disk).raise_to(["b/v1"])
    assert disk.pauses == 1000
    floor_at(root, disk).raise_to(["b/v1"])


@pytest.mark.anyio
async def test_w16_a_gated_record_whose_floor_cannot_be_raised_is_not_appended(
    make_store: MakeStore, root: Path, place: Path
) -> None:
    disk = FaultyDisk()
    writer = await make_store(disk).open("box")
    await writer.append([lineage_payload(), payload(20)])
    before = (place / "wal.log").read_bytes()
    for call in ("lock", "rename", "sync", "sync_directory"):
        disk.fail_next(call, errno.EIO)
        with pytest.raises(StoreError):
            await writer.append([payload(20), payload(20, requires=("a/v1",))])
        disk.fail_next(call, errno.EIO)
        with pytest.raises(StoreError):
            writer.note([payload(20, requires=("a/v1",))])
        assert (place / "wal.log").read_bytes() == before
    await writer.append([payload(20, requires=("a/v1",))])
    assert floor_at(root).names() == {"a/v1"}
    disk.calls.clear()
    await writer.append([payload(20, requires=("a/v1",))])
    assert disk.calls == ["write", "sync"]  # a covered append costs the floor nothing
    await writer.close()


@pytest.mark.anyio
async def test_w41_several_features_are_raised_together_before_their_frame(make_store: MakeStore, root: Path) -> None:
    class Watching(Disk):
        floor: bytes | None = None

        def write_some(self, fd: int, data: memoryview, offset: int | None) -> int:
            if bytes(data[:2]) == b"3 ":
                self.floor = (root / "wal-feature-floor").read_bytes()
            return super().write_some(fd, data, offset)

    disk = Watching()
    writer = await make_store(disk).open("box")
    await writer.append([lineage_payload(), payload(20)])
    await writer.append([payload(20, requires=("a/v1", "terminate/v1"))])
    assert disk.floor == encode_floor(frozenset({"a/v1", "terminate/v1"}))
    await writer.close()


def test_the_floor_of_another_user_is_not_trusted(root: Path) -> None:
    floor_at(root).raise_to(["a/v1"])
    os.chmod(root / "wal-feature-floor", 0o602)
    with pytest.raises(StoreError, match="may be written by everybody"):
        floor_at(root).names()
