"""Bytes that are cut from a log are kept beside it first, in a new file of their own (P7)."""

import os
from contextlib import suppress

from semel.adapters.file.disk import Disk
from semel.core.reading import PIECE_BYTES
from semel.errors import StoreError

_FILES_MAX = 1000


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
