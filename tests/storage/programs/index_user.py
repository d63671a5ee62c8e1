"""A process that uses the index of a state directory in a way that gets into the way of others.

index_user hold ROOT [LOCK]: takes a lock of the index, by default the whole of it as SQLite lets one take it, says so, and keeps
    it until it is told a line. With `immediate` others may look and not change it; with `shared` they cannot end a change.
index_user die ROOT: is killed within a change of every row, with a part of it written.
index_user starve ROOT FAULT: lists all sessions while the disk is `full`, or with no `descriptors` left once the logs are read.
index_user list ROOT TIMES: lists all sessions so often, each log anew, and says how many could not be asked about.
index_user remember ROOT SESSION SECONDS [END]: says that it begins to remember seven records of a session, and how that ended; it
    waits so long for others, and END seconds at a time for readers.
"""

import os
import resource
import signal
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path

from semel.adapters.file import index
from semel.adapters.file.store import FileStore
from semel.adapters.system import SystemClock
from semel.core.features import KNOWN
from semel.errors import SemelError
from semel.faces.listing import listing_of
from semel.faces.views import view_of


def say(text: object) -> None:
    print(text, flush=True)


def hold(root: Path, lock: str = "exclusive") -> None:
    db = sqlite3.connect(root / "index.db", isolation_level=None)
    db.execute("BEGIN" if lock == "shared" else f"BEGIN {lock}")
    db.execute("SELECT count(*) FROM summary").fetchone()
    say("held")
    sys.stdin.readline()
    db.execute("ROLLBACK")
    say("free")
    sys.stdin.readline()


def die(root: Path) -> None:
    db = sqlite3.connect(root / "index.db", isolation_level=None)
    db.execute("PRAGMA synchronous = OFF")
    db.execute("PRAGMA cache_size = 1")  # so that what is changed is written before the end
    db.execute("BEGIN IMMEDIATE")
    db.execute("UPDATE summary SET content = zeroblob(20000), mark = ''")
    os.kill(os.getpid(), signal.SIGKILL)


class Starved(FileStore):
    """Runs out of something right before it writes the index."""

    starve: Callable[[], None]

    def remember(self, session: str, mark: str, content: bytes) -> None:
        self.starve()
        super().remember(session, mark, content)


def _limit(what: int, soft: int) -> None:
    resource.setrlimit(what, (soft, resource.getrlimit(what)[1]))


def _no_space() -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    _limit(resource.RLIMIT_FSIZE, 64)


def _no_descriptors() -> None:
    _limit(resource.RLIMIT_NOFILE, len(os.listdir("/dev/fd")) - 1)


def starve(root: Path, fault: str) -> None:
    store = Starved(root, SystemClock(), known=KNOWN)
    store.starve = _no_space if fault == "full" else _no_descriptors
    for session in store.sessions():
        try:
            view = view_of(store, session)
            store.remember(session, view.mark or "", b'{"lineage":"another","head_seq":1}')
            say(f"{session} remembered")
        except SemelError as error:
            say(f"{session} {error.code}")
        _limit(resource.RLIMIT_NOFILE, 256)
    say("end")


def listing(root: Path, times: str) -> None:
    refused = 0
    for _ in range(int(times)):
        for path in (root / "sessions").glob("*/wal.log"):
            os.utime(path)  # what was remembered of it is stale
        store = FileStore(root, SystemClock(), known=KNOWN)
        refused += sum(one.error is not None for one in listing_of(store))
    say(f"refused {refused}")


def remember(root: Path, session: str, seconds: str, end: str = "") -> None:
    index.WAIT_SECONDS = float(seconds)
    index._END_SECONDS = float(end or index._END_SECONDS)
    say("begins")
    try:
        index.Index(root).remember(session, "mark", b'{"lineage":"l","head_seq":7}')
        say("remembered")
    except SemelError as error:
        say(error.code)


if __name__ == "__main__":
    word, where, *rest = sys.argv[1:]
    {"hold": hold, "die": die, "starve": starve, "list": listing, "remember": remember}[word](Path(where), *rest)
