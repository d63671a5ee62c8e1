"""B36: one session, two that want it. The table of lock files, kinds of locks and mounts is in tests/storage/test_lease.py."""

import asyncio
import signal
import threading
from pathlib import Path

import pytest

from semel.adapters.file.store import FileStore
from semel.adapters.system import SystemClock
from semel.core.frame import scan
from semel.errors import SessionBusy
from storage.logs import lineage_payload, payload
from tests.faces.support import open_shop


def test_b36_a_second_program_is_told_who_holds_the_session_and_may_still_look(tmp_path: Path) -> None:
    shop = open_shop(tmp_path)
    paying = shop.start_and_pay("run", "Pay 17", "--session", "s")
    try:
        paying.send_signal(signal.SIGSTOP)  # stopped is not dead, however long it lasts
        before = shop.log("s").read_bytes()
        refused = shop.semel("resume", "s")
        assert refused.exit == 7
        assert f"is in use by process {paying.pid} on " in refused.err
        assert shop.semel("tail", "s", "--json").lines
        assert shop.semel("show", "s").exit == 0
        assert shop.semel("verify", "s").exit == 0
        assert shop.log("s").read_bytes() == before
    finally:
        paying.send_signal(signal.SIGCONT)
    shop.let_pay()
    paying.communicate()
    assert paying.returncode == 0
    assert len(shop.ledger) == 1


@pytest.mark.anyio
async def test_b36_tasks_of_one_process_append_one_after_the_other_and_a_second_thread_gets_no_writer(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "state", SystemClock(), known=frozenset(), inline_sync=False)
    writer = await store.open("s")
    await writer.append([lineage_payload("s"), payload(10)])
    batches = await asyncio.gather(*(writer.append([payload(20), payload(30)]) for _ in range(50)))
    seen: list[type[BaseException]] = []

    def other() -> None:
        try:
            asyncio.run(FileStore(tmp_path / "state", SystemClock(), known=frozenset()).open("s"))
        except SessionBusy as error:
            seen.append(type(error))

    thread = threading.Thread(target=other)
    thread.start()
    await asyncio.to_thread(thread.join)
    await writer.close()
    assert seen == [SessionBusy]
    found = scan((tmp_path / "state" / "sessions" / "s" / "wal.log").read_bytes())
    assert [frame.seq for frame in found.frames] == list(range(102))
    assert [frame.seq for batch in batches for frame in batch] == list(range(2, 102))
    assert all(batch[0].left == 1 and batch[1].left == 0 for batch in batches), "a batch is one write, never interleaved"
