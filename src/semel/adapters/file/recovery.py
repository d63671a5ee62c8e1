"""Opening a log for writing: believe nothing that is not synced, verify everything, cut only what was never acknowledged.

The order matters (design 3): sync file and directory, read and verify, refuse; only then stamp the lease, cut a torn tail
with its bytes kept aside, and write again what only the page cache may hold.
"""

import os
from contextlib import suppress

from semel.adapters.file.disk import Disk
from semel.adapters.file.lease import Lease
from semel.adapters.file.root import Place, naming, open_private
from semel.core.frame import Scan, TailKind, synced_upto, verified, witnessed
from semel.errors import StoreError

_TORN_FILES_MAX = 1000


def recover(place: Place, directory: int, lease: Lease, known: frozenset[str]) -> Scan:
    """Verify the log of a session, stamp the lease, recover the tail and make what is left durable.

    Raises LogDamaged or NewerWriter, and then nothing was changed.
    """
    disk = place.disk
    anchor = witnessed(place.read_status(directory))
    with naming("open", place.log):
        try:
            fd = open_private(disk, Place.LOG, directory, os.O_RDWR, place.log)
        except FileNotFoundError:
            log = verified(b"", place.session, str(place.log), known, anchor=anchor)
            lease.stamp(1)
            return log
    try:
        with naming("sync", place.log):
            disk.sync(fd)
            disk.sync_directory(directory)
        with naming("read", place.log):
            data = disk.read(fd)
        log = verified(data, place.session, str(place.log), known, anchor=anchor)
        lease.stamp(log.point.fence + 1)
        with naming("recover", place.log):
            if log.tail.kind is TailKind.TORN:
                _keep(disk, directory, data[log.tail.offset :], log.tail.offset)
                disk.truncate(fd, log.tail.offset)
                disk.sync(fd)
            _write_again(disk, fd, data, log)
    finally:
        disk.close(fd)
    return log


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


def _write_again(disk: Disk, fd: int, data: bytes, log: Scan) -> None:
    """Write the frames that nothing testifies to once more, in place: after a failed sync the page cache may lie (HAZ3)."""
    durable = synced_upto(log.frames)
    unproven = next((frame for frame in log.frames if frame.seq > durable or durable == 0), None)
    if unproven is not None:
        disk.write(fd, data[unproven.offset : log.tail.offset], unproven.offset)
        disk.sync(fd)
