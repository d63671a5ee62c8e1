"""Opening a log for writing: believe nothing that is not synced, verify everything, cut only what was never acknowledged.

The order matters (design 3): sync file and directory, read and verify, refuse; only then stamp the lease, cut a torn tail
with its bytes kept aside, and write again what only the page cache may hold.
"""

import os
from contextlib import suppress

from semel.adapters.file.disk import Disk
from semel.adapters.file.lease import Lease
from semel.adapters.file.root import Place, naming, open_private
from semel.core.frame import Frame, Scan, TailKind, line_of, witnessed
from semel.core.reading import PIECE_BYTES, Verification
from semel.errors import StoreError
from semel.ports.log import TakeFrames

_TORN_FILES_MAX = 1000


def recover(place: Place, directory: int, lease: Lease, known: frozenset[str], take: TakeFrames | None = None) -> Scan:
    """Verify the log of a session, stamp the lease, recover the tail and make what is left durable.

    The frames go to `take` as they are read; without it they are in what is returned. Raises LogDamaged or NewerWriter, and
    then nothing was changed.
    """
    disk = place.disk
    anchor = witnessed(place.read_status(directory))
    verification = Verification(place.session, str(place.log), known)
    with naming("open", place.log):
        try:
            fd = open_private(disk, Place.LOG, directory, os.O_RDWR, place.log)
        except FileNotFoundError:
            log = verification.end(anchor)
            lease.stamp(1)
            return log
    try:
        with naming("sync", place.log):
            disk.sync(fd)
            disk.sync_directory(directory)
        kept: list[Frame] = []
        with naming("read", place.log):
            unproven = _read(disk, fd, verification, take or kept.extend)
        log = verification.end(anchor, kept)
        lease.stamp(log.point.fence + 1)
        with naming("recover", place.log):
            if log.tail.kind is TailKind.TORN:
                _keep(disk, directory, disk.read(fd, log.tail.offset), log.tail.offset)
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
        if frames:
            durable = frames[-1].synced
            unproven = [frame for frame in unproven if frame.seq > durable or not durable]
            unproven += frames[max(0, durable + 1 - frames[0].seq) if durable else 0 :]
    return unproven


def _keep(disk: Disk, directory: int, torn: bytes, offset: int) -> None:
    """Put the torn bytes into a new file of their own, durably, before they are cut."""
    for attempt in range(_TORN_FILES_MAX):
        name = f"wal.torn-{offset}" + (f"-{attempt}" if attempt else "")
        with suppress(FileExistsError):
            fd = disk.open_file(name, directory, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            break
    else:
        raise StoreError(f"there are {_TORN_FILES_MAX} torn tails of byte {offset} already. Nothing was changed.")
    try:
        disk.write(fd, torn, 0)
        disk.sync(fd)
    finally:
        disk.close(fd)
    disk.sync_directory(directory)


def _write_again(disk: Disk, fd: int, unproven: list[Frame]) -> None:
    """Write the frames that nothing testifies to once more, in place: after a failed sync the page cache may lie (HAZ3)."""
    if unproven:
        disk.write(fd, b"".join(map(line_of, unproven)), unproven[0].offset)
        disk.sync(fd)
