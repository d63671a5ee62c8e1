"""Bytes that are cut from a log are kept beside it first, in a new file of their own (P7)."""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

from semel.adapters.file.disk import Disk
from semel.adapters.file.root import Place
from semel.core.reading import PIECE_BYTES
from semel.errors import StoreError

_FILES_MAX = 1000


@contextmanager
def nothing_in_vain(place: Place, directory: int, *prefixes: str) -> Iterator[None]:
    """What the block keeps aside, in files with these prefixes, goes again if it fails before a byte of the log is gone.

    The lease is ours, so that nobody else makes such files meanwhile.
    """
    disk = place.disk
    size, before = _size(place), disk.names(directory)
    try:
        yield
    except BaseException:
        with suppress(OSError):
            if _size(place) == size:
                _take_away(disk, directory, [n for n in disk.names(directory) if n.startswith(prefixes) and n not in before])
        raise


def _size(place: Place) -> int:
    """How long the log is; one that is gone is empty."""
    try:
        return place.disk.status_of(place.log).st_size
    except FileNotFoundError:
        return 0


def _take_away(disk: Disk, directory: int, names: Iterable[str]) -> None:
    for name in names:
        disk.unlink(name, directory)


def keep_aside(disk: Disk, directory: int, name: str, source: int, start: int = 0) -> str:
    """Copy a file from byte `start` to its end into a new file `name`, or `name-1` and so on; returns the name it has.

    Its content is durable then; its name once the caller has synced the directory.
    """
    fd, candidate = _new_file(disk, directory, name)
    try:
        copied = 0
        while piece := disk.read(source, start + copied, PIECE_BYTES):
            disk.write(fd, piece, copied)
            copied += len(piece)
        disk.sync(fd)
    finally:
        disk.close(fd)
    return candidate


def _new_file(disk: Disk, directory: int, name: str) -> tuple[int, str]:
    for attempt in range(_FILES_MAX):
        candidate = f"{name}-{attempt}" if attempt else name
        with suppress(FileExistsError):
            return disk.open_file(candidate, directory, os.O_WRONLY | os.O_CREAT | os.O_EXCL), candidate
    raise StoreError(f"there are {_FILES_MAX} files {name} already; remove those that nobody needs. Nothing was changed.")
