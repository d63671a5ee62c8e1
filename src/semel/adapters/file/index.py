"""index.db: what was derived from logs, so that listings need not read them again. Never the truth (P33, design 3).

A row holds a summary and the mark of the log that it was derived from, written in one transaction: that is its watermark. A
log that has grown, or was replaced, has another mark, and is read again. Whatever is wrong with the file, it is as if there
were none: it is dropped and written anew, and nobody waits for it.

A summary is only ever remembered of records that are durable. So it is a witness too: a log of that lineage which ends before
the record that its row names has lost something.
"""

import hashlib
import os
import sqlite3
import stat
from contextlib import closing, suppress
from pathlib import Path

import msgspec

from semel.core.header import Lineage

NAME = "index.db"
_SCHEMA = 1
_COLUMNS = "session TEXT PRIMARY KEY, mark TEXT NOT NULL, content BLOB NOT NULL, digest TEXT NOT NULL"
_WAIT_SECONDS = 0.2


class _Named(msgspec.Struct):
    """What a summary says of the log that it was derived from."""

    lineage: str = ""
    head_seq: int = 0


class Index:
    """The index of one state directory. No method raises: what cannot be recalled is derived again."""

    def __init__(self, root: Path) -> None:
        """Touches nothing yet."""
        self.path = root / NAME

    def recall(self, session: str, mark: str) -> bytes | None:
        """What was remembered of a session whose log has this mark."""
        row = self._row(session)
        return None if row is None or row[0] != mark else row[1]

    def witness(self, session: str, lineage: Lineage | None) -> int:
        """The highest record that was durable when a session was last listed; 0 if nothing is known of this log.

        `lineage` is None for a log whose first line is lost: it was that which is remembered.
        """
        row = self._row(session)
        try:
            named = _Named() if row is None else msgspec.json.decode(row[1], type=_Named)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return 0
        return max(0, named.head_seq) if lineage is None or lineage.lineage == named.lineage else 0

    def forget(self, session: str) -> None:
        """Forget one session. Where its row cannot be removed, all are: it must not testify any more."""
        if self._row(session) is None:
            return
        try:
            with closing(self._open(write=True)) as db, db:
                db.execute("DELETE FROM summary WHERE session = ?", (session,))
        except (sqlite3.Error, OSError, ValueError, UnicodeError):
            self.drop()

    def remember(self, session: str, mark: str, content: bytes) -> None:
        """Keep a summary with its watermark, atomically. An index that is damaged is dropped first."""
        row = (session, mark, content, _digest(session, mark, content))
        for _ in range(2):
            try:
                with closing(self._open(write=True)) as db, db:
                    db.execute("INSERT OR REPLACE INTO summary VALUES (?, ?, ?, ?)", row)
            except sqlite3.OperationalError as error:
                if "locked" in str(error) or "readonly" in str(error):
                    return
                self.drop()
            except (sqlite3.Error, ValueError, UnicodeError):
                self.drop()
            except OSError:
                return
            else:
                return

    def sessions(self) -> int | None:
        """How many sessions it knows; None if there is no index that can be read."""
        try:
            with closing(self._open(write=False)) as db:
                sound = db.execute("PRAGMA quick_check").fetchone() == ("ok",)
                count = int(db.execute("SELECT count(*) FROM summary").fetchone()[0])
        except (sqlite3.Error, OSError, ValueError, UnicodeError):
            return None
        return count if sound else None

    def drop(self) -> None:
        """Remove it; the next listing writes it anew."""
        for name in (NAME, f"{NAME}-journal"):
            with suppress(OSError):
                self.path.with_name(name).unlink()

    def _row(self, session: str) -> tuple[str, bytes] | None:
        try:
            with closing(self._open(write=False)) as db:
                row = db.execute("SELECT mark, content, digest FROM summary WHERE session = ?", (session,)).fetchone()
        except (sqlite3.Error, OSError, ValueError, UnicodeError):
            return None
        whole = row is not None and isinstance(row[0], str) and isinstance(row[1], bytes)
        return (row[0], row[1]) if whole and row[2] == _digest(session, row[0], row[1]) else None

    def _open(self, *, write: bool) -> sqlite3.Connection:
        """A connection to a plain private file, which is made only to write to it."""
        flags = os.O_RDWR | os.O_CREAT if write else os.O_RDONLY
        fd = os.open(self.path, flags | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, 0o600)
        found = os.fstat(fd)
        os.close(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1 or found.st_uid != os.geteuid():
            raise OSError("not a plain file of ours")
        where = f"{self.path.as_uri()}?mode={'rw' if write else 'ro'}"
        db = sqlite3.connect(where, timeout=_WAIT_SECONDS, uri=True)
        try:
            (schema,) = db.execute("PRAGMA user_version").fetchone()
            if write and schema != _SCHEMA:
                with db:
                    db.execute("DROP TABLE IF EXISTS summary")
                    db.execute(f"CREATE TABLE summary ({_COLUMNS})")
                    db.execute(f"PRAGMA user_version = {_SCHEMA}")
            db.execute("PRAGMA synchronous = OFF")
        except BaseException:
            db.close()
            raise
        return db


def _digest(session: str, mark: str, content: bytes) -> str:
    return hashlib.sha256(b"\0".join((session.encode(), mark.encode(), content))).hexdigest()
