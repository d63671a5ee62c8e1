"""T16: the life of a lock, case by case: free at the real death of its holder, never two holders, no pid trusted."""

import asyncio
import os
import signal
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from semel.adapters.file.disk import Disk
from semel.adapters.file.store import FileStore
from semel.adapters.system import SystemClock
from semel.core.frame import TailKind, scan
from semel.errors import LeaseLost, SessionBusy
from semel.testing.faults import FaultyDisk
from storage.logs import lineage_payload, payload
from storage.processes import Process, process

Case = Callable[[Path], Awaitable[None]]


def store_at(root: Path, disk: Disk | None = None) -> FileStore:
    return FileStore(root, SystemClock(), known=frozenset(), disk=disk)


async def taken(root: Path) -> None:
    """Somebody else holds the session."""
    with pytest.raises(SessionBusy):
        await store_at(root).open("box")


async def free(root: Path, disk: Disk | None = None) -> None:
    """The session can be opened and written, and the log is whole."""
    writer = await store_at(root, disk).open("box")
    await writer.append([payload(20)] if writer.head else [lineage_payload(), payload(20)])
    await writer.close()
    assert scan((root / "sessions" / "box" / "wal.log").read_bytes()).tail.kind is TailKind.CLEAN


def _started(holder: Process) -> None:
    assert holder.hear().startswith("open ")
    assert holder.ask("append x").startswith("appended ")


def _end(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


async def holder_killed(root: Path) -> None:
    with process("holder", root, "box") as holder:
        _started(holder)
        await taken(root)
        holder.kill()
        await free(root)


async def holder_forks_and_dies(root: Path) -> None:
    """A forked copy holds what its parent held, so it counts as a holder until it is dead as well."""
    with process("holder", root, "box") as holder:
        _started(holder)
        copy = int(holder.ask("fork").split()[1])
        try:
            holder.kill()
            await taken(root)
        finally:
            pidfd = os.pidfd_open(copy)
            _end(copy)
            await asyncio.to_thread(_gone, pidfd)
        await free(root)


def _gone(pidfd: int) -> None:
    """Wait for the end of a process that is no child of ours."""
    import select

    try:
        assert select.select([pidfd], [], [], 20)[0]
    finally:
        os.close(pidfd)


async def _child_outlives(root: Path, word: str) -> None:
    with process("holder", root, "box") as holder:
        _started(holder)
        child = int(holder.ask(word).split()[1])
        try:
            holder.kill()
            os.kill(child, 0)
            await free(root)
        finally:
            _end(child)


async def tool_child_outlives_its_holder(root: Path) -> None:
    await _child_outlives(root, "child")


async def child_with_every_descriptor(root: Path) -> None:
    await _child_outlives(root, "leaky")


async def _overtaken(root: Path, spoil: Callable[[Path], object]) -> None:
    with process("holder", root, "box") as holder:
        _started(holder)
        spoil(root / "sessions" / "box" / "lease")
        await free(root)
        for word in ("check", "append late", "note late"):
            assert holder.ask(word).startswith(("lease_lost ", "foreign_write ")), word


async def lock_file_unlinked(root: Path) -> None:
    await _overtaken(root, Path.unlink)


async def lock_file_replaced_by_rename(root: Path) -> None:
    def replace(lease: Path) -> None:
        lease.with_name("new").write_bytes(b"")
        lease.with_name("new").rename(lease)

    await _overtaken(root, replace)


async def session_directory_moved(root: Path) -> None:
    def move(lease: Path) -> None:
        lease.parent.rename(root / "elsewhere")

    await _overtaken(root, move)


async def second_open_in_one_process(root: Path) -> None:
    writer = await store_at(root).open("box")
    await taken(root)
    (root / "sessions" / "box" / "lease").read_bytes()  # closing another descriptor of the file frees nothing
    await taken(root)
    await writer.close()
    with pytest.raises(LeaseLost):
        writer.check()
    await free(root)


async def thread_holds(root: Path) -> None:
    held, over = threading.Event(), threading.Event()

    def hold() -> None:
        async def act() -> None:
            writer = await store_at(root).open("box")
            held.set()
            over.wait(20)
            await writer.close()

        asyncio.run(act())

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        assert held.wait(20)
        await taken(root)
    finally:
        over.set()
        thread.join()
    await free(root)


async def pid_used_again(root: Path) -> None:
    """The lease names a process that lives, which is another one; or one of another boot or machine; or nonsense."""
    await free(root)
    lease = root / "sessions" / "box" / "lease"
    says = msgspec.json.decode(lease.read_bytes())
    for change in ({"pid": os.getpid(), "started": "1"}, {"pid": 1, "host": "elsewhere"}, {"pid": 1, "boot": "another"}):
        lease.write_bytes(msgspec.json.encode({**says, **change}))
        await free(root)
    with process("holder", root, "box") as holder:
        _started(holder)
        holder.signal(signal.SIGSTOP)
        await taken(root)  # stopped is not dead, whatever its pid says


CASES: dict[str, Case] = {
    case.__name__: case
    for case in (
        *(holder_killed, holder_forks_and_dies, tool_child_outlives_its_holder, child_with_every_descriptor),
        *(lock_file_unlinked, lock_file_replaced_by_rename, session_directory_moved),
        *(second_open_in_one_process, thread_holds, pid_used_again),
    )
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.anyio
async def test_t16_a_lock_is_held_by_one_and_freed_by_death(name: str, root: Path) -> None:
    await CASES[name](root)


def test_t16_there_are_ten_named_cases() -> None:
    print(f"T16: {len(CASES)} named cases: {', '.join(CASES)}")
    assert len(CASES) == 10


@pytest.mark.anyio
async def test_t16_two_hundred_holders_are_killed_one_after_the_other_and_each_frees_the_lock(root: Path) -> None:
    fences = []
    with process("mortals", root, "box") as mortals:
        for _ in range(200):
            word, pid, fence = mortals.ask("next").split()
            assert word == "open"
            await taken(root)
            os.kill(int(pid), signal.SIGKILL)
            assert mortals.hear() == f"dead {-signal.SIGKILL}"
            await free(root, FaultyDisk())  # which flushes nothing: the machine stays up
            fences.append(int(fence))
    print(f"T16: {len(fences)} holders killed")
    assert fences == list(range(1, 401, 2)), "between two of them it was ours"


@pytest.mark.parametrize("case", [holder_killed, second_open_in_one_process, thread_holds, pid_used_again])
@pytest.mark.anyio
async def test_t16_locks_that_exclude_nobody_are_caught(case: Case, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Disk, "lock", lambda _self, _fd: True)
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        await case(root)


@pytest.mark.anyio
async def test_t16_a_lock_that_a_child_keeps_is_caught(root: Path) -> None:
    with pytest.raises(SessionBusy):
        await _child_outlives(root, "bequeath")


@pytest.mark.prove
@pytest.mark.timeout(1700)
@pytest.mark.anyio
async def test_t16_two_hundred_deaths_and_twenty_times_each_named_case(tmp_path: Path) -> None:
    runs = 0
    for name, case, times in [("killed", holder_killed, 200), *((name, case, 20) for name, case in CASES.items())]:
        for number in range(times):
            await case(tmp_path / f"{name}-{number}")
            runs += 1
    print(f"T16: {runs} lives of a lock: 200 holders killed, {len(CASES)} named cases 20 times each")
    assert runs == 400
