"""Copies of a state directory: of each session what can never vanish, up to its durable head at the moment it is copied.

A copy is itself a state directory, with a list of what is in it that is written last: one without the list is not whole. It
holds no leases, and no file of a session but its log and its blobs. `restore` checks every byte against the list before
anything is written.
"""

import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from semel.adapters.file.blobs import FileBlobs, refuse_reader
from semel.adapters.file.floor import FileFloor
from semel.adapters.file.parking import mark
from semel.adapters.file.root import Place, Root, naming, open_private, replace_file
from semel.adapters.file.store import FileStore
from semel.core.blob_names import named_blobs
from semel.core.frame import Frame, TailKind, line_of
from semel.core.reading import PIECE_BYTES, Reading
from semel.core.values import Frozen
from semel.errors import BlobDamaged, StoreError, UnsafeStore, UsageError, need
from semel.ports.log import TakeFrames

LIST_NAME = "backup.json"


class Copied(Frozen, frozen=True, kw_only=True):
    """One session of a copy: how much of it is there, and the digest that names that history.

    `blobs` are copied, too; `lacking` are those that its records name and that were missing or damaged.
    """

    session: str
    head_seq: int
    head_digest: str
    size_bytes: int
    blobs: tuple[str, ...] = ()
    lacking: tuple[str, ...] = ()


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


class _Copy:
    """One session on its way into another root: what there is of it so far. Memory holds a piece of its log, and one blob."""

    def __init__(self, root: Root, session: str) -> None:
        self.place = Place(root, session)
        self.failed = False  # where the copy goes, not where it comes from
        self._size = 0
        self._last: Frame | None = None
        self._fd: int | None = None

    def take(self, frames: Sequence[Frame]) -> None:
        """Write more of the log."""
        data = b"".join(map(line_of, frames))
        with self._writing():
            if self._fd is None:
                with self.place.open(create=True) as directory:
                    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
                    self._fd = open_private(self.place.disk, Place.LOG, directory, flags, self.place.log)
            self.place.disk.write(self._fd, data, self._size)
        self._size, self._last = self._size + len(data), frames[-1]

    def end(self, blobs: FileBlobs, names: Iterable[str]) -> Copied:
        """Copy the blobs, and make all of it durable."""
        last, ours = need(self._last, "a log has a first line"), FileBlobs(self.place, _nobody_else)
        lacking: list[str] = []
        for name in (names := sorted(names)):
            try:
                content = blobs.get(name)
            except BlobDamaged:
                lacking.append(name)
                continue
            with self._writing():
                ours.put(content)
        with self._writing():
            self.place.disk.sync(need(self._fd, "a log was written"))
            self.place.sync_parents()
        self.close()
        return Copied(
            session=self.place.session,
            head_seq=max(last.seq, 0),
            head_digest=last.digest,
            size_bytes=self._size,
            blobs=tuple(name for name in names if name not in lacking),
            lacking=tuple(lacking),
        )

    def undo(self) -> None:
        """Take back what was written of a log that cannot be read to its end."""
        if self._fd is not None:
            self.close()
            with self._writing(), self.place.open() as directory:
                self.place.disk.unlink(Place.LOG, directory)

    def close(self) -> None:
        fd, self._fd = self._fd, None
        if fd is not None:
            self.place.disk.close(fd)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            with naming("write", self.place.log):
                yield
        except StoreError:
            self.failed = True
            raise


def back_up(store: FileStore, target: Path, made_at_ms: int) -> CopyList:
    """Copy all sessions into `target`; one that cannot be read is left out and named."""
    into = _new_root(target, store.root)
    copied: list[Copied] = []
    left_out = {name: f"{error.code}: {error}" for name, error in store.strays().items()}
    for session in store.sessions():
        copy, names = _Copy(into, session), dict[str, int]()

        def take(frames: Sequence[Frame], copy: _Copy = copy, names: dict[str, int] = names) -> None:
            names.update(named_blobs(frames))
            copy.take(frames)

        try:
            store.read(session, take=take)
            copied.append(copy.end(store.blobs(session), names))
        except StoreError as error:
            if copy.failed:
                raise
            copy.undo()
            left_out[session] = f"{error.code}: {error}"
        finally:
            copy.close()
    features = store.floor.names()  # read last: it covers every log that was copied
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
    """Put a copy in place of a state directory that is new or empty. Raises BadBackup, writing nothing, if it is not whole.

    Every session is marked before its log is there, so that nobody goes on with one whose open run is not closed.
    """
    origin = Root(source, root.disk)
    listed = _list_of(origin)
    for copied in listed.sessions:
        _read(origin, copied, _nowhere)
        _check_blobs(origin, copied)
    into = _new_root(root.path, origin)
    FileFloor(into).raise_to(listed.features)
    for copied in listed.sessions:
        place, copy = Place(into, copied.session), _Copy(into, copied.session)
        with naming("write", place.log), place.open(create=True) as directory:
            mark(place, directory)
            place.sync_parents()
        try:
            _read(origin, copied, copy.take)
            copy.end(_blobs(origin, copied), copied.blobs)
        finally:
            copy.close()
    into.sync()
    return listed


def _new_root(path: Path, other: Root) -> Root:
    root = Root(path, other.disk)
    with naming("look into", path), suppress(FileNotFoundError):
        if not stat.S_ISDIR(path.stat().st_mode):
            raise NotEmpty(f"{path} is no directory; name one that is new")
        if any(path.iterdir()):
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


def _read(origin: Root, copied: Copied, take: TakeFrames) -> None:
    """Read a log of a copy, which is what the list says of it, piece by piece."""
    place = Place(origin, copied.session)
    reading, size = Reading(), 0
    with naming("read", place.log), place.open() as directory:
        fd = open_private(origin.disk, Place.LOG, directory, os.O_RDONLY, place.log)
        try:
            while piece := origin.disk.read(fd, size, PIECE_BYTES):
                size += len(piece)
                frames = reading.feed(piece)
                if frames:
                    take(frames)
        finally:
            origin.disk.close(fd)
    if reading.tail().kind is not TailKind.CLEAN or (size, reading.point.digest) != (copied.size_bytes, copied.head_digest):
        raise BadBackup(f"{place.log} is not what was copied. Nothing was restored.")


def _check_blobs(origin: Root, copied: Copied) -> None:
    for name in copied.blobs:
        try:
            _blobs(origin, copied).get(name)
        except BlobDamaged as error:
            raise BadBackup(f"{error} Nothing was restored.") from error


def _blobs(origin: Root, copied: Copied) -> FileBlobs:
    return FileBlobs(Place(origin, copied.session), refuse_reader)


def _nowhere(_frames: Sequence[Frame]) -> None:
    """For a first reading that only checks."""


def _nobody_else() -> None:
    """Nobody holds sessions of a root that is being made."""
