"""Who holds a session: the operating system's lock alone decides (L1-L8, proof T16, case B36)."""

import errno
import os
import signal
import threading
from pathlib import Path

import msgspec
import pytest

from semel.adapters.file.disk import Disk, mounted_type
from semel.adapters.file.locks import OpenFileLocks, WholeFileLocks
from semel.errors import ForeignWrite, LeaseLost, SessionBusy, StoreError, UnsafeStore
from semel.testing.faults import FaultyDisk
from storage.conftest import MakeStore, contents, plant
from storage.logs import lineage_payload, payload, reference_log
from storage.processes import Process, process

LOG = reference_log()


@pytest.mark.anyio
async def test_l1_a_live_holder_in_another_process_is_named_and_its_death_by_sigkill_frees_the_session(
    make_store: MakeStore, root: Path
) -> None:
    store = make_store()
    with process("holder", root, "box") as holder:
        assert holder.hear() == "open 1"
        assert holder.ask("append first") == "appended 1"
        assert holder.ask("note second") == "noted 2"
        with pytest.raises(SessionBusy, match=rf"session 'box' is in use by process {holder.child.pid} on ") as caught:
            await store.open("box")
        assert caught.value.exit == 7
        assert store.owner("box") == store.read("box").owner
        assert [frame.seq for frame in store.read("box").frames] == [0, 1][: store.read("box").head + 1]
        holder.kill()
    assert store.owner("box") is None
    writer = await store.open("box")
    assert (writer.fence, writer.head) == (2, 2)
    await writer.close()


@pytest.mark.anyio
async def test_a_tool_that_outlives_its_holder_does_not_keep_the_lease(make_store: MakeStore, root: Path) -> None:
    with process("holder", root, "box") as holder:
        holder.hear()
        child = int(holder.ask("child").split()[1])
        try:
            holder.kill()
            os.kill(child, 0)  # it lives
            await (await make_store().open("box")).close()
        finally:
            os.kill(child, signal.SIGKILL)


@pytest.mark.anyio
async def test_b36_a_stopped_holder_keeps_its_lease_and_notices_a_foreign_write_when_it_goes_on(
    make_store: MakeStore, root: Path, place: Path
) -> None:
    with process("holder", root, "box") as holder:
        holder.hear()
        holder.ask("append first")
        holder.signal(signal.SIGSTOP)
        with pytest.raises(SessionBusy):
            await make_store().open("box")  # stopped is not dead
        assert make_store().read("box").owner is not None  # but reading goes on
        foreign = (place / "wal.log").read_bytes() + b"written by something that knows no locks"
        (place / "wal.log").write_bytes(foreign)
        holder.tell("append second")
        holder.signal(signal.SIGCONT)
        assert holder.hear().startswith("foreign_write ")
        assert (place / "wal.log").read_bytes() == foreign


@pytest.mark.anyio
@pytest.mark.parametrize("how", ["unlinked", "replaced"])
async def test_b36_a_stopped_holder_whose_lease_was_taken_neither_appends_nor_dispatches_when_it_goes_on(
    how: str, make_store: MakeStore, root: Path, place: Path
) -> None:
    with process("holder", root, "box") as holder:
        holder.hear()
        holder.ask("append first")
        holder.signal(signal.SIGSTOP)
        (place / "lease").unlink()
        if how == "replaced":
            (place / "lease").write_bytes(b"")
        writer = await make_store().open("box")
        assert writer.fence == 2  # the log remembers the first tenure
        await writer.append([payload(20)])
        after = (place / "wal.log").read_bytes()
        holder.signal(signal.SIGCONT)
        assert holder.ask("check").startswith("lease_lost ")
        assert holder.ask("append second").startswith("lease_lost ")
        assert holder.ask("note third").startswith("lease_lost ")
        assert holder.ask("close") == "closed"
        assert (place / "wal.log").read_bytes() == after
        writer.check()
        await writer.close()


@pytest.mark.anyio
async def test_a_second_open_in_the_same_process_and_from_another_thread_is_refused(make_store: MakeStore) -> None:
    writer = await make_store().open("box")
    with pytest.raises(SessionBusy, match=f"process {os.getpid()} on "):
        await make_store().open("box")
    with pytest.raises(SessionBusy):
        await make_store(inline=False).open("box")
    await writer.close()


@pytest.mark.anyio
async def test_reading_a_lease_in_between_does_not_drop_the_lock(make_store: MakeStore, place: Path) -> None:
    writer = await make_store().open("box")
    (place / "lease").read_bytes()  # closing an unrelated descriptor would free a lock of the process
    with pytest.raises(SessionBusy):
        await make_store().open("box")
    await writer.close()


@pytest.mark.anyio
async def test_a_session_directory_that_was_moved_away_takes_the_tenure_with_it(make_store: MakeStore, place: Path) -> None:
    writer = await make_store().open("box")
    await writer.append([lineage_payload(), payload(20)])
    place.rename(place.with_name("elsewhere"))
    other = await make_store().open("box")  # a new, empty session
    with pytest.raises(LeaseLost):
        writer.check()
    with pytest.raises(LeaseLost):
        await writer.append([payload(20)])
    await writer.close()
    other.check()
    await other.close()


HERE, BOOT = os.uname().nodename, Path("/proc/sys/kernel/random/boot_id")
BOOT_ID = BOOT.read_text().strip() if BOOT.exists() else ""
LOCK_TABLE = {
    "pid reused": {"fence": 3, "pid": os.getpid(), "started": "100", "host": HERE, "boot": BOOT_ID},
    "container pid 1": {"fence": 3, "pid": 1, "started": "5", "host": "c0ffee", "boot": "another"},
    "same pid, in-process restart": {"fence": 3, "pid": os.getpid(), "started": "", "host": HERE, "boot": BOOT_ID},
    "other host": {"fence": 3, "pid": 77, "started": "9", "host": "box2", "boot": ""},
}


@pytest.mark.anyio
@pytest.mark.parametrize("name", [*LOCK_TABLE, "garbage", "empty", "huge", "fence at the limit", "hostile"])
async def test_b36_a_lease_file_without_a_lock_is_taken_over_whatever_it_says(
    name: str, make_store: MakeStore, root: Path, place: Path
) -> None:
    plant(root, LOG.data)
    odd = {
        "garbage": b"\0\0",
        "empty": b"",
        "huge": b"x" * 100_000,
        "fence at the limit": msgspec.json.encode({**LOCK_TABLE["other host"], "fence": 2**63 - 1}),
        "hostile": msgspec.json.encode({**LOCK_TABLE["other host"], "pid": -1, "host": "\x1b[31m\n", "fence": 20}),
    }
    (place / "lease").write_bytes(odd[name] if name in odd else msgspec.json.encode(LOCK_TABLE[name]))
    writer = await make_store().open("box")
    assert writer.fence == (21 if name == "hostile" else 13)
    assert len((place / "lease").read_bytes()) == 512
    with pytest.raises(SessionBusy, match=f"process {os.getpid()} on {HERE}"):
        await make_store().open("box")
    await writer.close()


@pytest.mark.anyio
@pytest.mark.parametrize("name", [*LOCK_TABLE, "garbage", "hostile"])
async def test_b36_a_lease_file_with_a_lock_is_never_taken_whatever_it_says(
    name: str, make_store: MakeStore, root: Path, place: Path
) -> None:
    plant(root, LOG.data)
    says = {**LOCK_TABLE, "hostile": {"fence": 1, "pid": 7, "started": "", "host": "\x1b[31mroot\n\n", "boot": ""}}
    (place / "lease").write_bytes(msgspec.json.encode(says[name]) if name in says else b"\0\0")
    with (place / "lease").open("r+b") as lease:
        assert Disk().lock(lease.fileno())
        with pytest.raises(SessionBusy) as caught:
            await make_store().open("box")
    message = str(caught.value)
    expected = {
        "pid reused": "a process that is just opening it",
        "same pid, in-process restart": "a process that is just opening it",
        "container pid 1": "process 1 on c0ffee",
        "other host": "process 77 on box2",
        "garbage": "a process that does not say which",
        "hostile": "process 7 on [31mroot",
    }
    assert expected[name] in message
    assert message.isprintable()


@pytest.mark.anyio
@pytest.mark.parametrize("code", [errno.ENOLCK, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS])
async def test_b36_a_file_system_without_locks_is_refused_by_name(code: int, make_store: MakeStore) -> None:
    disk = FaultyDisk()
    disk.fail_next("lock", code)
    with pytest.raises(UnsafeStore, match=rf"lease cannot be locked \({os.strerror(code)}\).*local disk"):
        await make_store(disk).open("box")


@pytest.mark.anyio
async def test_b36_an_interrupted_lock_is_tried_again_but_not_for_ever(make_store: MakeStore) -> None:
    disk = FaultyDisk()
    disk.fail_next("lock", errno.EINTR)
    await (await make_store(disk).open("box")).close()
    disk = FaultyDisk()
    disk.fail_always("lock", errno.EINTR)
    with pytest.raises(StoreError, match="interrupted again and again"):
        await make_store(disk).open("box")
    assert disk.calls.count("lock") == 8


@pytest.mark.anyio
async def test_b36_a_read_only_directory_is_called_that_and_can_still_be_read(make_store: MakeStore, root: Path) -> None:
    plant(root, LOG.data)

    class ReadOnly(Disk):
        def open_file(self, name: str, within: int, flags: int) -> int:
            if flags & (os.O_WRONLY | os.O_RDWR):
                raise OSError(errno.EROFS, "Read-only file system")
            return super().open_file(name, within, flags)

    with pytest.raises(StoreError, match=r"could not open .*/lease: Read-only file system") as caught:
        await make_store(ReadOnly()).open("box")
    assert not isinstance(caught.value, SessionBusy)
    assert make_store(ReadOnly()).read("box").frames == LOG.frames


class _NoLocks(OpenFileLocks):
    """A mount on which locking always succeeds and means nothing."""

    def lock(self, fd: int) -> bool:
        return True

    def unlock(self, fd: int) -> None:
        pass

    def held(self, fd: int) -> bool:
        return False


@pytest.mark.anyio
async def test_b36_where_locks_mean_nothing_the_stamp_and_the_size_stop_the_one_who_was_overtaken(
    make_store: MakeStore, place: Path
) -> None:
    first = await make_store(Disk(_NoLocks())).open("box")
    await first.append([lineage_payload(), payload(20)])
    second = await make_store(Disk(_NoLocks())).open("box")
    await second.append([payload(20)])
    before = contents(place)
    with pytest.raises(LeaseLost):
        first.check()
    with pytest.raises(LeaseLost):
        await first.append([payload(20)])
    (place / "lease").write_bytes((first._lease)._content)  # even if the stamp looked right
    with pytest.raises(ForeignWrite):
        await first.append([payload(20)])
    assert (place / "wal.log").read_bytes() == before["wal.log"]
    await first.close()


@pytest.mark.anyio
async def test_a_lease_file_that_is_replaced_while_it_is_locked_is_looked_up_again(make_store: MakeStore, place: Path) -> None:
    class Replacing(Disk):
        times = 0

        def lock(self, fd: int) -> bool:
            if self.times < 3:
                self.times += 1
                (place / "lease").unlink()
                (place / "lease").touch(mode=0o600)
            return super().lock(fd)

    disk = Replacing()
    writer = await make_store(disk).open("box")
    assert disk.times == 3
    writer.check()
    await writer.close()
    disk.times = -100
    with pytest.raises(SessionBusy, match="could not be locked in time"):
        await make_store(disk).open("box")


def test_both_kinds_of_lock_belong_to_the_open_file_and_exclude_each_other(tmp_path: Path) -> None:
    for locks in (OpenFileLocks(), WholeFileLocks()):
        path = tmp_path / type(locks).__name__
        path.touch()
        with path.open("r+b") as one, path.open("r+b") as other, path.open("r+b") as third:
            assert locks.lock(one.fileno())
            assert not locks.lock(other.fileno())
            assert locks.held(third.fileno())
            third.close()  # closing another descriptor frees nothing
            assert locks.held(other.fileno())
            seen: list[bool] = []
            thread = threading.Thread(target=lambda: seen.append(locks.lock(other.fileno())))  # noqa: B023  joined below
            thread.start()
            thread.join()
            assert seen == [False]
            locks.unlock(one.fileno())
            assert not locks.held(other.fileno())
            assert locks.lock(other.fileno())


@pytest.mark.anyio
@pytest.mark.parametrize("kind", ["nfs4", "cifs", "9p", "fuse.sshfs", "smb3"])
async def test_network_file_systems_are_refused_by_type(kind: str, make_store: MakeStore, root: Path) -> None:
    class Mounted(Disk):
        def file_system(self, path: Path) -> str:
            assert path == root
            return kind

    with pytest.raises(UnsafeStore, match=rf"network file system \({kind}\)"):
        await make_store(Mounted()).open("box")


def test_the_innermost_mount_tells_the_type_of_the_file_system() -> None:
    table = "\n".join(
        [
            "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/vda rw",
            "30 22 0:40 / /mnt/net rw - nfs4 server:/export rw",
            "31 22 8:2 / /mnt/net/local rw - xfs /dev/vdb rw",
            "32 22 0:41 / /mnt/with\\040space rw - cifs //server/share rw",
            "33 22 0:42 / /mnt/over rw - nfs server:/x rw",
            "34 22 8:3 / /mnt/over rw - btrfs /dev/vdc rw",
            "garbage\n",
        ]
    )
    places = {
        "/users/me": "ext4",
        "/mnt/net": "nfs4",
        "/mnt/net/a/b": "nfs4",
        "/mnt/network": "ext4",
        "/mnt/net/local/state": "xfs",
        "/mnt/with space/state": "cifs",
        "/mnt/over/state": "btrfs",  # what was mounted last hides what was there
    }
    assert {path: mounted_type(table, Path(path)) for path in places} == places
    assert mounted_type("", Path("/x")) == ""


def test_a_real_process_can_be_killed_at_any_persistence_call(root: Path) -> None:
    said = {}
    for number, when in ((1, "entry"), (14, "exit"), (10_000, "entry")):
        with process("holder", root / f"{number}", "box", SEMEL_TEST_KILL=f"{number}:{when}") as holder:
            said[number] = [holder.hear(), _ask_quietly(holder, "append x")]
            code = holder.child.poll() if said[number][1] else holder.child.wait(20)
            said[number].append(code)
    assert said == {1: ["", "", -9], 14: ["open 1", "", -9], 10_000: ["open 1", "appended 1", None]}


def _ask_quietly(holder: Process, line: str) -> str:
    try:
        return holder.ask(line)
    except BrokenPipeError:
        return ""
