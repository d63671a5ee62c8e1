"""The index is a witness: one that cannot be asked now is not one that knows nothing, and neither is one that is damaged.

Every log here is cut between two frames, with a status document that is gone, so that nothing but the index tells that a record
which was durable is missing.
"""

import asyncio
import json
import sqlite3
from contextlib import ExitStack
from pathlib import Path

import pytest

from semel.adapters.file import index as index_module
from semel.adapters.file.index import Index
from semel.adapters.file.store import FileStore
from semel.adapters.system import SystemClock
from semel.core.features import KNOWN
from semel.core.frame import scan
from semel.errors import LogDamaged, SemelError
from semel.faces.listing import listing_of
from tests.storage.processes import process
from tests.storage.test_index import send, store_at

pytestmark = pytest.mark.anyio
SESSIONS = ("cut", "whole")


@pytest.fixture
async def root(tmp_path: Path) -> Path:
    """Two sessions that were listed; the last record of one of them was lost since."""
    where = tmp_path / "state"
    for session in SESSIONS:
        await send(where, session, tmp_path / "m.json", "k")
    assert [one.error for one in listing_of(store_at(where))] == [None, None]
    log = where / "sessions" / "cut" / "wal.log"
    log.write_bytes(log.read_bytes()[: scan(log.read_bytes()).frames[-1].offset])
    (log.parent / "status.json").unlink()
    return where


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_module, "WAIT_SECONDS", 0.1)


def rows(root: Path) -> dict[str, int]:
    """What the index says now, past all of semel."""
    db = sqlite3.connect(root / "index.db")
    found = db.execute("SELECT session, content FROM summary").fetchall()
    db.close()
    return {session: json.loads(content)["head_seq"] for session, content in found}


async def open_code(root: Path, session: str) -> str:
    """The code that an open ends with."""
    try:
        await (await store_at(root).open(session)).close()
    except SemelError as error:
        return error.code
    return "open"


def read_code(root: Path, session: str) -> str:
    try:
        store_at(root).read(session)
    except SemelError as error:
        return error.code
    return "read"


@pytest.mark.usefixtures("impatient")
async def test_an_index_that_another_process_holds_refuses_an_open_and_a_look_and_neither_changes_a_byte(root: Path) -> None:
    log = root / "sessions" / "cut" / "wal.log"
    before, known = log.read_bytes(), rows(root)
    with process("index_user", "hold", root) as other:
        assert other.hear() == "held"
        assert await open_code(root, "cut") == "index_unavailable"
        assert read_code(root, "cut") == "index_unavailable"
        assert {one.session: one.error and one.error.code for one in listing_of(store_at(root))} == dict.fromkeys(
            SESSIONS, "index_unavailable"
        )
        assert await open_code(root, "new") == "open"  # nobody can have lost anything of a session that was never there
        assert other.ask("") == "free"
        assert log.read_bytes() == before
        assert await open_code(root, "cut") == read_code(root, "cut") == "log_damaged"
        assert await open_code(root, "whole") == "open"  # control
    assert rows(root) == known


async def test_an_open_waits_for_an_index_that_is_held_only_for_a_while(root: Path) -> None:
    with process("index_user", "hold", root) as other:
        assert other.hear() == "held"
        store = FileStore(root, SystemClock(), known=KNOWN, inline_sync=False)
        opening = asyncio.ensure_future(store.open("whole"))
        await asyncio.sleep(0.4)
        assert not opening.done()
        assert other.ask("") == "free"
        await (await opening).close()


async def test_what_a_process_has_just_closed_is_opened_again_without_the_index(root: Path) -> None:
    store = store_at(root)
    writer = await store.open("whole")
    await writer.close()
    with process("index_user", "hold", root) as other:
        assert other.hear() == "held"
        again = await store.open("whole", bookmark=writer.bookmark)
        await again.close()


async def test_a_process_killed_within_a_write_leaves_an_index_that_the_next_one_puts_right_and_believes(root: Path) -> None:
    known = rows(root)
    with process("index_user", "die", root) as other:
        other.child.wait(20)
    assert (root / "index.db-journal").stat().st_size > 0
    assert await open_code(root, "cut") == "log_damaged"
    assert not (root / "index.db-journal").exists()
    assert {one.session: one.error and one.error.code for one in listing_of(store_at(root))} == {
        "cut": "log_damaged",
        "whole": None,
    }
    assert rows(root) == known


@pytest.mark.usefixtures("impatient")
async def test_an_index_of_a_dead_process_that_may_not_be_put_right_refuses(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a read-only disk: what it says now may be half of a change."""
    with process("index_user", "die", root) as other:
        other.child.wait(20)
    connect = sqlite3.connect

    def read_only(where: str, **given: object) -> sqlite3.Connection:
        return connect(where.replace("mode=rw", "mode=ro"), **given)  # type: ignore[call-overload,no-any-return]  # passed on

    monkeypatch.setattr(sqlite3, "connect", read_only)
    assert await open_code(root, "cut") == read_code(root, "cut") == "index_unavailable"
    monkeypatch.undo()
    assert await open_code(root, "cut") == "log_damaged"


async def test_a_row_is_not_replaced_by_one_of_the_same_log_that_knows_less(root: Path) -> None:
    known = rows(root)
    db = sqlite3.connect(root / "index.db")
    ((mark, content),) = db.execute("SELECT mark, content FROM summary WHERE session = 'cut'").fetchall()
    db.close()
    shorter = {**json.loads(content), "head_seq": known["cut"] - 1}
    Index(root).remember("cut", "another mark", json.dumps(shorter).encode())
    assert rows(root) == known
    assert Index(root).recall("cut", mark) == content
    longer = {**json.loads(content), "head_seq": known["cut"] + 1}
    Index(root).remember("cut", "another mark", json.dumps(longer).encode())
    assert rows(root) == {**known, "cut": known["cut"] + 1}
    other = {**json.loads(content), "lineage": "another", "head_seq": 1}
    Index(root).remember("cut", "another mark", json.dumps(other).encode())  # control: a session that was made anew
    assert rows(root) == {**known, "cut": 1}


@pytest.mark.parametrize("fault", ["full", "descriptors"])
async def test_a_process_that_runs_out_of_something_drops_no_row_of_anybody(root: Path, fault: str) -> None:
    known = rows(root)
    with process("index_user", "starve", root, fault) as other:
        said = [other.hear() for _ in range(3)]
    assert "whole index_unavailable" in said
    assert rows(root) == known
    assert await open_code(root, "cut") == "log_damaged"


async def test_an_index_without_permission_refuses_and_is_not_dropped(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_index: Index) -> bool:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patched:
        patched.setattr(Index, "_is_there", refused)
        assert await open_code(root, "cut") == "index_unavailable"
    assert await open_code(root, "cut") == "log_damaged"


async def test_an_index_with_a_second_name_is_refused_as_a_log_is(root: Path) -> None:
    """As in a snapshot of hard links: who writes to one writes to both."""
    other = root.parent / "snapshot"
    other.hardlink_to(root / "index.db")
    assert await open_code(root, "cut") == read_code(root, "cut") == "index_unavailable"
    assert {one.error and one.error.code for one in listing_of(store_at(root))} == {"index_unavailable"}
    other.unlink()
    assert await open_code(root, "cut") == "log_damaged"


async def test_only_damage_drops_the_index_and_what_can_be_read_of_it_is_kept(root: Path) -> None:
    store = store_at(root)
    (root / "index.db").write_bytes(b"nonsense" * 1000)
    assert [one.error for one in listing_of(store)] == [None, None]  # nobody remembers the record any more
    assert any("damaged" in fault for fault in store.index_faults)
    assert set(rows(root)) == set(SESSIONS)
    fresh = store_at(root)
    list(listing_of(fresh))
    assert fresh.index_faults == ()  # control: a sound one says nothing


def test_the_rows_before_a_lost_page_outlive_it(tmp_path: Path) -> None:
    index, content = Index(tmp_path), json.dumps({"lineage": "l", "head_seq": 7, "more": "x" * 600}).encode()
    for number in range(60):
        index.remember(f"s{number:02}", "mark", content)
    path = tmp_path / "index.db"
    data = bytearray(path.read_bytes())
    at = data.index(b"s30mark") // 4096 * 4096
    data[at : at + 4096] = b"\xff" * 4096
    path.write_bytes(data)
    assert index.sessions() is None
    Index(tmp_path).mend()
    kept = rows(tmp_path)
    assert index.sessions() == len(kept)
    assert {f"s{number:02}" for number in range(20)} <= set(kept)
    assert "s30" not in kept


async def test_a_bit_that_flips_in_the_schema_of_the_index_never_makes_it_one_that_refuses(root: Path) -> None:
    path = root / "index.db"
    whole, cases = path.read_bytes(), 0
    start = whole.index(b"CREATE TABLE") - 60
    for at in (*range(40), *range(start, 4096, 2)):
        for name in ("-journal", "-wal", "-shm"):
            path.with_name(path.name + name).unlink(missing_ok=True)
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x81]) + whole[at + 1 :])
        Index(root).witness("cut", None)
        if at != 18:  # which says that only a later SQLite may write to it
            Index(root).remember("whole", "mark", b"{}")
            assert Index(root).recall("whole", "mark") == b"{}"
        cases += 1
    print(f"{cases} flipped bits")
    assert cases >= 150


async def test_an_index_that_another_process_has_just_made_anew_is_not_dropped_again(root: Path) -> None:
    late, content = Index(root), b'{"lineage":"l","head_seq":3}'
    (root / "index.db").write_bytes(b"nonsense" * 1000)
    assert late.witness("cut", None) == 0
    change = late._change  # where it learns that it is damaged, and before it does something about that

    def overtaken(why: str) -> None:
        Index(root).remember("whole", "mark", content)
        make_anew(why)

    make_anew, late._make_anew = late._make_anew, overtaken  # type: ignore[method-assign]  # the other process
    change(lambda db: db.execute("SELECT 1"))
    assert rows(root) == {"whole": 3}


async def test_the_index_of_many_processes_never_refuses_one_of_them(root: Path) -> None:
    (root / "sessions" / "cut").rename(root.parent / "away")
    with ExitStack() as stack:
        others = [stack.enter_context(process("index_user", "list", root, 20)) for _ in range(8)]
        assert [other.hear() for other in others] == ["refused 0"] * 8


async def test_canary_an_index_that_takes_every_error_for_ignorance_is_caught(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted fault: what cannot be asked knows nothing."""
    witness = Index.witness

    def ignorant(self: Index, session: str, lineage: object) -> int:
        try:
            return witness(self, session, lineage)  # type: ignore[arg-type]  # passed on
        except SemelError:
            return 0

    monkeypatch.setattr(Index, "witness", ignorant)
    monkeypatch.setattr(index_module, "WAIT_SECONDS", 0.1)
    with process("index_user", "hold", root) as other:
        assert other.hear() == "held"
        assert await open_code(root, "cut") == "open"
    with pytest.raises(LogDamaged):
        await store_at(root).open("cut")
