"""index.db: what was derived from logs, so that listings need not read them again. Never the truth (P33, design 3).

A row holds a summary and the mark of the log that it was derived from, written in one transaction: that is its watermark. A
log that has grown, or was replaced, has another mark, and is read again.

A summary is only ever remembered of records that are durable. So it is a witness too: a log of that lineage which ends before
the record that its row names has lost something. Therefore four things are kept apart: an index that knows nothing, one that
is damaged, which is as good as none and is written anew, one that cannot be asked now, which may know anything, and one that a
later build wrote, which may, too. Only what is damaged is ever dropped, and that is said.
"""

import hashlib
import os
import sqlite3
import stat
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import TypeVar

import msgspec

from semel.adapters.file.hindrance import LASTING, hindrance
from semel.core.header import Lineage
from semel.errors import IndexUnavailable, NewerWriter

NAME = "index.db"
WAIT_SECONDS = 10.0
"""How long a process waits for others, whose changes take some milliseconds each, before it says that it cannot ask."""
BRIEF_SECONDS, BRIEF_TRIES = 0.05, 20
"""How long, and how often, who has just waited in vain waits again until that is WAIT_SECONDS ago; any more tries do not wait."""

_END_SECONDS = 0.02  # of a wait for readers at the end of a change, which keeps new ones out; less than a brief wait
_PAUSES = 0.02, 0.25  # the first and the longest between two tries of a change; SQLite sleeps a tenth between two looks
_SCHEMA = 1
_HEADER_BYTES = 100  # of a file of SQLite
_COLUMNS = "session TEXT PRIMARY KEY, mark TEXT NOT NULL, content BLOB NOT NULL, digest TEXT NOT NULL"
_PUT = "INSERT OR REPLACE INTO summary VALUES (?, ?, ?, ?)"
_NOT_NOW = frozenset(
    {
        *(sqlite3.SQLITE_PERM, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_READONLY),
        *(sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL, sqlite3.SQLITE_CANTOPEN),
        *(sqlite3.SQLITE_PROTOCOL, sqlite3.SQLITE_NOLFS, sqlite3.SQLITE_AUTH),
    }
)
_CLOSED = frozenset({sqlite3.SQLITE_PERM, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN})
_one_at_a_time = threading.Lock()  # SQLite's locks are the process's: whoever closes the file gives back those of all threads
Row = tuple[str, str, bytes, str]
T = TypeVar("T")


class _Named(msgspec.Struct):
    """What a summary says of the log that it was derived from."""

    lineage: str = ""
    head_seq: int = 0


class _Damaged(Exception):
    """The file is no index, or not a whole one."""


class _Unended(sqlite3.OperationalError):
    """A change was taken back, because somebody reads."""


class Index:
    """The index of one state directory.

    What asks it raises IndexUnavailable where it cannot be asked now: another process holds it for long, it cannot be read, there
    is no descriptor for it, or it has to be put right behind a process that died, and may not be written to. It raises
    NewerWriter where a later build wrote it: then it is left as it is.
    """

    def __init__(self, root: Path) -> None:
        """Touches nothing yet. `faults` says what was found damaged, one sentence each."""
        self.path = root / NAME
        self.faults: tuple[str, ...] = ()
        self._impatient_until = {False: 0.0, True: 0.0}  # a look, a change: where others may not change it, one may still look
        self._brief_tries = 0  # that are left
        self._seen: tuple[int, ...] = ()  # the file that was asked last, as it was then

    def recall(self, session: str, mark: str) -> bytes | None:
        """What was remembered of a session whose log has this mark. Not to be able to ask is not to remember."""
        try:
            row = self._row(session)
        except (IndexUnavailable, NewerWriter):
            return None
        return row[2] if row is not None and row[1] == mark else None

    def witness(self, session: str, lineage: Lineage | None) -> int:
        """The highest record that was durable when a session was last listed; 0 if nothing is known of this log.

        `lineage` is None for a log whose first line is lost: it was that which is remembered. Raises IndexUnavailable and
        NewerWriter.
        """
        row = self._row(session)
        named = _Named() if row is None else _named(row)
        return max(0, named.head_seq) if lineage is None or lineage.lineage == named.lineage else 0

    def known(self) -> Mapping[str, int]:
        """Every session that it knows, and the highest record of it that was durable. Raises IndexUnavailable and NewerWriter."""
        try:
            return {row[0]: _named(row).head_seq for row in self._ask(lambda db: list(_sound_rows(db))) or ()}
        except _Damaged as error:
            self._tell(self._unheard(error))
            return {}

    def forget(self, session: str) -> None:
        """Forget one session: it must not testify any more. Raises IndexUnavailable and NewerWriter."""
        if self._row(session) is not None:
            self._change(lambda db: db.execute("DELETE FROM summary WHERE session = ?", (session,)))

    def remember(self, session: str, mark: str, content: bytes) -> None:
        """Keep a summary with its watermark, atomically; one of the same log that tells of more is left.

        An index that is damaged is written anew, with what can still be read of it. Raises IndexUnavailable and NewerWriter.
        """
        row = (session, mark, content, _digest(session, mark, content))

        def put(db: sqlite3.Connection) -> None:
            there, ours = self._sound(db, session), _named(row)
            if there is None or (theirs := _named(there)).lineage != ours.lineage or theirs.head_seq <= ours.head_seq:
                db.execute(_PUT, row)

        self._change(put)

    def mend(self) -> None:
        """Write it anew if it is damaged, with what can still be read of it. Raises IndexUnavailable and NewerWriter."""
        if self.sessions() is None:
            self._make_anew("its pages contradict each other, or it is none")

    def sessions(self) -> int | None:
        """How many sessions it knows; None if it is damaged. Raises IndexUnavailable and NewerWriter."""

        def count(db: sqlite3.Connection) -> int:
            if db.execute("PRAGMA quick_check").fetchone() != ("ok",):
                raise _Damaged("its pages contradict each other")
            return int(db.execute("SELECT count(*) FROM summary").fetchone()[0])

        try:
            return self._ask(count) or 0
        except _Damaged:
            return None

    def _row(self, session: str) -> Row | None:
        """The row of a session; None where there is none that is sound."""
        try:
            return self._ask(lambda db: self._sound(db, session))
        except _Damaged as error:
            self._tell(self._unheard(error))
            return None

    def _sound(self, db: sqlite3.Connection, session: str) -> Row | None:
        select = "SELECT session, mark, content, digest FROM summary WHERE session = ?"
        row: Row | None = db.execute(select, (session,)).fetchone()
        if row is None or _is_sound(row):
            return row
        self._tell(f"{self.path} is damaged: its row of session {session!r} is not what was written, and testifies to nothing")
        return None

    def _unheard(self, error: _Damaged) -> str:
        return f"{self.path} is damaged ({error}), so it testifies to nothing until a listing writes it anew"

    def _tell(self, fault: str) -> None:
        if fault not in self.faults:
            self.faults = (*self.faults, fault)

    def _change(self, act: Callable[[sqlite3.Connection], object]) -> None:
        """Change it in one transaction; it is made if it is not there, and made anew if it is damaged."""
        try:
            self._ask(act, write=True)
        except _Damaged as error:
            self._make_anew(str(error))
            try:
                self._ask(act, write=True)
            except _Damaged as again:
                raise self._refusal(again, write=True) from again

    def _make_anew(self, why: str) -> None:
        """Drop a damaged index, and keep the rows that can still be read of it; one that others have just made anew is left."""
        rows, damaged = list[Row](), self._seen

        def read(db: sqlite3.Connection) -> None:
            for row in _sound_rows(db):
                rows.append(row)  # one by one: those before the damage are kept

        with suppress(_Damaged):
            self._ask(read)
        with _one_at_a_time:
            if not self._is_there() or self._seen != damaged:
                return
            try:
                for name in (NAME, *(f"{NAME}-{kind}" for kind in ("journal", "wal", "shm"))):
                    self.path.with_name(name).unlink(missing_ok=True)
            except OSError as error:
                raise self._refusal(error, write=True) from error
        self._ask(lambda db: db.executemany(_PUT, rows), write=True)
        lost = f"it is written anew, with {len(rows)} of its rows; what it alone remembered of other logs is lost"
        self.faults = (f"{self.path} was damaged ({why}): {lost}",)  # what was said of it before is over

    def _ask(self, act: Callable[[sqlite3.Connection], T], *, write: bool = False) -> T | None:
        """Do something in one transaction; None where there is no index. Raises _Damaged, IndexUnavailable and NewerWriter."""
        with _one_at_a_time:
            wait = self._patience(write=write)
            try:
                found = self._until_ended(act, wait) if write else self._transact(act, "ro", wait)
            except sqlite3.Error as error:
                if write or _code(error) not in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN):
                    raise self._meaning(error, wait, write=write) from error
                try:  # a process died within a change: who may write takes that back first
                    found = self._transact(act, "rw", wait)
                except sqlite3.Error as second:
                    raise self._meaning(second, wait, write=write) from second
            except UnicodeDecodeError as error:  # what SQLite says of it quotes bytes of its schema
                raise _Damaged("its schema is no text") from error
            except OSError as error:
                raise self._refusal(error, write=write) from error
        self._impatient_until.update({False: 0.0, write: 0.0})
        return found

    def _patience(self, *, write: bool) -> float:
        """How many seconds to wait for others: who asks about many sessions waits once, and then only tries for a while."""
        if time.monotonic() >= self._impatient_until[write]:
            return WAIT_SECONDS
        return BRIEF_SECONDS if self._brief_tries else 0.0

    def _meaning(self, error: sqlite3.Error, wait: float, *, write: bool) -> Exception:
        """What an error of SQLite says after such a wait: not now, or never."""
        if _code(error) not in _NOT_NOW:
            return self._unread(str(error))
        if _code(error) == sqlite3.SQLITE_BUSY and wait == WAIT_SECONDS:
            self._impatient_until = dict.fromkeys((False, True), time.monotonic() + WAIT_SECONDS)
            self._brief_tries = BRIEF_TRIES
        elif _code(error) == sqlite3.SQLITE_BUSY and wait:  # which does not put off the next patient wait
            self._brief_tries -= 1
        return self._refusal(error, write=write)

    def _refusal(self, error: Exception, *, write: bool) -> IndexUnavailable:
        """What keeps it from being asked or changed, and what to do: to try again helps only where it does not last."""
        when, why, cure = " now", _words(error), "Try again; if it stays so, see `semel doctor`."
        put_right = write or os.path.lexists(self.path.with_name(f"{NAME}-journal"))
        if _may_last(error) and (found := hindrance(self.path, write=put_right)) is not None:
            when, why, cure = "", found.why, f"{found.cure[0].upper()}{found.cure[1:]}, and try again."
        if write:
            return IndexUnavailable(f"{self.path} cannot be written to{when} ({why}). {cure}")
        return IndexUnavailable(f"{self.path} cannot be asked{when} ({why}), and may know of records that a log has lost. {cure}")

    def _until_ended(self, act: Callable[[sqlite3.Connection], T], wait: float) -> T | None:
        """A change, done anew while it is readers that keep it from its end, with pauses in which others get in.

        SQLite lets nobody begin to read while a change waits for readers, so one that is patient there would keep all others out.
        """
        deadline, (pause, longest) = time.monotonic() + wait, _PAUSES
        while True:
            try:
                return self._transact(act, "rw", max(0.0, deadline - time.monotonic()), make=True)
            except _Unended:
                if time.monotonic() + pause >= deadline:
                    raise
            time.sleep(pause)
            pause = min(2 * pause, longest)

    def _transact(self, act: Callable[[sqlite3.Connection], T], mode: str, wait: float, *, make: bool = False) -> T | None:
        if not self._is_there():
            if not make:
                return None
            self._make()
        where = f"{self.path.as_uri()}?mode={mode}"
        with closing(sqlite3.connect(where, timeout=wait, uri=True, isolation_level=None)) as db:
            db.text_factory = _text
            if mode == "rw":
                self._schema(db)  # first: the next line reads its tables, which may be in words of a later SQLite
                db.execute("PRAGMA synchronous = OFF")
                db.execute("PRAGMA cache_spill = OFF")  # what is written before the end keeps others from looking
            db.execute("BEGIN IMMEDIATE" if make else "BEGIN")  # to upgrade from a look to a change could fail at once
            if make:  # from here on it waits for readers alone, at its end
                db.execute(f"PRAGMA busy_timeout = {round(1000 * min(wait, _END_SECONDS))}")
            if not self._has_tables(db):
                if not make:
                    return None
                db.execute(f"CREATE TABLE summary ({_COLUMNS})")
                db.execute(f"PRAGMA user_version = {_SCHEMA}")
            found = act(db)
            self._end(db)
            return found

    def _end(self, db: sqlite3.Connection) -> None:
        """Raises _Unended, with everything taken back, where somebody reads."""
        try:
            db.execute("COMMIT")
        except sqlite3.OperationalError as error:
            if _code(error) != sqlite3.SQLITE_BUSY:
                raise
            db.execute("ROLLBACK")
            unended = _Unended(*error.args)
            unended.sqlite_errorcode = error.sqlite_errorcode
            raise unended from error

    def _has_tables(self, db: sqlite3.Connection) -> bool:
        """Whether it was made to its end. Raises _Damaged for what no build writes."""
        schema = self._schema(db)
        if schema == 0 and db.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,):
            return False
        if schema != _SCHEMA:
            raise _Damaged(f"it names schema {schema}")
        return True

    def _schema(self, db: sqlite3.Connection) -> int:
        """The schema that it names. Raises NewerWriter for a later one."""
        (schema,) = db.execute("PRAGMA user_version").fetchone()
        if schema > _SCHEMA:
            raise self._later(schema)
        return int(schema)

    def _unread(self, why: str) -> Exception:
        """What a file is that SQLite makes nothing of: one that names a later schema, say in a later format, or a damaged one.

        Only for who has no connection open: to close the file gives back the locks of all of them.
        """
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return _Damaged(why)
        try:
            schema = _later_schema(os.pread(fd, _HEADER_BYTES, 0))
        finally:
            os.close(fd)
        return _Damaged(why) if schema is None else self._later(schema)

    def _later(self, schema: int) -> NewerWriter:
        return NewerWriter(str(self.path), detail=f"has schema {schema}, and this build knows {_SCHEMA}")

    def _make(self) -> None:
        """An empty private file. Raises OSError if something else is in its place."""
        try:
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        except FileExistsError:
            if not self._is_there():  # nor has another process just made it
                raise FileExistsError(None, "something that is no plain file is in its place") from None

    def _is_there(self) -> bool:
        """Whether there is a file of ours. A link or a directory is none, as if somebody had removed it; nothing follows it."""
        try:
            found = os.lstat(self.path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        if stat.S_ISREG(found.st_mode) and (found.st_nlink > 1 or found.st_uid != os.geteuid()):
            raise PermissionError(None, "it has another owner, or hard links")
        self._seen = found.st_dev, found.st_ino, found.st_size, found.st_ctime_ns
        return stat.S_ISREG(found.st_mode)


def _later_schema(header: bytes) -> int | None:
    """The later schema that the header of a file names; None where it names none, or is no header (SQLite file format, 1.3)."""
    if len(header) < _HEADER_BYTES or header[:16] != b"SQLite format 3\0" or header[21:24] != bytes((64, 32, 32)):
        return None  # nonsense, which names anything
    schema = int.from_bytes(header[60:64], signed=True)
    return schema if schema > _SCHEMA else None


def _sound_rows(db: sqlite3.Connection) -> Iterator[Row]:
    return filter(_is_sound, db.execute("SELECT session, mark, content, digest FROM summary"))


def _is_sound(row: Row) -> bool:
    session, mark, content, digest = row
    whole = isinstance(session, str) and isinstance(mark, str) and isinstance(content, bytes)
    return whole and digest == _digest(session, mark, content)


def _named(row: Row) -> _Named:
    try:
        return msgspec.json.decode(row[2], type=_Named)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return _Named()


def _code(error: sqlite3.Error) -> int:
    """The primary result code; 0 for what Python itself does not like about a value."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def _words(error: Exception) -> str:
    return (isinstance(error, OSError) and error.strerror) or str(error)


def _may_last(error: Exception) -> bool:
    """Whether it is an error of those that permissions or a read-only file system give."""
    return error.errno in LASTING if isinstance(error, OSError) else isinstance(error, sqlite3.Error) and _code(error) in _CLOSED


def _text(value: bytes) -> str:
    return value.decode(errors="replace")


def _digest(session: str, mark: str, content: bytes) -> str:
    return hashlib.sha256(b"\0".join((session.encode(errors="replace"), mark.encode(errors="replace"), content))).hexdigest()
