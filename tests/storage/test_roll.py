"""Which sessions there are: one that cannot be read, or named, keeps no other from being listed, copied and recovered."""

import asyncio
import os
import shutil
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from semel.adapters.file.backup import back_up
from semel.adapters.file.disk import Disk
from semel.adapters.file.names import directory_name
from semel.adapters.file.store import FileStore
from semel.adapters.system import SystemClock
from semel.core.features import KNOWN
from semel.core.frame import encode_lineage
from semel.errors import UnsafeStore
from semel.faces.listing import derived_anew, listing_of
from semel.faces.views import waiting_of
from semel.ports.log import Payload
from semel.testing.bench import records

HIDDEN = "Ä" * 90
NAME = directory_name(HIDDEN)


def store_at(root: Path, disk: Disk | None = None) -> FileStore:
    return FileStore(root, SystemClock(), known=KNOWN, disk=disk)


def write(root: Path, session: str = "box") -> Path:
    """A session with two records; returns its directory."""

    async def append() -> None:
        writer = await store_at(root).open(session)
        await writer.append([Payload(json=encode_lineage("0" * 32, session), lineage=True), *records("a", "b")])
        writer.publish_status(b'{"head_seq":2,"session":"%b"}' % session.encode())
        await writer.close()

    asyncio.run(append())
    return root / "sessions" / directory_name(session)


def listed(store: FileStore) -> dict[str, str | None]:
    return {one.session: one.error and one.error.code for one in listing_of(store)}


def everybody_names(root: Path, bad: str, copy: Path) -> None:
    """The sound session `box` is listed, looked through and copied, and the bad one is named each time."""
    found = listed(store_at(root))
    assert found.pop("box") is None
    assert list(found) == [bad]
    assert found[bad] is not None
    assert list(waiting_of(store_at(root)).unreadable) == [bad]
    copied = back_up(store_at(root), copy, 1)
    assert [one.session for one in copied.sessions] == ["box"]
    assert list(copied.left_out) == [bad]
    assert copied.left_out[bad].startswith(f"{found[bad]}: ")


def a_file(path: Path) -> None:
    path.touch()


def a_link_to_a_directory(path: Path) -> None:
    (path.parents[2] / "elsewhere").mkdir()
    path.symlink_to(path.parents[2] / "elsewhere")


def a_link_to_itself(path: Path) -> None:
    path.symlink_to(path)


def a_link_to_nothing(path: Path) -> None:
    path.symlink_to("nothing")


def a_directory_of_everybody(path: Path) -> None:
    path.mkdir()
    path.chmod(0o777)


def a_pipe(path: Path) -> None:
    os.mkfifo(path, 0o600)


def a_directory_as_log(path: Path) -> None:
    (path / "wal.log").mkdir(parents=True)


def a_pipe_as_log(path: Path) -> None:
    path.mkdir(0o700)
    os.mkfifo(path / "wal.log", 0o600)


def a_link_as_status(path: Path) -> None:
    path.mkdir(0o700)
    (path / "status.json").symlink_to("status.json")


STRAYS = (
    *(a_file, a_link_to_a_directory, a_link_to_itself, a_link_to_nothing, a_directory_of_everybody, a_pipe),
    *(a_directory_as_log, a_pipe_as_log, a_link_as_status),
)


@pytest.mark.parametrize("name", ["foo", NAME], ids=["plain", "hidden"])
@pytest.mark.parametrize("put", STRAYS, ids=lambda put: put.__name__)
def test_whatever_lies_among_the_sessions_is_one_session_that_cannot_be_read(
    tmp_path: Path, put: Callable[[Path], None], name: str
) -> None:
    write(tmp_path / "state")
    put(tmp_path / "state" / "sessions" / name)
    everybody_names(tmp_path / "state", name, tmp_path / "copy")


class Blind(Disk):
    """Refuses to open one directory, as one with mode 000 is refused to who is not root."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def open_directory(self, name: str, within: int | None) -> int:
        if name == self.name:
            raise PermissionError(13, "Permission denied")
        return super().open_directory(name, within)

    def status_of(self, path: Path | str) -> os.stat_result:
        if Path(path).parent.name == self.name:
            raise PermissionError(13, "Permission denied")
        return super().status_of(path)


@pytest.mark.parametrize("name", ["foo", NAME], ids=["plain", "hidden"])
def test_a_directory_that_may_not_be_entered_is_one_session_that_cannot_be_read(tmp_path: Path, name: str) -> None:
    write(tmp_path / "state")
    (tmp_path / "state" / "sessions" / name).mkdir(0o700)
    found = listed(store_at(tmp_path / "state", Blind(name)))
    assert found == {"box": None, name: "store"}


@pytest.mark.parametrize("put", [lambda path: path.mkdir(0o700), lambda path: (path.mkdir(0o700), (path / "lease").touch(0o600))])
@pytest.mark.parametrize("name", ["foo", NAME], ids=["plain", "hidden"])
def test_what_was_opened_and_never_written_is_no_session_yet(tmp_path: Path, put: Callable[[Path], object], name: str) -> None:
    """The control: a directory alone is not taken for a session that was lost."""
    write(tmp_path / "state")
    put(tmp_path / "state" / "sessions" / name)
    assert listed(store_at(tmp_path / "state")) == {"box": None}
    assert back_up(store_at(tmp_path / "state"), tmp_path / "copy", 1).left_out == {}


def flip(path: Path, at: int = 30) -> None:
    """Spoil one byte of a file; the first line of a log has the id behind byte 150."""
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def test_a_hidden_id_is_told_by_the_status_where_the_log_does_not_tell_it(tmp_path: Path) -> None:
    root = tmp_path / "state"
    write(root)
    place = write(root, HIDDEN)
    assert listed(store_at(root)) == {"box": None, HIDDEN: None}
    flip(place / "wal.log")
    everybody_names(root, HIDDEN, tmp_path / "damaged")
    assert "record 0 should start" in str(waiting_of(store_at(root)).unreadable[HIDDEN])
    (place / "wal.log").unlink()
    everybody_names(root, HIDDEN, tmp_path / "gone")
    assert "2 was durable" in str(waiting_of(store_at(root)).unreadable[HIDDEN])


def test_a_hidden_id_that_nothing_tells_is_named_by_its_directory(tmp_path: Path) -> None:
    root = tmp_path / "state"
    write(root)
    place = write(root, HIDDEN)
    flip(place / "wal.log")
    (place / "status.json").write_bytes(b'{"head_seq":2,"session":"box"}')  # whose digest is another one
    everybody_names(root, NAME, tmp_path / "claimed")
    (place / "status.json").unlink()
    everybody_names(root, NAME, tmp_path / "damaged")
    assert "record 0 should start" in str(store_at(root).strays()[NAME])
    (place / "wal.log").unlink()
    (place / "status.json").write_bytes(b"{}")
    everybody_names(root, NAME, tmp_path / "gone")
    assert "does not say whose it was" in str(store_at(root).strays()[NAME])
    shutil.copy(root / "sessions" / "box" / "wal.log", place / "wal.log")
    everybody_names(root, NAME, tmp_path / "another")
    assert "it is the log of session 'box'" in str(store_at(root).strays()[NAME])


@pytest.mark.parametrize("keep", [0, 1, 11, 60], ids="{} bytes".format)
def test_a_hidden_id_whose_first_write_was_cut_short_is_no_session_yet(tmp_path: Path, keep: int) -> None:
    """The control: what a crash can have left before anything was acknowledged is not taken for damage."""
    root = tmp_path / "state"
    write(root)
    place = write(root, HIDDEN)
    whole = (place / "wal.log").read_bytes()
    (place / "status.json").unlink()
    for left in (whole[:keep], whole[:keep].ljust(512, b"\0") if not keep else whole[:keep]):
        (place / "wal.log").write_bytes(left)
        assert listed(store_at(root)) == {"box": None}
        assert store_at(root).strays() == {}


def test_a_log_under_a_name_that_no_session_has_is_named(tmp_path: Path) -> None:
    shutil.copytree(write(tmp_path / "state"), tmp_path / "state" / "sessions" / "box.old")
    (tmp_path / "state" / "sessions" / ".cache").mkdir(0o700)
    everybody_names(tmp_path / "state", "box.old", tmp_path / "copy")


def test_a_listing_that_ends_at_what_it_cannot_look_at_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: with the rule of before, one file among the sessions hides them all."""
    monkeypatch.setattr(
        FileStore, "is_listed", lambda store, session: store.exists(session) or store.read_status(session) is not None
    )
    with pytest.raises(UnsafeStore):
        test_whatever_lies_among_the_sessions_is_one_session_that_cannot_be_read(tmp_path, a_file, "foo")


class Held:
    """Another program that holds the index of a root."""

    def __init__(self, root: Path) -> None:
        self._db = sqlite3.connect(root / "index.db", isolation_level=None)
        self._db.execute("BEGIN EXCLUSIVE")

    def let_go(self) -> None:
        self._db.execute("ROLLBACK")
        self._db.close()


@pytest.fixture
def lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A root with a session and another one that has lost its files: only the index tells that it was there, and which."""
    monkeypatch.setattr("semel.adapters.file.index.WAIT_SECONDS", 0.05)
    root = tmp_path / "root"
    root.mkdir(mode=0o700)
    for session in ("box", HIDDEN):
        write(root, session)
    assert listed(store_at(root)) == {"box": None, HIDDEN: None}
    for name in ("wal.log", "status.json"):
        (root / "sessions" / NAME / name).unlink()
    assert listed(store_at(root)) == {"box": None, HIDDEN: "log_damaged"}
    return root


EVERYBODY: dict[str, Callable[[FileStore, Path], set[str]]] = {
    "listing": lambda store, _: {one.session for one in listing_of(store) if one.error},
    "reindex": lambda store, _: {one.session for one in derived_anew(store) if one.unreadable or one.unwritten},
    "inbox": lambda store, _: set(waiting_of(store).unreadable),
    "backup": lambda store, root: set(back_up(store, root.parent / "copy", 1).left_out),
}


@pytest.mark.parametrize("asks", EVERYBODY)
@pytest.mark.parametrize("when", ["at first", "later"])
def test_a_lost_session_is_named_also_where_the_index_is_held_for_a_part_of_a_walk(asks: str, when: str, lost: Path) -> None:
    store, held = store_at(lost), [Held(lost)] if when == "at first" else []
    sessions = store.sessions

    def between() -> Sequence[str]:
        """Strays have been told by now."""
        if held:
            held.pop().let_go()
        else:
            held.append(Held(lost))
        return sessions()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "sessions", between)
        named = EVERYBODY[asks](store, lost)
    for one in held:
        one.let_go()
    assert named & {HIDDEN, NAME}


def test_canary_a_walk_that_asks_for_the_sessions_first_passes_over_a_lost_one(lost: Path) -> None:
    store, held = store_at(lost), Held(lost)
    sessions = store.sessions()
    held.let_go()
    assert HIDDEN not in sessions
    assert not store.strays()
