"""Blobs as files in a directory of their session: new file, sync, rename, sync of the directory; verified before use."""

import hashlib
import os
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress

from semel.adapters.file.root import Place, naming, open_private, replace_file
from semel.errors import BlobDamaged, LeaseLost

DIRECTORY = "blobs"
DAMAGED_LOG = "wal.damaged-"  # what a repair kept of a log; its records may name blobs, too
_NAME = re.compile(r"[0-9a-f]{64}")


class FileBlobs:
    """Implements `ports.blobs.Blobs`. `check` raises LeaseLost unless the session's lease is ours."""

    def __init__(self, place: Place, check: Callable[[], None]) -> None:
        """Touches nothing yet."""
        self._place, self._disk, self._check = place, place.disk, check
        self.path = place.path / DIRECTORY

    def put(self, content: bytes) -> str:
        """Keep content durably; returns its name."""
        self._check()
        name = hashlib.sha256(content).hexdigest()
        with naming("write", self.path / name), self._place.open(create=True) as session:
            with suppress(FileExistsError):
                self._disk.make_directory(DIRECTORY, session)
            with self._place.root.directory(DIRECTORY, session, self.path) as directory:
                if self._read(name, directory) == content:
                    self._sync_again(name, directory)
                else:
                    replace_file(self._disk, name, content, directory, self.path / name)
                self._disk.sync_directory(directory)
            self._place.sync_parents()  # who made the directories may have died before their sync
        return name

    def get(self, name: str) -> bytes:
        """The content of that name, verified. Raises BlobDamaged."""
        content = None
        if _NAME.fullmatch(name):
            with naming("read", self.path / name), suppress(FileNotFoundError), self._open() as directory:
                content = self._read(name, directory)
        if content is None or hashlib.sha256(content).hexdigest() != name:
            what = "is missing" if content is None else "does not hold what it is named for"
            raise BlobDamaged(f"{self.path / name[:64]} {what}. Restore it from a copy; nothing was changed.")
        return content

    def names(self) -> Sequence[str]:
        """What is there, sorted."""
        with naming("list", self.path), suppress(FileNotFoundError), self._open() as directory:
            return [name for name in self._disk.names(directory) if _NAME.fullmatch(name)]
        return []

    def collect(self, named: Collection[str]) -> Sequence[str]:
        """Remove what is not named, and what a `put` that died has left. Beside the rest of a damaged log all are kept."""
        self._check()
        removed: list[str] = []
        with naming("collect", self.path), suppress(FileNotFoundError), self._open() as directory:
            for name in () if self._is_repaired() else self._disk.names(directory):
                if name not in named and _NAME.fullmatch(name.removesuffix(".new")):
                    self._disk.unlink(name, directory)
                    removed.append(name)
            if removed:
                self._disk.sync_directory(directory)
        return removed

    def _is_repaired(self) -> bool:
        with self._place.open() as session:
            return any(name.startswith(DAMAGED_LOG) for name in self._disk.names(session))

    @contextmanager
    def _open(self) -> Iterator[int]:
        with self._place.open() as session, self._place.root.directory(DIRECTORY, session, self.path) as directory:
            yield directory

    def _read(self, name: str, directory: int) -> bytes | None:
        try:
            fd = open_private(self._disk, name, directory, os.O_RDONLY, self.path / name)
        except FileNotFoundError:
            return None
        try:
            return self._disk.read(fd)
        finally:
            self._disk.close(fd)

    def _sync_again(self, name: str, directory: int) -> None:
        """Who wrote it may have died before its sync, so what can be read is not yet durable."""
        fd = open_private(self._disk, name, directory, os.O_RDONLY, self.path / name)
        try:
            self._disk.sync(fd)
        finally:
            self._disk.close(fd)


def refuse_reader() -> None:
    """The check of who only reads."""
    raise LeaseLost("only who holds the session's lease may change its blobs. Nothing was written.")
