"""Opening a log for writing: believe nothing that is not synced, verify everything, cut only what was never acknowledged.

The order matters (design 3): sync file and directory, read and verify, refuse; only then stamp the lease, cut a torn tail
with its bytes kept aside, and write again what only the page cache may hold.
"""

import os
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from semel.adapters.file.aside import keep_aside, nothing_in_vain
from semel.adapters.file.bookmark import FileBookmark, Recovered, marks_of
from semel.adapters.file.disk import Disk
from semel.adapters.file.lease import Lease
from semel.adapters.file.root import Place, naming, open_private
from semel.core.frame import Frame, Lineage, TailKind, line_of, witnessed
from semel.core.lookup import Lookup
from semel.core.reading import PIECE_BYTES, Verification
from semel.ports.log import TakeFrames

TORN_LOG = "wal.torn-"  # what is kept of a log, before it is cut
Witness = Callable[[str, Lineage | None], int]
"""The highest record of a session that something beside its directory calls durable, if it is of this lineage; else 0.

Raises IndexUnavailable where that cannot be asked now, and NewerWriter where only a later build can.
"""


def recover(
    place: Place,
    directory: int,
    lease: Lease,
    *,
    known: frozenset[str],
    witness: Witness,
    take: TakeFrames | None = None,
    bookmark: FileBookmark | None = None,
) -> Recovered:
    """Verify the log of a session, stamp the lease, recover the tail and make what is left durable.

    The frames go to `take` as they are read; without it they are in what is returned. A log that goes on from the `bookmark` is
    read from there. Raises LogDamaged, NewerWriter or IndexUnavailable, and then nothing was changed.
    """
    disk, path = place.disk, str(place.log)
    status = witnessed(place.read_status(directory))
    ours = 0 if bookmark is None else bookmark.witness(lease.content)
    with naming("open", place.log):
        try:
            fd = open_private(disk, Place.LOG, directory, os.O_RDWR, place.log)
        except FileNotFoundError:
            nothing = Verification(place.session, path, known)
            log = nothing.end(max(status, ours or (witness(place.session, None) if lease.stamped_before else 0)))
            lease.stamp(1)
            return Recovered(log, Lookup(path))
    try:
        with naming("sync", place.log):
            disk.sync(fd)
            disk.sync_directory(directory)
        with naming("read", place.log):
            start = bookmark if bookmark is not None and bookmark.stands(disk, fd) else None
            verification = Verification(place.session, path, known, None if start is None else start.point)
            hand = _Hand(Lookup(path) if start is None else start.lookup.copy(), take)
            unproven = _read(disk, fd, verification, hand.out)
        lineage = verification.point.lineage
        asked = not ours and (lineage or lease.stamped_before)  # nobody knows more than who had it last; a new directory has less
        named = witness(place.session, lineage) if asked else ours
        log = verification.end(max(status, named), hand.kept)
        log = log if start is None else replace(log, features=log.features | start.features)
        lease.stamp(log.point.fence + 1)
        with naming("recover", place.log):
            if log.tail.kind is TailKind.TORN:
                with nothing_in_vain(place, directory, TORN_LOG):
                    keep_aside(disk, directory, f"{TORN_LOG}{log.tail.offset}", fd, log.tail.offset)
                    disk.sync_directory(directory)
                    disk.truncate(fd, log.tail.offset)
                    disk.sync(fd)
            _write_again(disk, fd, unproven)
            left = marks_of(disk.status(fd))
    finally:
        disk.close(fd)
    return Recovered(log, hand.lookup, left)


class _Hand:
    """Notes where the frames are, and hands them out; keeps them where nobody takes them."""

    def __init__(self, lookup: Lookup, take: TakeFrames | None) -> None:
        self.lookup, self.kept = lookup, list[Frame]()
        self._take = take or self.kept.extend

    def out(self, frames: Sequence[Frame]) -> None:
        self.lookup.add(frames)
        self._take(frames)


def _read(disk: Disk, fd: int, verification: Verification, take: TakeFrames) -> list[Frame]:
    """Hand out the frames of the log, piece by piece; returns those that no later frame calls durable."""
    unproven: list[Frame] = []
    offset = verification.point.offset
    while piece := disk.read(fd, offset, PIECE_BYTES):
        offset += len(piece)
        frames = verification.feed(piece)
        take(frames)
        unproven.extend(frames)
        if unproven and unproven[-1].synced:
            del unproven[: max(0, unproven[-1].synced + 1 - unproven[0].seq)]
    return unproven


def _write_again(disk: Disk, fd: int, unproven: list[Frame]) -> None:
    """Write the frames that nothing testifies to once more, in place: after a failed sync the page cache may lie (HAZ3)."""
    if unproven:
        disk.write(fd, b"".join(map(line_of, unproven)), unproven[0].offset)
        disk.sync(fd)
