"""What can be said about a state directory without opening a session, and what to do about it. Changes nothing."""

import shlex
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from semel.adapters.file.blobs import DAMAGED_LOG
from semel.adapters.file.blobs import DIRECTORY as BLOBS
from semel.adapters.file.copies import LIST_NAME, UNFINISHED, Copy, copy_at
from semel.adapters.file.disk import is_private_directory, is_private_file
from semel.adapters.file.floor import LOCK_NAME, FileFloor
from semel.adapters.file.floor import NAME as FLOOR_NAME
from semel.adapters.file.hindrance import hindrance
from semel.adapters.file.index import NAME as INDEX
from semel.adapters.file.parking import NAME as PARKING
from semel.adapters.file.recovery import TORN_LOG
from semel.adapters.file.repair import DAMAGED_STATUS
from semel.adapters.file.root import NETWORK, REMEDY, SESSIONS, TOLD, Place, Root, make_readable
from semel.adapters.file.store import FileStore
from semel.core.status import decode_status
from semel.core.values import Frozen
from semel.errors import IndexUnavailable, NewerWriter, SemelError, command

Weight = Literal["fine", "note", "problem"]
_KEPT = (TORN_LOG, DAMAGED_LOG, DAMAGED_STATUS)
_OURS = (Place.LOG, Place.LEASE, Place.STATUS, BLOBS, PARKING)
_NOT_A_STATE = "make it a directory that you may read, or name another state directory with `--state`"
_NOT_A_SESSION = "make it a directory that you may read, or move it away; if it was a session's, restore that from a backup"
_REMOVE_INDEX = "as a last resort remove it: no record is lost, but it may be all that tells that a log has lost some"
_UPGRADE = "upgrade semel to use this directory"
_ROOT_NAMES = (SESSIONS, FLOOR_NAME, LOCK_NAME, INDEX, f"{INDEX}-journal", LIST_NAME, UNFINISHED, TOLD)


class Finding(Frozen, frozen=True, kw_only=True):
    """One thing about a state directory. A `problem` keeps a session from being used; a `note` may be acted upon or left."""

    weight: Weight
    about: str
    what: str
    advice: str = ""


def examine(store: FileStore) -> Iterator[Finding]:
    """Look at everything, the root first, then session by session."""
    root = store.root
    if not _is_there(root.path):
        yield Finding(weight="note", about=str(root.path), what="there is no state directory", advice="the first run makes it")
        return
    if (closed := _closed(root.path.resolve() if root.path.exists() else root.path)) is not None:
        yield Finding(weight="problem", about=str(root.path), what=closed, advice=_NOT_A_STATE)
        return
    copy = copy_at(root)
    if copy is not None:
        yield Finding(weight="note" if copy.whole else "problem", about=str(root.path), what=copy.what, advice=copy.advice)
    yield from _root(root)
    yield from _floor(store)
    sessions = root.path / SESSIONS
    if _is_there(sessions) and (closed := _closed(sessions)) is not None:
        yield Finding(weight="problem", about=str(sessions), what=closed, advice=_NOT_A_STATE)
        return
    yield from _index(store, copy)
    strays = store.strays()
    for path in sorted(sessions.glob("*")):
        if path.name in strays:
            yield Finding(weight="problem", about=str(path), what=str(strays[path.name]), advice=_mends(strays[path.name], path))
        elif store.session_in(path.name) is not None and (closed := _closed(path)) is not None:
            yield Finding(weight="problem", about=str(path), what=closed, advice=_NOT_A_SESSION)
        else:
            yield from _session(store, path, copy)


def _is_there(path: Path) -> bool:
    """Whether there is anything at a path, if only a link that leads nowhere."""
    try:
        path.lstat()
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return True


def _closed(path: Path) -> str | None:
    """Why nobody can look at what is in a directory; None if one can."""
    try:
        if not stat.S_ISDIR(path.lstat().st_mode):
            return "is no directory"
        for name in sorted(found.name for found in path.iterdir())[:1]:
            (path / name).lstat()
    except OSError as error:
        return f"cannot be looked into: {error.strerror}"
    return None


def _root(root: Root) -> Iterator[Finding]:
    kind = root.disk.file_system(root.path)
    if kind in NETWORK:
        yield Finding(weight="problem", about=str(root.path), what=f"is on a network file system ({kind})", advice=REMEDY)
    else:
        yield Finding(weight="fine", about=str(root.path), what=f"is on a local file system ({kind or 'of unknown type'})")
    yield from _way(root)
    for path in (root.path.resolve(), root.path / SESSIONS):  # the root may be behind a link
        if _closed(path) is None:
            yield from _private(root, path)
    for name in sorted(path.name for path in root.path.iterdir()):
        if name.endswith(".new"):
            yield _leftover(root.path / name)
        elif name not in _ROOT_NAMES:
            yield Finding(weight="note", about=str(root.path / name), what="is none of semel's files", advice="keep it elsewhere")


def _way(root: Root) -> Iterator[Finding]:
    """Every directory above must be synced before a record counts as durable (W25), and only what can be read can be."""
    for path in root.disk.above(root.path):
        try:
            root.disk.close(root.disk.open_directory(str(path), None))
        except OSError as error:
            what = f"may not be read ({error.strerror}), so that no record below it can be made durable"
            yield Finding(weight="problem", about=str(path), what=what, advice=make_readable(path))


def _private(root: Root, path: Path) -> Iterator[Finding]:
    """Whether a file or directory can be trusted, and whether others can read it."""
    found, user = root.disk.status_of(path), root.disk.user()
    directory = stat.S_ISDIR(found.st_mode)
    fault = is_private_directory(found, user) if directory else is_private_file(found, user)
    if fault is not None:
        advice = f"find out who did that; then `chown` it to user {user}, `chmod go-rwx` it, or put a plain file in its place"
        yield Finding(weight="problem", about=str(path), what=fault, advice=advice)
    elif found.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        who = "others can read or write it" if found.st_mode & stat.S_IRWXO else "its group can read or write it"
        yield Finding(
            weight="note", about=str(path), what=who, advice=f"if nobody else should, `chmod go-rwx {shlex.quote(str(path))}`"
        )


def _floor(store: FileStore) -> Iterator[Finding]:
    floor = FileFloor(store.root)
    try:
        found = floor.names()
    except SemelError as error:
        yield Finding(weight="problem", about=str(floor.path), what=str(error), advice="restore it from a backup")
        return
    lacking = sorted(found - store.known)
    if lacking:
        what = f"names {', '.join(lacking)}, which this build lacks"
        yield Finding(weight="problem", about=str(floor.path), what=what, advice=_UPGRADE)
    else:
        yield Finding(weight="fine", about=str(floor.path), what=f"names {', '.join(sorted(found)) or 'no feature'}")


def _index(store: FileStore, copy: Copy | None) -> Iterator[Finding]:
    index = store.index
    if not index.path.is_file() or index.path.is_symlink():
        yield _no_index(index.path, copy)
        return
    try:
        count, removed = index.sessions(), store.removed()
    except SemelError as error:
        yield Finding(weight="problem", about=str(index.path), what=str(error), advice=_ask_index(error, index.path))
        return
    if count is None:
        what = "is damaged, so it testifies to nothing, and listings read every log"
        yield Finding(weight="note", about=str(index.path), what=what, advice=_mend_index(index.path, copy))
    else:
        yield Finding(weight="fine", about=str(index.path), what=f"sessions that it knows: {count}")
    yield from (_removed(session, head) for session, head in removed.items())


def _no_index(path: Path, copy: Copy | None) -> Finding:
    """What becomes of an index that is not there, or is something else."""
    if _is_there(path):
        what = "is no plain file, so nothing is remembered, and listings read every log"
        return Finding(weight="note", about=str(path), what=what, advice="move it away; the next listing makes an index")
    if copy is not None:
        what = "is not there; nothing is written to a copy, so listings read every log"
        return Finding(weight="fine", about=str(path), what=what)
    if (found := hindrance(path, write=True)) is not None:
        what = f"is not there, and cannot be made ({found.why}), so listings read every log"
        return Finding(weight="note", about=str(path), what=what, advice=found.cure)
    return Finding(weight="fine", about=str(path), what="is not there; it is made when a session is listed")


def _ask_index(error: SemelError, path: Path) -> str:
    """What to do about an index that cannot be asked."""
    if isinstance(error, NewerWriter):
        return f"{_UPGRADE}; {_REMOVE_INDEX}"
    found = hindrance(path, write=True)
    cure = "end the process that holds it, or free the disk or the descriptors" if found is None else found.cure
    return f"{cure}; {_REMOVE_INDEX}"


def _mend_index(path: Path, copy: Copy | None) -> str:
    """What to do about a damaged index."""
    if copy is not None:
        return "remove it: nothing is written to a copy, so nothing mends it"
    derive = "`semel reindex` derives it anew; if a log has lost records that only the index knew of, nobody can tell any more"
    found = hindrance(path, write=True)
    return derive if found is None else f"{found.cure}; then {derive}"


def _removed(session: str, head: int) -> Finding:
    what = f"had {head} records, as the index remembers, and its directory was removed"
    return Finding(weight="note", about=session, what=what, advice="nothing, if somebody removed it; else restore a backup")


def _session(store: FileStore, path: Path, copy: Copy | None) -> Iterator[Finding]:
    session = store.session_in(path.name)
    if session is None:
        yield Finding(weight="note", about=str(path), what="is no session's directory", advice="remove it if nobody needs it")
        return
    yield from _private(store.root, path)
    if copy is None and store.must_park(session):
        what = "was repaired or restored, but its open run is not closed yet, so nobody can use it"
        yield Finding(
            weight="problem", about=session, what=what, advice=f"{command('repair', session, '--accept-loss')} closes it"
        )
    for name in sorted(file.name for file in path.iterdir()):
        if name.endswith(".new"):
            yield _leftover(path / name)
        elif name.startswith(_KEPT):
            size = store.root.disk.status_of(path / name).st_size
            what = f"keeps {size} bytes that were cut from the log"
            yield Finding(weight="note", about=str(path / name), what=what, advice="remove it once nobody wants to look at it")
        elif name in _OURS:
            yield from _private(store.root, path / name)
        else:
            yield Finding(weight="note", about=str(path / name), what="is none of semel's files", advice="keep it elsewhere")
    yield from _standing(store, session, path, copy)


def _standing(store: FileStore, session: str, path: Path, copy: Copy | None) -> Iterator[Finding]:
    """The log, who holds it, and whether the status document is as new as it."""
    try:
        raw, owner = store.read_status(session), store.owner(session)
        head = store.read(session).head if store.exists(session) or store.remembered(session) else None
        before = store.witness(session, None) if head is None else 0
    except SemelError as error:
        yield Finding(weight="problem", about=session, what=str(error), advice=_mends(error, path))
        return
    if owner is not None:
        yield Finding(weight="fine", about=session, what=f"is in use by {owner}")
        return
    if not head:  # the first line alone tells of no record
        yield Finding(weight="note", about=session, what="was opened and never written", advice="nothing; its first run uses it")
        if before:
            yield _removed(session, before)
        return
    if copy is not None:
        yield Finding(weight="fine", about=session, what=f"is a copy of {head} records")
        return
    status = decode_status(raw)
    if status is None or status.head_seq < head:
        what = f"status.json is older than the log, which ends with record {head}"
        yield Finding(weight="note", about=session, what=what, advice=f"{command('resume', session)} writes it anew")
    elif status.state == "running":
        yield Finding(
            weight="note",
            about=session,
            what="has an open run that no process carries",
            advice=f"{command('resume', session)} goes on with it",
        )
    else:
        yield Finding(weight="fine", about=session, what=f"{status.state}, {head} records, nobody holds it")


def _leftover(path: Path) -> Finding:
    return Finding(
        weight="note", about=str(path), what="was left by a process that died while writing", advice="nothing; it is used again"
    )


def _mends(error: SemelError, path: Path) -> str:
    """What to do about a session that cannot be read; nobody is sent to a backup where nothing is lost."""
    if isinstance(error, IndexUnavailable):
        return "see what is said of the index"
    if isinstance(error, NewerWriter):
        return _UPGRADE
    return f"see {command('verify', str(path))}; then restore a backup, or see `semel repair --help`"
