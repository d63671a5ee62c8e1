"""Where a writer of this process left a log, and whether the log still goes on from there (STORE-8, LOG-13).

What an open has verified and a writer has synced need not be read again by the same process while nobody else can have touched
it. Two witnesses say so: the lease file, which every other tenure stamps, and the mark of the log, which every write changes.
Where another process held the session meanwhile, whose open verified all of it, the log stands if it is the same file and its
next frame follows from the digest that names the history up to here. Anything else is read from the start.
"""

import os
from dataclasses import dataclass
from typing import NamedTuple

from semel.adapters.file.disk import Disk
from semel.core.frame import Scan
from semel.core.header import Point
from semel.core.lookup import Lookup
from semel.core.reading import PIECE_BYTES, Reading


class Recovered(NamedTuple):
    """What recovery found and made durable, and where to read its frames again."""

    scan: Scan
    lookup: Lookup


@dataclass(frozen=True, kw_only=True)
class FileBookmark:
    """Implements `ports.log.Bookmark`. `lease` is what our tenure wrote into the lease file, `left` the file as we left it."""

    lease: bytes
    left: tuple[int, ...]
    point: Point
    lookup: Lookup
    features: frozenset[str]

    @property
    def digest(self) -> str:
        """The digest of the last frame."""
        return self.point.digest

    def stands(self, disk: Disk, fd: int, lease: bytes) -> bool:
        """Whether the log that is open at `fd` goes on from here. `lease` is what the lease file said before our new tenure."""
        found = disk.status(fd)
        if marks_of(found) == self.left:
            return True
        if lease == self.lease or marks_of(found)[:2] != self.left[:2] or found.st_size <= self.point.offset:
            return False
        return bool(Reading(self.point).feed(disk.read(fd, self.point.offset, PIECE_BYTES)))


WRITTEN_MARKS = 4
"""How many of the marks only a write changes. The last one changes as well where the file gets another name or other rights."""


def marks_of(found: os.stat_result) -> tuple[int, ...]:
    """What tells a file that was replaced, written to or cut from the one that was left: the first two say which file it is."""
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
