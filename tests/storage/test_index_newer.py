"""An index that a later semel wrote may know anything, and this build cannot ask it: it is refused by name, and left alone.

One of the two sessions was cut between two frames behind its listing, so that nothing but the index tells it.
"""

import asyncio
import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from semel.adapters.file import index as index_module
from semel.adapters.file.index import Index
from semel.adapters.file.names import directory_name
from semel.adapters.file.repair import assess
from semel.adapters.file.store import FileStore
from semel.core.features import KNOWN
from semel.core.frame import encode_lineage, scan
from semel.errors import NewerWriter, SemelError
from semel.faces.cli.main import _exit_code
from semel.ports.log import Payload
from semel.testing.bench import records
from tests.storage.test_index_asked import rows
from tests.storage.test_roll import HIDDEN, NAME, listed, store_at, write

SESSIONS = ("box", "cut", HIDDEN)


def name_schema(root: Path, schema: int) -> None:
    with sqlite3.connect(root / "index.db") as db:
        db.execute(f"PRAGMA user_version = {schema}")
    db.close()


def later(root: Path) -> None:
    name_schema(root, 2)


def far_later(root: Path) -> None:
    """Another table, too, in words that no SQLite of today knows."""
    name_schema(root, 7)
    with sqlite3.connect(root / "index.db") as db:
        db.execute("PRAGMA writable_schema = ON")
        db.execute("UPDATE sqlite_master SET sql = 'CREATE TABLE summary (session TEXT) OF A LATER KIND'")
    db.close()


def in_a_later_format(root: Path) -> None:
    """In a format that the header names and no SQLite of today opens."""
    name_schema(root, 7)
    name_format(root)


def name_format(root: Path) -> None:
    content = bytearray((root / "index.db").read_bytes())
    content[18:20] = (3, 3)
    (root / "index.db").write_bytes(content)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    where = tmp_path / "state"
    for session in SESSIONS:
        write(where, session)
    assert listed(store_at(where)) == dict.fromkeys(SESSIONS)
    log = where / "sessions" / "cut" / "wal.log"
    log.write_bytes(log.read_bytes()[: scan(log.read_bytes()).frames[-1].offset])
    (log.parent / "status.json").unlink()
    return where


def files(root: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}


def code(act: Callable[[], object]) -> str:
    """The code that something ends with."""
    try:
        act()
    except SemelError as error:
        return error.code
    return "done"


def open_and_close(store: FileStore, session: str) -> None:
    async def used() -> None:
        await (await store.open(session)).close()

    asyncio.run(used())


@pytest.mark.parametrize("age", [later, far_later, in_a_later_format])
def test_a_later_index_refuses_what_would_ask_it_and_not_a_byte_is_changed(root: Path, age: Callable[[Path], None]) -> None:
    age(root)
    before = files(root)
    assert listed(store_at(root)) == dict.fromkeys(SESSIONS, "newer_writer")
    for session in SESSIONS:
        for use in (open_and_close, FileStore.read):
            assert code(partial(use, store_at(root), session)) == "newer_writer"
    for act in (Index.mend, Index.sessions, Index.known, lambda index: index.remember("box", "mark", b"{}")):
        with pytest.raises(NewerWriter) as refused:
            act(Index(root))
        assert str(refused.value) == (
            f"{root / 'index.db'} has schema {2 if age is later else 7}, and this build knows 1: a newer semel wrote it. "
            f"Nothing was changed. Upgrade semel to open it."
        )
    assert code(lambda: assess(store_at(root).root, "cut", KNOWN)) == "newer_writer"
    assert Index(root).recall("box", "mark") is None  # not to be able to ask is not to remember
    after = files(root)
    leases = {path for path in after if path.name == "lease"}
    assert {path: after[path] for path in after.keys() - leases} == {path: before[path] for path in before.keys() - leases}


def test_a_session_that_is_made_under_a_later_index_is_used_by_whoever_made_it(root: Path) -> None:
    """Of that nobody else can have seen more; an open by another process has to ask."""
    later(root)
    store = store_at(root)

    async def twice() -> None:
        writer = await store.open("new")
        await writer.append([Payload(json=encode_lineage("0" * 32, "new"), lineage=True), *records("a", "b")])
        await writer.close()
        await (await store.open("new", bookmark=writer.bookmark)).close()

    asyncio.run(twice())
    assert code(lambda: open_and_close(store_at(root), "new")) == "newer_writer"


def test_an_index_of_this_schema_again_is_asked_again(root: Path) -> None:
    """The control: it was the schema that refused, and all that was known is still known."""
    known = rows(root)
    later(root)
    listed(store_at(root))
    name_schema(root, 1)
    assert listed(store_at(root)) == {"box": None, "cut": "log_damaged", HIDDEN: None}
    assert rows(root) == known


@pytest.mark.parametrize("schema", [0, 1])
def test_a_later_format_alone_is_damage(root: Path, schema: int) -> None:
    """No later build names the schema of this one."""
    name_schema(root, schema)
    name_format(root)
    store = store_at(root)
    assert listed(store)["box"] is None
    assert any("is written anew" in fault for fault in store.index_faults)


@pytest.mark.parametrize("schema", [0, -1])
def test_a_schema_that_no_build_writes_is_damage(root: Path, schema: int) -> None:
    name_schema(root, schema)
    store = store_at(root)
    assert listed(store)["box"] is None
    assert any(f"names schema {schema}" in fault for fault in store.index_faults)
    assert Index(root).sessions() == len(SESSIONS)


def test_a_directory_that_hides_an_id_is_named_where_only_a_later_index_could_tell_it(root: Path) -> None:
    for name in ("wal.log", "status.json"):
        (root / "sessions" / NAME / name).unlink()
    (root / "sessions" / directory_name("Ö" * 90)).mkdir(0o700)
    later(root)
    found = listed(store_at(root))
    assert [found[name] for name in (NAME, directory_name("Ö" * 90))] == ["newer_writer"] * 2


def test_every_verb_says_that_a_later_semel_wrote_the_index(root: Path, capfd: pytest.CaptureFixture[str]) -> None:
    later(root)
    before = (root / "index.db").read_bytes()
    for words, exit_code in {
        ("reindex",): 6,
        ("ls",): 6,
        ("inbox",): 6,
        ("verify",): 6,
        ("show", "box"): 6,
        ("resume", "box"): 6,
        ("repair", "cut", "--accept-loss"): 6,
        ("doctor",): 1,
    }.items():
        assert (_exit_code([*words, "--state", str(root)]), words) == (exit_code, words)
        told = capfd.readouterr()
        assert "index.db has schema 2, and this build knows 1: a newer semel wrote it" in told.out + told.err
        assert "semel repair --help" not in told.out
    assert "PROBLEM" in told.out
    assert "upgrade semel to use this directory; as a last resort remove it" in told.out
    assert _exit_code(["reindex", "--state", str(root)]) == 6
    told = capfd.readouterr()
    assert (told.out, len(told.err.splitlines())) == ("", 1)
    assert (root / "index.db").read_bytes() == before


def test_canary_a_later_index_that_is_taken_for_a_damaged_one_is_caught(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    later(root)
    before = (root / "index.db").read_bytes()
    monkeypatch.setattr(index_module, "NewerWriter", lambda _where, detail: index_module._Damaged(detail))
    assert listed(store_at(root))["box"] is None
    assert (root / "index.db").read_bytes() != before
