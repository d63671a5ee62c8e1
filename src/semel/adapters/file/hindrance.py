"""What keeps a file from being written to, or read, however often one tries: its file system, or who may do that."""

import errno
import os
import shlex
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

LASTING = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})
"""Errors of the operating system that no waiting mends."""


class Hindrance(NamedTuple):
    """Why, in the words of the operating system, and what to do about it."""

    why: str
    cure: str


def hindrance(path: Path, *, write: bool) -> Hindrance | None:
    """What keeps this process from reading a file, and with `write` from changing or making it; None if nothing that lasts does.

    Who changes a file of a database needs its directory, too: the journal is made there.
    """
    directory = path.parent
    needs = [(directory, os.W_OK | os.X_OK, "rwx")] if write else []
    if os.path.lexists(path):
        needs.append((path, os.R_OK | (os.W_OK if write else 0), "rw"))
    with suppress(OSError):
        if write and os.statvfs(directory).f_flag & os.ST_RDONLY:
            return Hindrance(os.strerror(errno.EROFS), f"mount the file system of {directory} writable")
    for place, mode, letters in needs:
        if not os.access(place, mode):
            return Hindrance(os.strerror(errno.EACCES), f"`chmod u+{letters} {shlex.quote(str(place))}`")
    return None
