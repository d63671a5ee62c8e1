"""Where a writer of this process left a log, and whether the log still goes on from there (STORE-8, LOG-13).

What an open has verified and a writer has synced need not be read again by the same process while the marks of the file are those
that its last write left. Where they are others, say since another process held the session, every byte is verified again; if they
still end in the digest that names the history up to here, none of them needs to be decoded or folded once more.
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
    """What recovery found and made durable, where to read its frames again, and the marks it left; none without a file."""

    scan: Scan
    lookup: Lookup
    left: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class FileBookmark:
    """Implements `ports.log.Bookmark`. `lease` is what our tenure wrote into the lease file, `left` the marks of the log."""

    lease: bytes
    left: tuple[int, ...]
    point: Point
    lookup: Lookup
    features: frozenset[str]

    @property
    def digest(self) -> str:
        """The digest of the last frame."""
        return self.point.digest

    def witness(self, lease: bytes) -> int:
        """The highest record that is durable as this process knows, if the lease file tells of no tenure since ours; else 0."""
        return self.point.seq - 1 if lease == self.lease else 0

    def stands(self, disk: Disk, fd: int) -> bool:
        """Whether the log that is open at `fd` goes on from here."""
        return marks_of(disk.status(fd)) == self.left or self._leads_here(disk, fd)

    def _leads_here(self, disk: Disk, fd: int) -> bool:
        """Whether what lies in front verifies, and as the same history."""
        reading, offset = Reading(), 0
        while piece := disk.read(fd, offset, min(PIECE_BYTES, self.point.offset - offset)):
            offset += len(piece)
            reading.feed(piece)
        return reading.point == self.point


WRITTEN_MARKS = 4
"""How many of the marks only a write changes. The last one changes as well where the file gets another name or other rights."""


def marks_of(found: os.stat_result) -> tuple[int, ...]:
    """What tells a file that was replaced, written to or cut from the one that was left: the first two say which file it is."""
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
