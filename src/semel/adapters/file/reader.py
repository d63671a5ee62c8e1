"""Reading a log that another process may be writing: only what can never vanish is shown (P6, STORE-5).

Durable for certain is what the frames themselves testify to, what the published status names, and what a writer of this
process has synced. Beyond that the reader must sync the file itself and read it from the device, and only while nobody holds
the lease: a live writer may still take back a write that failed. Two looks at the lease file, with equal stamps, show that
nobody held it meanwhile.
"""

import os

from semel.adapters.file.disk import Disk
from semel.adapters.file.lease import look_at
from semel.adapters.file.root import Place, open_private
from semel.core.frame import Point, Scan, witnessed
from semel.core.reading import verified
from semel.core.values import Frozen
from semel.errors import LogDamaged
from semel.ports.log import View

_LOOKS_MAX = 3  # what a live writer takes back while we read can look like damage for a moment


class Sight(Frozen, frozen=True, kw_only=True):
    """How far a file, known by its identity, was read and shown before: nothing in front of `point` is read again."""

    device: int
    inode: int
    point: Point


class Reader:
    """Reads the logs of one root, and remembers how far, so that following a log costs only what is new in it."""

    def __init__(self, disk: Disk, known: frozenset[str]) -> None:
        """`known` are the features that this build can interpret."""
        self._disk, self._known = disk, known
        self._seen: dict[str, Sight] = {}

    def view(self, place: Place, directory: int, *, after: int, durable: int) -> View:
        """What may be shown of the log; `durable` is what a writer of this process vouches for, -1 if none."""
        for _ in range(_LOOKS_MAX - 1):
            if look_at(place, directory).owner is None:
                break
            try:
                return self._view(place, directory, after=after, durable=durable)
            except LogDamaged:
                continue
        return self._view(place, directory, after=after, durable=durable)

    def _view(self, place: Place, directory: int, *, after: int, durable: int) -> View:
        lease = look_at(place, directory)
        named = witnessed(place.read_status(directory))
        try:
            fd = open_private(self._disk, Place.LOG, directory, os.O_RDONLY, place.log)
        except FileNotFoundError:
            verified(b"", place.session, str(place.log), self._known, anchor=named)
            return View(frames=(), head=0, owner=lease.owner)
        try:
            found = self._disk.status(fd)
            start = self._start(place.session, found, after)
            data = self._disk.read(fd, start.offset)
            log = verified(data, place.session, str(place.log), self._known, anchor=named, start=start)
            confirmed = max(durable, start.seq - 1, named or -1, log.point.synced or -1)
            if confirmed < log.point.seq - 1 and lease.owner is None and self._is_durable(fd, directory, start.offset, data):
                confirmed = log.point.seq - 1 if look_at(place, directory) == lease else confirmed
        finally:
            self._disk.close(fd)
        shown = [frame for frame in log.frames if frame.seq <= confirmed]
        if shown:
            point = _behind(log, len(shown))
            self._seen[place.session] = Sight(device=found.st_dev, inode=found.st_ino, point=point)
        frames = tuple(frame for frame in shown if frame.seq > after)
        whole = len(shown) == len(log.frames) and log.tail.offset == found.st_size == start.offset + len(data)
        head = max(shown[-1].seq if shown else start.seq - 1, 0)
        return View(frames=frames, head=head, owner=lease.owner, mark=mark_of(found) if whole else None)

    def _is_durable(self, fd: int, directory: int, offset: int, data: bytes) -> bool:
        """Make durable what was read; a reader that cannot, say on a read-only disk, shows less.

        Behind a sync of the writer that failed, ours may succeed without the bytes, which only memory holds: the next writer
        writes them again, a reader may not (HAZ3). So the device is asked what it has.
        """
        try:
            self._disk.sync(fd)
            self._disk.sync_directory(directory)
            return self._disk.read_from_device(fd, offset) == data
        except OSError:
            return False

    def _start(self, session: str, found: os.stat_result, after: int) -> Point:
        """Where to begin: behind what was shown before, unless the caller wants that again or the file is another one."""
        seen = self._seen.get(session)
        if seen is None or (seen.device, seen.inode) != (found.st_dev, found.st_ino):
            return Point()
        return seen.point if found.st_size >= seen.point.offset and after >= seen.point.seq - 1 else Point()


def mark_of(found: os.stat_result) -> str:
    """Stands for the bytes of a log as they are: another file, or one that was written to, has another mark."""
    return f"{found.st_dev}:{found.st_ino}:{found.st_size}:{found.st_mtime_ns}"


def _behind(log: Scan, count: int) -> Point:
    """Where the log stands behind the first `count` frames of a scan."""
    last = log.frames[count - 1]
    offset = log.frames[count].offset if count < len(log.frames) else log.tail.offset
    return Point(
        offset=offset, seq=last.seq + 1, digest=last.digest, fence=last.fence, synced=last.synced, lineage=log.point.lineage
    )
