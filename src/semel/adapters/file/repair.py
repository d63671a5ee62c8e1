"""Cutting a damaged log where its damage starts: never by itself, never without keeping the bytes (P7).

A tail that a crash can have left is no damage; opening the session cuts that. What is cut here was durable, so a person has
to accept that it is lost.
"""

import os
from collections.abc import Sequence
from contextlib import suppress

from msgspec.structs import replace

from semel.adapters.file.disk import Disk
from semel.adapters.file.lease import Lease
from semel.adapters.file.root import Place, Root, naming, open_private
from semel.core.frame import Frame, Proven, proven_behind, scan, witnessed
from semel.core.tail import NEWER_WRITER, TailKind
from semel.core.values import Frozen
from semel.errors import NewerWriter, StoreError, UnknownSession

_KEPT_FILES_MAX = 1000


class Loss(Frozen, frozen=True, kw_only=True):
    """What a repair of a log gives up, or has given up.

    The log would end at byte `offset`, before record `seq`, with `kept_records` records. `lost_bytes` go to `kept_as`, None
    where nothing was done yet. `readable` are the frames behind the damage whose headers are whole; `remembered` is the seq that
    the status document called durable.
    """

    session: str
    path: str
    reason: str
    offset: int
    seq: int
    kept_records: int
    lost_bytes: int
    remembered: int
    readable: tuple[Proven, ...]
    kept_as: str | None = None


def assess(root: Root, session: str) -> Loss | None:
    """What a repair would give up; None where the log is not damaged. Changes nothing.

    Raises UnknownSession, and NewerWriter for what a newer build wrote, which is never cut.
    """
    place = Place(root, session)
    with naming("read", place.log):
        try:
            with place.open() as directory:
                return _assess(place, directory)[0]
        except FileNotFoundError:
            raise UnknownSession(f"there is no session {session!r} in {root.path}") from None


def repair(root: Root, session: str) -> Loss | None:
    """Cut a damaged log behind its last whole write, under its lease, with what is cut kept in a new file beside it.

    The status document, which remembers what is lost, is kept beside it, too. Raises as `assess`, and SessionBusy.
    """
    place = Place(root, session)
    assess(root, session)  # refuses before a lease file is made
    with naming("repair", place.log), place.open() as directory:
        lease = Lease.take(place, directory)
        try:
            loss, lost, status = _assess(place, directory)
            if loss is None:
                return None
            disk = place.disk
            lease.stamp(max([0, *(header.fence for header in loss.readable)]) + 1)
            kept = _keep(disk, directory, f"wal.damaged-{loss.offset}", lost)
            if status is not None:
                _keep(disk, directory, f"status.damaged-{loss.offset}", status)
                disk.unlink(Place.STATUS, directory)
            disk.sync_directory(directory)
            fd = open_private(disk, Place.LOG, directory, os.O_RDWR | os.O_CREAT, place.log)
            try:
                disk.truncate(fd, loss.offset)
                disk.sync(fd)
            finally:
                disk.close(fd)
            return replace(loss, kept_as=kept)
        finally:
            lease.release()


def _assess(place: Place, directory: int) -> tuple[Loss | None, bytes, bytes | None]:
    """What would be lost, its bytes, and the status document."""
    status = place.read_status(directory)
    data = b""
    with suppress(FileNotFoundError):
        fd = open_private(place.disk, Place.LOG, directory, os.O_RDONLY, place.log)
        try:
            data = place.disk.read(fd)
        finally:
            place.disk.close(fd)
    found = scan(data, witnessed(status))
    if found.tail.kind is not TailKind.DAMAGED:
        return None, b"", status
    if found.tail.reason == NEWER_WRITER:
        raise NewerWriter(f"record {found.point.seq} of {place.log}")
    offset, seq = _whole_writes(found.frames, found.tail.offset)
    loss = Loss(
        session=place.session,
        path=str(place.log),
        reason=found.tail.reason,
        offset=offset,
        seq=seq,
        kept_records=max(0, seq - 1),
        lost_bytes=len(data) - offset,
        remembered=witnessed(status),
        readable=proven_behind(data, offset),
    )
    return loss, data[offset:], status


def _whole_writes(frames: Sequence[Frame], end: int) -> tuple[int, int]:
    """Where the last whole write ends, and the seq behind it: one of which a part is lost may have been acted upon."""
    for index in range(len(frames) - 1, -1, -1):
        if frames[index].left == 0:
            following = frames[index + 1].offset if index + 1 < len(frames) else end
            return following, frames[index].seq + 1
    return 0, 0


def _keep(disk: Disk, directory: int, name: str, content: bytes) -> str:
    """Put bytes into a new file of their own, durably but for its name."""
    for attempt in range(_KEPT_FILES_MAX):
        candidate = f"{name}-{attempt}" if attempt else name
        with suppress(FileExistsError):
            fd = disk.open_file(candidate, directory, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            break
    else:
        raise StoreError(f"there are {_KEPT_FILES_MAX} files {name} already. Nothing was changed.")
    try:
        disk.write(fd, content, 0)
        disk.sync(fd)
    finally:
        disk.close(fd)
    return candidate
