"""The syncs of several sessions go to threads, that of one alone does not; nobody is left waiting, and no thread stays behind."""

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest

from semel.adapters.file.disk import Disk
from semel.adapters.file.syncs import Syncs
from semel.adapters.file.writer import FileWriter
from semel.errors import WriterPoisoned
from storage.conftest import MakeStore
from storage.logs import lineage_payload, payload

pytestmark = pytest.mark.anyio
SESSIONS = 6


class WhereDisk(Disk):
    """Remembers in which thread each file was synced; with `fails`, no sync does any more."""

    def __init__(self) -> None:
        super().__init__()
        self.threads: list[int] = []
        self.fails = False

    def sync(self, fd: int) -> None:
        self.threads.append(threading.get_ident())
        if self.fails:
            raise OSError(5, "Input/output error")
        super().sync(fd)


async def opened(make_store: MakeStore, disk: Disk, count: int) -> list[FileWriter]:
    store = make_store(disk)
    writers = [await store.open(f"s{number}") for number in range(count)]
    for number, writer in enumerate(writers):
        await writer.append([lineage_payload(session=f"s{number}")])
    return writers


def syncing_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "semel syncs"}


@pytest.fixture(autouse=True)
async def no_thread_stays_behind() -> AsyncIterator[None]:
    before = syncing_threads()
    yield
    for thread in syncing_threads() - before:
        await asyncio.to_thread(thread.join, 20)
        assert not thread.is_alive()


async def closed(writers: list[FileWriter]) -> None:
    for writer in writers:
        await writer.close()


async def test_a_session_that_writes_alone_syncs_on_the_loop_whoever_else_is_open(make_store: MakeStore) -> None:
    disk = WhereDisk()
    writers = await opened(make_store, disk, SESSIONS)
    await writers[0].append([payload(10)])
    disk.threads.clear()
    for _ in range(5):
        await writers[0].append([payload(10)])
    assert disk.threads == [threading.get_ident()] * 5
    await closed(writers)


async def threads_of_writes_at_once(make_store: MakeStore) -> list[int]:
    disk = WhereDisk()
    writers = await opened(make_store, disk, SESSIONS)
    disk.threads.clear()
    for _ in range(5):
        frames = await asyncio.gather(*(writer.append([payload(10), payload(20)]) for writer in writers))
        assert [found[-1].seq for found in frames] == [writer.durable for writer in writers]
    await closed(writers)
    assert [make_store().read(f"s{number}").head for number in range(SESSIONS)] == [10] * SESSIONS
    return disk.threads


async def test_sessions_that_write_at_once_sync_in_threads_and_all_of_it_is_durable(make_store: MakeStore) -> None:
    threads = await threads_of_writes_at_once(make_store)
    assert len(threads) == 5 * SESSIONS
    assert threading.get_ident() not in threads


async def test_syncs_that_hold_the_loop_up_are_seen(make_store: MakeStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Syncs, "alone", lambda *_: True)
    assert threading.get_ident() in await threads_of_writes_at_once(make_store)


async def test_a_sync_that_fails_in_a_thread_poisons_its_own_writer(make_store: MakeStore) -> None:
    disk = WhereDisk()
    writers = await opened(make_store, disk, 2)
    disk.fails = True
    found = await asyncio.gather(*(writer.append([payload(10)]) for writer in writers), return_exceptions=True)
    assert [type(error) for error in found] == [WriterPoisoned, WriterPoisoned]
    disk.fails = False
    for writer in writers:
        with pytest.raises(WriterPoisoned):
            await writer.append([payload(10)])
    await closed(writers)


async def test_threads_without_work_end_and_others_take_their_place(
    make_store: MakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Far above what a busy machine may keep a thread waiting: behind a deadline that has passed, SimpleQueue.get waits for ever.
    monkeypatch.setattr("semel.adapters.file.syncs.IDLE_SECONDS", 0.25)
    before = syncing_threads()
    writers = await opened(make_store, WhereDisk(), SESSIONS)
    for _ in range(2):
        await asyncio.gather(*(writer.append([payload(10)]) for writer in writers))
        for thread in syncing_threads() - before:
            await asyncio.to_thread(thread.join, 20)
        assert syncing_threads() <= before
    await closed(writers)


@pytest.mark.parametrize("behind", [False, True], ids=["before its end", "between its end and the one who waits"])
async def test_a_wait_that_is_cancelled_ends_behind_its_work_and_not_later(behind: bool) -> None:
    syncs, go, began, writer, ended = Syncs(asyncio.get_running_loop()), threading.Event(), threading.Event(), object(), []

    def work() -> None:
        began.set()
        ended.append(go.wait(20))

    def tell_and_cancel() -> None:
        tell()
        waiting.cancel()

    syncs.enter(writer)
    waiting = asyncio.ensure_future(syncs.do(work))
    await asyncio.to_thread(began.wait, 20)
    if behind:
        tell, syncs._tell = syncs._tell, tell_and_cancel  # type: ignore[method-assign]  # the moment that this is about
    else:
        for _ in range(3):
            waiting.cancel()
            await asyncio.sleep(0)
        assert not waiting.done()
    go.set()
    await asyncio.wait({waiting}, timeout=20)
    assert waiting.cancelled()
    assert ended == [True]
    syncs.leave(writer)
