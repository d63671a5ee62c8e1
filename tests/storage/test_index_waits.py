"""Whoever asks an index that another process holds waits for it once, however many sessions and directories it asks about.

Nobody keeps others out while it waits for one that reads, and nobody who waited in vain stays impatient by asking again.
"""

import sqlite3
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import pytest

from semel.adapters.file import index as index_module
from semel.adapters.file.index import BRIEF_SECONDS, BRIEF_TRIES, WAIT_SECONDS, Index
from semel.adapters.file.names import directory_name
from semel.adapters.file.roll import session_in
from semel.adapters.file.root import Root
from semel.adapters.file.store import FileStore
from semel.errors import IndexUnavailable
from semel.faces.cli.main import _exit_code
from semel.faces.listing import derived_anew
from tests.storage.processes import process
from tests.storage.test_roll import listed, store_at, write

SESSIONS = ("box", "bag", "bin")
EMPTY = tuple(directory_name(letter * 90) for letter in "ÄÖÜ")
"""Directories that hide their session's id, and in which nothing is that tells it."""


class Patience:
    """What the index was asked with patience, on a clock that stands still, so that how slow a machine is decides nothing."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.asked: list[str] = []
        self.brief: list[float] = []  # how long each wait of who is impatient was to be
        self.brief_seconds = 0.0  # and how long it is

    def sleep(self, _seconds: float) -> None:
        self.now += WAIT_SECONDS / 4

    def take(self) -> list[str]:
        """What was asked since the last time."""
        asked, self.asked = self.asked, []
        return asked


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch) -> Patience:
    watch, connect = Patience(), sqlite3.connect

    def watched(where: str, *, timeout: float, **given: object) -> sqlite3.Connection:
        if timeout == WAIT_SECONDS:
            watch.asked.append("change" if "mode=rw" in where else "look")
        elif timeout <= BRIEF_SECONDS:
            watch.brief.append(timeout)
        shorter = 0.01 if timeout > BRIEF_SECONDS else timeout and watch.brief_seconds
        return connect(where, timeout=shorter, **given)  # type: ignore[call-overload,no-any-return]  # passed on

    monkeypatch.setattr(sqlite3, "connect", watched)
    monkeypatch.setattr(index_module, "time", SimpleNamespace(monotonic=lambda: watch.now, sleep=watch.sleep))
    return watch


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Three sessions that were listed, and three directories in which nothing is."""
    where = tmp_path / "state"
    for session in SESSIONS:
        write(where, session)
    assert listed(store_at(where)) == dict.fromkeys(SESSIONS)
    for name in EMPTY:
        (where / "sessions" / name).mkdir(0o700)
    return where


def test_a_listing_waits_once_for_all_sessions_and_all_directories_that_hide_an_id(root: Path, patience: Patience) -> None:
    assert listed(store_at(root)) == dict.fromkeys(SESSIONS)
    patience.take()
    with process("index_user", "hold", root) as other:
        assert other.hear() == "held"
        assert listed(store_at(root)) == dict.fromkeys((*SESSIONS, *EMPTY), "index_unavailable")
        assert patience.take() == ["look"]
        assert _exit_code(["doctor", "--state", str(root)]) == 1
        assert patience.take() == ["look"]
        assert other.ask("") == "free"
        assert listed(store_at(root)) == dict.fromkeys(SESSIONS)  # control: what is free is asked about each of them
    assert len(patience.take()) > len(SESSIONS)


def test_reindex_waits_once_and_then_gives_one_error(root: Path, patience: Patience, capfd: pytest.CaptureFixture[str]) -> None:
    with process("index_user", "hold", root) as other:
        assert other.hear() == "held"
        assert _exit_code(["reindex", "--state", str(root)]) == 1
        assert patience.take() == ["look"]
        (line,) = capfd.readouterr().err.splitlines()
        assert f"{root / 'index.db'} cannot be asked now (database is locked)" in line


@pytest.mark.parametrize("lock", ["immediate", "shared"])
def test_where_others_may_look_and_not_change_reindex_waits_once_and_names_every_session(
    root: Path, patience: Patience, lock: str
) -> None:
    with process("index_user", "hold", root, lock) as other:
        assert other.hear() == "held"
        derived = {one.session: one for one in derived_anew(store_at(root))}
        assert patience.take().count("change") == 1
        assert all("cannot be written to now (database is locked)" in (derived[name].unwritten or "") for name in SESSIONS)
        for session in SESSIONS:
            (root / "sessions" / session / "wal.log").touch()  # what was remembered of it is stale
        assert listed(store_at(root)) == dict.fromkeys(SESSIONS)  # a listing needs no more than the logs
        assert patience.take().count("change") == 1
        assert other.ask("") == "free"
        assert [one.unwritten for one in derived_anew(store_at(root))] == [None] * len(SESSIONS)


def refused(index: Index) -> None:
    with pytest.raises(IndexUnavailable):
        index.witness("box", None)


def test_patience_comes_back_with_the_time_and_with_the_first_answer(root: Path, patience: Patience) -> None:
    index = Index(root)
    with process("index_user", "hold", root) as other:
        assert other.hear() == "held"
        refused(index)
        refused(index)
        assert patience.take() == ["look"]
        patience.now += WAIT_SECONDS
        refused(index)
        refused(index)
        assert patience.take() == ["look"]
        assert other.ask("") == "free"
        assert index.witness("box", None) == 2
        assert patience.take() == []
        assert index.witness("box", None) == 2
        assert patience.take() == ["look"]


def test_tries_in_vain_do_not_put_off_the_next_patient_wait(root: Path, patience: Patience) -> None:
    index = Index(root)
    with process("index_user", "hold", root) as other:
        assert other.hear() == "held"
        refused(index)
        assert patience.take() == ["look"]
        for _ in range(9):
            patience.now += WAIT_SECONDS / 10
            refused(index)
        assert patience.take() == []
        patience.now += WAIT_SECONDS / 10
        refused(index)
        assert patience.take() == ["look"]


def test_who_is_impatient_waits_for_a_moment_so_that_a_short_change_of_another_refuses_nothing(
    root: Path, patience: Patience
) -> None:
    index = Index(root)
    with process("index_user", "hold", root) as other:
        assert other.hear() == "held"
        refused(index)
        patience.brief_seconds = 60.0  # the moment, for a slow machine
        release = threading.Timer(0.1, other.tell, ("",))
        release.start()
        assert index.witness("box", None) == 2
        release.join()
        assert patience.take() == ["look"]


def test_the_moments_of_who_is_impatient_have_a_sum_that_many_sessions_do_not_exceed(root: Path, patience: Patience) -> None:
    index = Index(root)
    with process("index_user", "hold", root) as other:
        assert other.hear() == "held"
        for _ in range(2):
            for _ in range(1 + BRIEF_TRIES + 5):
                refused(index)
            assert patience.take() == ["look"]
            assert patience.brief == [BRIEF_SECONDS] * BRIEF_TRIES + [0.0] * 5
            assert BRIEF_SECONDS * BRIEF_TRIES <= WAIT_SECONDS / 10
            patience.brief.clear()
            patience.now += WAIT_SECONDS


def test_changes_that_wait_for_a_reader_let_others_look_and_are_made_when_it_ends(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ExitStack() as stack:
        reader = stack.enter_context(process("index_user", "hold", root, "shared"))
        assert reader.hear() == "held"
        changers = [stack.enter_context(process("index_user", "remember", root, session, 60)) for session in ("new", "newer")]
        assert [changer.hear() for changer in changers] == ["begins"] * 2
        until_one_waits_at_its_end(root)
        monkeypatch.setattr(index_module, "WAIT_SECONDS", 3.0)
        assert [Index(root).witness("box", None) for _ in range(5)] == [2] * 5
        assert Index(root).witness("new", None) == Index(root).witness("newer", None) == 0  # control: they do wait
        assert reader.ask("") == "free"
        assert [changer.hear() for changer in changers] == ["remembered"] * 2
        assert Index(root).witness("new", None) == Index(root).witness("newer", None) == 7


def test_a_large_change_too_lets_others_look_until_its_end(root: Path) -> None:
    heard = list[str]()

    def large(db: sqlite3.Connection) -> None:
        db.executemany("INSERT INTO summary VALUES (?, 'mark', zeroblob(6000), '')", ((f"s{number}",) for number in range(700)))
        assert db.execute("PRAGMA cache_size").fetchone() == (-2000,)  # KiB, which is less
        with process("index_user", "hold", root, "shared") as other:
            heard.append(other.hear())

    Index(root)._change(large)
    assert heard == ["held"]


def test_canary_a_change_that_is_patient_at_its_end_is_caught(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ExitStack() as stack:
        reader = stack.enter_context(process("index_user", "hold", root, "shared"))
        assert reader.hear() == "held"
        changer = stack.enter_context(process("index_user", "remember", root, "new", 60, 60))
        assert changer.hear() == "begins"
        until_one_waits_at_its_end(root)
        monkeypatch.setattr(index_module, "WAIT_SECONDS", 0.5)
        refused(Index(root))
        assert reader.ask("") == "free"
        assert changer.hear() == "remembered"


def test_a_change_is_tried_again_only_until_its_patience_ends_and_then_refused_once(root: Path, patience: Patience) -> None:
    index, tries = Index(root), list[int]()
    with process("index_user", "hold", root, "shared") as reader:
        assert reader.hear() == "held"
        for expected in (1 + 4, 1 + 1):  # a pause takes a quarter of a patient wait here, and more than a brief one
            with pytest.raises(IndexUnavailable, match=r"cannot be written to now \(database is locked\)"):
                index._change(lambda db: (tries.append(1), db.execute("DELETE FROM summary")))
            assert len(tries) == expected
            tries.clear()
        assert patience.take() == ["change"]
    assert index.known() == dict.fromkeys(SESSIONS, 2)  # what was tried was taken back


def until_one_waits_at_its_end(root: Path) -> None:
    deadline = time.monotonic() + 30
    while not (root / "index.db-journal").exists():  # there from the first thing that a change writes to its end
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_canary_an_index_that_is_made_for_each_directory_is_caught(
    root: Path, patience: Patience, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forgetful(store: FileStore, name: str) -> str | None:
        return session_in(Root(store.path, store.root.disk), Index(store.path), name)

    monkeypatch.setattr(FileStore, "session_in", forgetful)
    with process("index_user", "hold", root) as other:
        assert other.hear() == "held"
        listed(store_at(root))
    assert len(patience.take()) == 1 + 2 * len(EMPTY)  # strays are asked for, and sessions
