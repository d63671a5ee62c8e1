"""Copies of a state directory: of each session what can never vanish, up to its durable head at the moment it is copied.

A copy is itself a state directory, with a list of what is in it that is written last: one without the list is not whole. It
holds no leases, and no file of a session but its log. `restore` checks every byte against the list before anything is written.
"""

import os
from collections.abc import Callable
from pathlib import Path

import msgspec

from semel.adapters.file.floor import FileFloor
from semel.adapters.file.root import Place, Root, naming, open_private, replace_file
from semel.core.frame import TailKind, line_of
from semel.core.reading import Reading
from semel.core.values import Frozen
from semel.errors import StoreError, UnsafeStore, UsageError
from semel.ports.log import View

LIST_NAME = "backup.json"
ReadSession = Callable[[str], View]


class Copied(Frozen, frozen=True, kw_only=True):
    """One session of a copy: how much of it is there, and the digest that names that history."""

    session: str
    head_seq: int
    head_digest: str
    size_bytes: int


class CopyList(Frozen, frozen=True, kw_only=True):
    """What a copy holds, and the sessions that could not be read when it was made, with the reason."""

    schema: int
    made_at_ms: int
    sessions: tuple[Copied, ...]
    features: tuple[str, ...]
    left_out: dict[str, str]


class NotEmpty(UsageError):
    """A copy is made, and restored, into a directory that is new or empty."""

    code = "not_empty"


class BadBackup(StoreError):
    """A copy is not whole or was changed; nothing was restored."""

    code = "bad_backup"
    exit = 6


def back_up(root: Root, target: Path, read: ReadSession, sessions: list[str], made_at_ms: int) -> CopyList:
    """Copy sessions into `target`. `read` gives what may be shown of one; a session that cannot be read is left out and named."""
    into = _new_root(target, root)
    copied: list[Copied] = []
    left_out: dict[str, str] = {}
    for session in sessions:
        try:
            view = read(session)
        except StoreError as error:
            left_out[session] = f"{error.code}: {error}"
            continue
        data = b"".join(map(line_of, view.frames))
        _write_log(into, session, data)
        last = view.frames[-1]
        copied.append(Copied(session=session, head_seq=view.head, head_digest=last.digest, size_bytes=len(data)))
    features = FileFloor(root).names()  # read last: it covers every log that was copied
    FileFloor(into).raise_to(features)
    listed = CopyList(
        schema=1, made_at_ms=made_at_ms, sessions=tuple(copied), features=tuple(sorted(features)), left_out=left_out
    )
    with naming("write", into.path / LIST_NAME), into.open() as directory:
        replace_file(into.disk, LIST_NAME, msgspec.json.encode(listed) + b"\n", directory, into.path / LIST_NAME)
        into.disk.sync_directory(directory)
    into.sync()
    return listed


def restore(source: Path, root: Root) -> CopyList:
    """Put a copy in place of a state directory that is new or empty. Raises BadBackup, writing nothing, if it is not whole."""
    origin = Root(source, root.disk)
    listed = _list_of(origin)
    logs = {copied.session: _checked(origin, copied) for copied in listed.sessions}
    into = _new_root(root.path, origin)
    FileFloor(into).raise_to(listed.features)
    for session, data in logs.items():
        _write_log(into, session, data)
    into.sync()
    return listed


def _new_root(path: Path, other: Root) -> Root:
    root = Root(path, other.disk)
    if path.exists() and any(path.iterdir()):
        raise NotEmpty(f"{path} is not empty; name a directory that is new")
    if root.path == other.path or other.path in root.path.parents:
        raise UnsafeStore(f"{path} is within {other.path}; a copy belongs elsewhere")
    root.prepare()
    return root


def _list_of(origin: Root) -> CopyList:
    path = origin.path / LIST_NAME
    try:
        with naming("read", path), origin.open() as directory:
            fd = open_private(origin.disk, LIST_NAME, directory, os.O_RDONLY, path)
            try:
                content = origin.disk.read(fd)
            finally:
                origin.disk.close(fd)
        return msgspec.json.decode(content, type=CopyList)
    except (msgspec.MsgspecError, UnicodeDecodeError, StoreError) as error:
        raise BadBackup(f"{origin.path} is no whole backup: {path.name} {error}. Nothing was restored.") from error


def _checked(origin: Root, copied: Copied) -> bytes:
    """The bytes of a log that are what the list says of them."""
    place = Place(origin, copied.session)
    with naming("read", place.log), place.open() as directory:
        fd = open_private(origin.disk, Place.LOG, directory, os.O_RDONLY, place.log)
        try:
            data = origin.disk.read(fd)
        finally:
            origin.disk.close(fd)
    reading = Reading()
    reading.feed(data)
    point = reading.point
    if reading.tail().kind is not TailKind.CLEAN or (len(data), point.digest) != (copied.size_bytes, copied.head_digest):
        raise BadBackup(f"{place.log} is not what was copied. Nothing was restored.")
    return data


def _write_log(root: Root, session: str, data: bytes) -> None:
    place = Place(root, session)
    with naming("write", place.log), place.open(create=True) as directory:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        fd = open_private(root.disk, Place.LOG, directory, flags, place.log)
        try:
            root.disk.write(fd, data, 0)
            root.disk.sync(fd)
        finally:
            root.disk.close(fd)
        place.sync_parents()
