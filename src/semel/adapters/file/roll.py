"""Which sessions a state directory has: told by the names of their directories, and by what lies in those that hide the id.

A name that is only a digest hides it: the first line of the log says whose it is, else the status document beside it does, else
the index remembers it. What may be a session and tells of none is a stray: it is named by its directory, and is never passed over
in silence.
"""

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

import msgspec

from semel.adapters.file import names
from semel.adapters.file.disk import Disk
from semel.adapters.file.index import Index
from semel.adapters.file.root import SESSIONS, Place, Root, naming, open_private
from semel.core.frame import Lineage, scan, witnessed
from semel.core.reading import PIECE_BYTES, Verification
from semel.errors import LogDamaged, StoreError

_FIRST_LINE_BYTES = 4096  # a lineage line with the longest id is shorter


class _Claim(msgspec.Struct):
    """What a status document says of its session."""

    session: str


def session_in(root: Root, index: Index, name: str) -> str | None:
    """The id of the session that a directory name stands for; None for none of ours, and where nothing tells the id.

    `index` is the one that the caller asks about all of them, so that an index which is held is waited for once.
    """
    if not names.is_digest(name):
        return names.session_id(name)
    for told in (partial(_id_in_log, root), partial(_id_in_status, root), partial(_id_in_index, index)):
        with suppress(OSError, StoreError):
            session = told(name)
            if session is not None and names.directory_name(session) == name:
                return session
    return None


def strays(root: Root, index: Index, known: frozenset[str], told: Callable[[str], str | None]) -> Mapping[str, StoreError]:
    """What may be a session though nothing tells which, by the name of its directory, with the reason.

    `index` is as in `session_in`, `known` are features, and `told` says the id that a name stands for. A directory without an
    acknowledged record is none: who opened it died before its first barrier.
    """
    found: dict[str, StoreError] = {}
    with naming("list", root.path), suppress(FileNotFoundError), root.sessions() as sessions:
        for name in root.disk.names(sessions):
            if told(name) is not None:
                continue
            try:
                if names.is_digest(name):
                    _check_hidden(root, name, known)
                    _id_in_index(index, name)  # where that cannot be asked, nobody can tell that there was nothing
                else:
                    _check_foreign(root, name)
            except StoreError as error:
                found[name] = error
    return found


def lineage_in(disk: Disk, directory: int, path: Path) -> Lineage | None:
    """What the first line of a log says; None where there is none yet."""
    content = _content(disk, Place.LOG, directory, path, _FIRST_LINE_BYTES)
    return None if content is None else scan(content).point.lineage


def _id_in_log(root: Root, name: str) -> str | None:
    path = root.path / SESSIONS / name
    with root.sessions() as sessions, root.directory(name, sessions, path) as directory:
        lineage = lineage_in(root.disk, directory, path / Place.LOG)
    return None if lineage is None else lineage.session


def _id_in_status(root: Root, name: str) -> str | None:
    status = _status(root, name)
    with suppress(msgspec.MsgspecError, UnicodeDecodeError):
        return None if status is None else msgspec.json.decode(status, type=_Claim).session
    return None


def _id_in_index(index: Index, name: str) -> str | None:
    """Raises what asking the index raises."""
    return next((session for session in index.known() if names.directory_name(session) == name), None)


def _status(root: Root, name: str) -> bytes | None:
    path = root.path / SESSIONS / name
    with root.sessions() as sessions, root.directory(name, sessions, path) as directory:
        return _content(root.disk, Place.STATUS, directory, path / Place.STATUS)


def _check_hidden(root: Root, name: str, known: frozenset[str]) -> None:
    """Raise what keeps the log of a hidden id from being read; nothing was ever acknowledged where nothing does."""
    path = root.path / SESSIONS / name
    log = path / Place.LOG
    verification = Verification(name, str(log), known)
    with naming("read", path), suppress(FileNotFoundError):
        with root.sessions() as sessions, root.directory(name, sessions, path) as directory:
            _read(root.disk, directory, log, verification.feed)
        status = _status(root, name)
        verification.end(witnessed(status))
        if status is not None:
            raise LogDamaged(str(log), 0, 0, "the log is gone, and its status document does not say whose it was")


def _check_foreign(root: Root, name: str) -> None:
    path = root.path / SESSIONS / name
    for file in (Place.LOG, Place.STATUS):
        with suppress(OSError):  # what cannot be looked at and has no session's name is none
            root.disk.status_of(path / file)
            raise StoreError(f"{path} holds a log, but no session has this directory name. Move it out of the state directory.")


def _read(disk: Disk, directory: int, path: Path, take: Callable[[bytes], object]) -> None:
    with suppress(FileNotFoundError):
        fd, offset = open_private(disk, Place.LOG, directory, os.O_RDONLY, path), 0
        try:
            while piece := disk.read(fd, offset, PIECE_BYTES):
                offset += len(piece)
                take(piece)
        finally:
            disk.close(fd)


def _content(disk: Disk, name: str, directory: int, path: Path, limit: int | None = None) -> bytes | None:
    """What a file of a session's directory holds; None if there is none."""
    try:
        fd = open_private(disk, name, directory, os.O_RDONLY, path)
    except FileNotFoundError:
        return None
    try:
        return disk.read(fd, limit=limit)
    finally:
        disk.close(fd)
