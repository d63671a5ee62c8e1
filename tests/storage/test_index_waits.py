"""Whoever asks an index that another process holds waits for it once, however many sessions and directories it asks about."""

import sqlite3
from pathlib import Path
from types import SimpleNamespace

import pytest

from semel.adapters.file import index as index_module
from semel.adapters.file.index import WAIT_SECONDS, Index
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

    def take(self) -> list[str]:
        """What was asked since the last time."""
        asked, self.asked = self.asked, []
        return asked


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch) -> Patience:
    watch, connect = Patience(), sqlite3.connect

    def watched(where: str, *, timeout: float, **given: object) -> sqlite3.Connection:
        if timeout:
            watch.asked.append("change" if "mode=rw" in where else "look")
        shorter = timeout and 0.01
        return connect(where, timeout=shorter, **given)  # type: ignore[call-overload,no-any-return]  # passed on

    monkeypatch.setattr(sqlite3, "connect", watched)
    monkeypatch.setattr(index_module, "time", SimpleNamespace(monotonic=lambda: watch.now))
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


def test_patience_comes_back_with_the_time_and_with_the_first_answer(root: Path, patience: Patience) -> None:
    index = Index(root)

    def refused() -> None:
        with pytest.raises(IndexUnavailable):
            index.witness("box", None)

    with process("index_user", "hold", root) as other:
        assert other.hear() == "held"
        refused()
        refused()
        assert patience.take() == ["look"]
        for _ in range(3):
            patience.now += WAIT_SECONDS - 1  # as long as a log may take between two of them
            refused()
        assert patience.take() == []
        patience.now += WAIT_SECONDS
        refused()
        refused()
        assert patience.take() == ["look"]
        assert other.ask("") == "free"
        assert index.witness("box", None) == 2
        assert patience.take() == []
        assert index.witness("box", None) == 2
        assert patience.take() == ["look"]


def test_canary_an_index_that_is_made_for_each_directory_is_caught(
    root: Path, patience: Patience, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forgetful(store: FileStore, name: str) -> str | None:
        return session_in(Root(store.path, store.root.disk), Index(store.path), name)

    monkeypatch.setattr(FileStore, "session_in", forgetful)
    with process("index_user", "hold", root) as other:
        assert other.hear() == "held"
        listed(store_at(root))
    assert len(patience.take()) == 1 + len(EMPTY)
