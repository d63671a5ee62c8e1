"""Opening a log for writing: believe nothing that is not synced, verify everything, cut only what was never acknowledged.

The order matters (design 3): sync file and directory, read and verify, refuse; only then stamp the lease, cut a torn tail
with its bytes kept aside, and write again what only the page cache may hold.
"""

import os
from collections.abc import Callable

from semel.adapters.file.aside import keep_aside
from semel.adapters.file.disk import Disk
from semel.adapters.file.lease import Lease
from semel.adapters.file.root import Place, naming, open_private
from semel.core.frame import Frame, Lineage, Scan, TailKind, line_of, witnessed
from semel.core.reading import PIECE_BYTES, Verification
from semel.ports.log import TakeFrames

Witness = Callable[[str, Lineage | None], int]
"""The highest record of a session that something beside its directory calls durable, if it is of this lineage; else 0."""


def recover(
    place: Place, directory: int, lease: Lease, *, known: frozenset[str], witness: Witness, take: TakeFrames | None = None
) -> Scan:
    """Verify the log of a session, stamp the lease, recover the tail and make what is left durable.

    The frames go to `take` as they are read; without it they are in what is returned. Raises LogDamaged or NewerWriter, and
    then nothing was changed.
    """
    disk = place.disk
    status = witnessed(place.read_status(directory))
    verification = Verification(place.session, str(place.log), known)
    with naming("open", place.log):
        try:
            fd = open_private(disk, Place.LOG, directory, os.O_RDWR, place.log)
        except FileNotFoundError:
            log = verification.end(max(status, witness(place.session, None) if lease.stamped_before else 0))
            lease.stamp(1)
            return log
    try:
        with naming("sync", place.log):
            disk.sync(fd)
            disk.sync_directory(directory)
        kept: list[Frame] = []
        with naming("read", place.log):
            unproven = _read(disk, fd, verification, take or kept.extend)
        lineage = verification.point.lineage
        named = witness(place.session, lineage) if lineage or lease.stamped_before else 0  # a directory made anew remembers less
        log = verification.end(max(status, named), kept)
        lease.stamp(log.point.fence + 1)
        with naming("recover", place.log):
            if log.tail.kind is TailKind.TORN:
                keep_aside(disk, directory, f"wal.torn-{log.tail.offset}", fd, log.tail.offset)
                disk.sync_directory(directory)
                disk.truncate(fd, log.tail.offset)
                disk.sync(fd)
            _write_again(disk, fd, unproven)
    finally:
        disk.close(fd)
    return log


def _read(disk: Disk, fd: int, verification: Verification, take: TakeFrames) -> list[Frame]:
    """Hand out the frames of the log, piece by piece; returns those that no later frame calls durable."""
    unproven: list[Frame] = []
    offset = 0
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
