"""P33: a listing is the index up to its watermark and the log behind it; the index can be lost, stale or damaged at any byte."""

import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from semel import Agent, Runtime
from semel.adapters.file.repair import repair
from semel.adapters.file.store import FileStore
from semel.adapters.system import SystemClock, SystemIds
from semel.core.features import KNOWN
from semel.core.frame import scan
from semel.engine.resume import Ground
from semel.errors import LogDamaged, OutcomeUnknown
from semel.faces.listing import Listing, listing_of
from semel.faces.views import waiting_of
from semel.ports.log import TakeFrames, View
from semel.ports.tool import Call
from tests.engine.fakes import call, counting, script_file

pytestmark = pytest.mark.anyio
SESSIONS = ("done", "lost", "plain", "Odd Name")


class CountingStore(FileStore):
    """Counts the logs that were read."""

    reads = 0

    def read(self, session: str, after: int = -1, *, take: TakeFrames | None = None) -> View:
        self.reads += 1
        return super().read(session, after, take=take)


def store_at(root: Path) -> CountingStore:
    return CountingStore(root, SystemClock(), known=KNOWN)


async def send(root: Path, session: str, script: Path, key: str) -> None:
    async def pay(_arguments: object, _call: Call[object]) -> str:
        if session == "lost":
            raise OutcomeUnknown("gone")
        return "paid"

    agent = Agent(
        "a", model=script_file(script, {"calls": [call("pay")]}, *([{"text": "ok"}] * 9)), tools=[counting("pay", behaviour=pay)]
    )
    ground = Ground(store=store_at(root), clock=SystemClock(), ids=SystemIds())
    async with Runtime(agents=[agent], ground=ground, recover="manual") as runtime:
        await (await runtime.session(session, agent=agent).send("hi", key=key)).rest()


@pytest.fixture
async def root(tmp_path: Path) -> Path:
    for session in SESSIONS:
        await send(tmp_path / "state", session, tmp_path / "m.json", "k")
    return tmp_path / "state"


def told(root: Path) -> tuple[list[Listing], object, int]:
    """What a new process says, and how many logs it read for that."""
    store = store_at(root)
    listed = list(listing_of(store))
    waiting = waiting_of(store)
    return listed, (waiting.calls, waiting.stranded), store.reads


async def test_a_second_listing_reads_no_log_and_says_the_same(root: Path) -> None:
    first, second = told(root), told(root)
    assert first[:2] == second[:2]
    assert (first[2], second[2]) == (len(SESSIONS), 0)
    assert [one.session for one in second[0]] == sorted(SESSIONS)
    assert sum(one.unknown_calls for one in second[0]) == 1
    assert (root / "index.db").stat().st_mode & 0o777 == 0o600


async def test_what_was_appended_behind_the_watermark_is_in_the_listing(root: Path, tmp_path: Path) -> None:
    before = {one.session: one.head_seq for one in told(root)[0]}
    await send(root, "done", tmp_path / "m.json", "again")
    listed, _, reads = told(root)
    after = {one.session: one.head_seq for one in listed}
    assert after["done"] > before["done"]
    assert {**after, "done": 0} == {**before, "done": 0}
    assert reads == 1


async def test_an_index_that_is_gone_stale_or_damaged_anywhere_loses_nothing(root: Path) -> None:
    truth = told(root)[:2]
    index = root / "index.db"
    whole, cases = index.read_bytes(), 0
    spoilt = [b"", b"nonsense", whole[: len(whole) // 2], whole + b"x" * 100, bytes(len(whole))]
    spoilt += [whole[:at] + bytes([whole[at] ^ 0x15]) + whole[at + 1 :] for at in range(0, len(whole), len(whole) // 150)]
    for content in spoilt:
        index.write_bytes(content)
        assert told(root)[:2] == truth
        assert told(root)[:2] == truth
        cases += 1
    index.unlink()
    assert told(root)[:2] == truth
    print(f"{cases} spoilt indexes")
    assert cases >= 150


async def test_a_row_that_lies_about_its_log_is_not_believed(root: Path) -> None:
    truth = told(root)[:2]
    with sqlite3.connect(root / "index.db") as db:
        db.execute("UPDATE summary SET content = replace(content, 'completed', 'cancelled')")
    db.close()
    assert told(root)[:2] == truth


async def test_the_index_is_a_witness_of_what_was_durable(root: Path) -> None:
    """What a listing has shown can never vanish unseen, also where nothing else remembers it."""
    truth = told(root)[0]
    index, older = root / "index.db", (root / "index.db").read_bytes()
    log = root / "sessions" / "done" / "wal.log"
    head = next(one.head_seq for one in truth if one.session == "done")
    data, start = log.read_bytes(), scan(log.read_bytes()).frames[-1].offset
    (log.parent / "status.json").unlink()
    for cut in (data[:-9], data[:start], b""):
        log.write_bytes(cut)
        index.write_bytes(older)
        with pytest.raises(LogDamaged, match=f"record {head} was durable"):
            await store_at(root).open("done")
        if cut:
            with pytest.raises(LogDamaged, match=f"record {head} was durable"):
                store_at(root).read("done")
        assert log.read_bytes() == cut
        index.unlink()  # control: nobody remembers it, so it may never have been
        assert (store_at(root).read("done").head if cut else 0) == (head - 1 if cut else 0)
    log.write_bytes(data)
    index.write_bytes(older)
    await (await store_at(root).open("done")).close()


@pytest.mark.parametrize("emptied", [False, True])
async def test_a_log_that_is_gone_or_empty_is_missed_where_the_lease_tells_of_a_tenure(root: Path, emptied: bool) -> None:
    """Nothing but the index remembers it then. Where nobody had the lease yet, somebody has begun anew."""
    head = next(one.head_seq for one in told(root)[0] if one.session == "done")
    place = root / "sessions" / "done"
    (place / "status.json").unlink()
    (place / "wal.log").unlink()
    if emptied:
        (place / "wal.log").touch(0o600)
    assert store_at(root).remembered("done") == head
    with pytest.raises(LogDamaged, match=f"record {head} was durable"):
        store_at(root).read("done")
    for lease in (b"", b"nonsense"):
        (place / "lease").write_bytes(lease)
        assert store_at(root).remembered("done") == 0
        assert not store_at(root).is_listed("done")


async def test_the_index_does_not_testify_against_another_log_under_the_same_id(root: Path, tmp_path: Path) -> None:
    told(root)
    shutil.rmtree(root / "sessions" / "done")  # somebody wants to start anew
    await send(root, "done", tmp_path / "m.json", "new")
    assert store_at(root).read("done").head > 0
    assert all(one.error is None for one in told(root)[0])


async def test_a_repair_makes_the_index_forget_what_was_lost(root: Path) -> None:
    head = next(one.head_seq for one in told(root)[0] if one.session == "done")
    log = root / "sessions" / "done" / "wal.log"
    log.write_bytes(log.read_bytes()[: scan(log.read_bytes()).frames[-1].offset])
    (log.parent / "status.json").unlink()
    with pytest.raises(LogDamaged):
        await store_at(root).open("done")
    loss = repair(store_at(root).root, "done", KNOWN)
    assert loss is not None
    assert loss.remembered == head
    parking = FileStore(root, SystemClock(), known=KNOWN, parking=True)
    await (await parking.open("done")).close()


async def test_a_planted_link_is_not_followed_and_a_directory_is_survived(root: Path, tmp_path: Path) -> None:
    truth = told(root)[:2]
    (root / "index.db").unlink()
    (root / "index.db").symlink_to(tmp_path / "secret")
    assert told(root)[:2] == truth
    assert not (tmp_path / "secret").exists()
    (root / "index.db").unlink()
    os.mkfifo(root / "index.db")
    assert told(root)[:2] == truth
    (root / "index.db").unlink()
    (root / "index.db").mkdir()
    assert told(root)[:2] == truth


async def test_processes_that_list_at_once_agree(root: Path) -> None:
    command = [sys.executable, "-m", "semel", "ls", "--json", "--state", str(root)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(6)]
    printed = {one.communicate()[0] for one in running}
    assert [one.returncode for one in running] == [0] * 6
    assert len(printed) == 1
    done = subprocess.run(
        [sys.executable, "-m", "semel", "reindex", "--json", "--state", str(root)], capture_output=True, check=True
    )
    assert done.stdout == b'{"sessions":4,"unreadable":{},"unwritten":{}}\n'


async def test_the_index_adds_usage_and_when_a_request_is_due(root: Path) -> None:
    from semel.core.summary import decode_summary

    told(root)
    found = decode_summary(store_at(root).recall("done"))
    assert found is not None
    assert (found.open_run, found.due_ms, found.resolved) == (None, None, 0)
    assert found.usage is not None
