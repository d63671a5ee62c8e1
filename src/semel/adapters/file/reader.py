"""Reading a log that another process may be writing: only what can never vanish is shown (P6, STORE-5).

Durable for certain is what the frames themselves testify to, what the published status names, and what a writer of this
process has synced. Beyond that the reader must sync the file itself and read it from the device, and only while nobody holds
the lease: a live writer may still take back a write that failed. Two looks at the lease file, with equal stamps, show that
nobody held it meanwhile.
"""

import os
from collections import deque
from collections.abc import Sequence

from semel.adapters.file.bookmark import marks_of
from semel.adapters.file.disk import Disk
from semel.adapters.file.lease import look_at
from semel.adapters.file.recovery import Witness
from semel.adapters.file.root import Place, open_private
from semel.core.frame import Frame, Point, Scan, line_of, witnessed
from semel.core.reading import PIECE_BYTES, Verification, verified
from semel.core.values import Frozen
from semel.errors import LogDamaged
from semel.ports.log import TakeFrames, View

_LOOKS_MAX = 3  # what a live writer takes back while we read can look like damage for a moment


class Sight(Frozen, frozen=True, kw_only=True):
    """How far a file, known by its identity, was read and shown before: nothing in front of `point` is read again."""

    device: int
    inode: int
    point: Point


class _Hand:
    """Hands out frames with seq > `after`, each once, in order; keeps them where nobody takes them."""

    def __init__(self, after: int, take: TakeFrames | None) -> None:
        self.after, self.kept = after, list[Frame]()
        self._take = take or self.kept.extend

    def out(self, frames: Sequence[Frame]) -> None:
        new = [frame for frame in frames if frame.seq > self.after]
        if new:
            self.after = new[-1].seq
            self._take(new)


class Reader:
    """Reads the logs of one root, and remembers how far, so that following a log costs only what is new in it."""

    def __init__(self, disk: Disk, known: frozenset[str], witness: Witness) -> None:
        """`known` are the features that this build can interpret."""
        self._disk, self._known, self._witness = disk, known, witness
        self._seen: dict[str, Sight] = {}

    def view(self, place: Place, directory: int, *, after: int, durable: int, take: TakeFrames | None = None) -> View:
        """What may be shown of the log; `durable` is what a writer of this process vouches for, -1 if none.

        Frames go to `take` as soon as they can never vanish, so that memory holds a piece of the log.
        """
        hand = _Hand(after, take)
        for _ in range(_LOOKS_MAX - 1):
            if look_at(place, directory).owner is None:
                break
            try:
                return self._view(place, directory, hand, durable=durable)
            except LogDamaged:
                continue
        return self._view(place, directory, hand, durable=durable)

    def _view(self, place: Place, directory: int, hand: _Hand, *, durable: int) -> View:
        """One look; once more from the start where damage may only be that the log is not the one that was seen before."""
        try:
            return self._look(place, directory, hand, durable=durable)
        except LogDamaged:
            if self._seen.pop(place.session, None) is None:
                raise
            return self._look(place, directory, hand, durable=durable)

    def _look(self, place: Place, directory: int, hand: _Hand, *, durable: int) -> View:
        lease = look_at(place, directory)
        named = witnessed(place.read_status(directory))
        try:
            fd = open_private(self._disk, Place.LOG, directory, os.O_RDONLY, place.log)
        except FileNotFoundError:
            anchor = max(named, self._witness(place.session, None) if lease.stamped else 0)
            verified(b"", place.session, str(place.log), self._known, anchor=anchor)
            return View(frames=(), head=0, owner=lease.owner)
        try:
            found = self._disk.status(fd)
            start = self._start(place.session, found, hand.after)
            confirmed = max(durable, start.seq - 1, named or -1)
            verification = Verification(place.session, str(place.log), self._known, start)
            last, pending, end = self._read(fd, verification, confirmed, hand)
            lineage = verification.point.lineage
            asked = start.seq == 0 and (lineage or lease.stamped)
            log = verification.end(max(named, self._witness(place.session, lineage)) if asked else named)
            confirmed = max(confirmed, log.point.synced or -1)
            if confirmed < log.point.seq - 1 and lease.owner is None and self._is_durable(fd, directory, pending):
                confirmed = log.point.seq - 1 if look_at(place, directory) == lease else confirmed
        finally:
            self._disk.close(fd)
        shown = [frame for frame in pending if frame.seq <= confirmed]
        hand.out(shown)
        last = shown[-1] if shown else last
        following = pending[len(shown)].offset if len(shown) < len(pending) else log.tail.offset
        if last is not None:
            self._seen[place.session] = Sight(device=found.st_dev, inode=found.st_ino, point=_behind(log, last, following))
        whole = len(shown) == len(pending) and log.tail.offset == found.st_size == end
        head = max(last.seq if last else start.seq - 1, 0)
        return View(frames=tuple(hand.kept), head=head, owner=lease.owner, mark=mark_of(found) if whole else None)

    def _read(
        self, fd: int, verification: Verification, confirmed: int, hand: _Hand
    ) -> tuple[Frame | None, Sequence[Frame], int]:
        """Hand out what is known to be durable; returns the last of that, the frames behind it, and how far the file was read."""
        last: Frame | None = None
        pending: deque[Frame] = deque()
        offset = verification.point.offset
        while piece := self._disk.read(fd, offset, PIECE_BYTES):
            offset += len(piece)
            pending.extend(verification.feed(piece))
            durable = max(confirmed, verification.point.synced or -1)
            sure = [pending.popleft() for _ in range(len(pending)) if pending[0].seq <= durable]
            hand.out(sure)
            last = sure[-1] if sure else last
            if len(piece) < PIECE_BYTES:
                break
        return last, tuple(pending), offset

    def _is_durable(self, fd: int, directory: int, pending: Sequence[Frame]) -> bool:
        """Make durable what was read; a reader that cannot, say on a read-only disk, shows less. Nothing testifies to `pending`.

        Behind a sync of the writer that failed, ours may succeed without the bytes, which only memory holds: the next writer
        writes them again, a reader may not (HAZ3). So the device is asked what it has.
        """
        try:
            self._disk.sync(fd)
            self._disk.sync_directory(directory)
            read = b"".join(map(line_of, pending))
            return self._disk.read_from_device(fd, pending[0].offset, len(read)) == read
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
    return ":".join(map(str, marks_of(found)))


def _behind(log: Scan, last: Frame, offset: int) -> Point:
    """Where the log stands behind a frame that ends at `offset`."""
    return Point(
        offset=offset, seq=last.seq + 1, digest=last.digest, fence=last.fence, synced=last.synced, lineage=log.point.lineage
    )
