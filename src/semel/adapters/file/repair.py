"""Cutting a damaged log where its damage starts: never by itself, never without keeping the bytes (P7).

A tail that a crash can have left is no damage; opening the session cuts that. What is cut here was durable, so a person has
to accept that it is lost.
"""

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import NamedTuple

from msgspec.structs import replace

from semel.adapters.file.aside import keep_aside, nothing_in_vain
from semel.adapters.file.blobs import DAMAGED_LOG
from semel.adapters.file.copies import refuse_copy
from semel.adapters.file.disk import Disk
from semel.adapters.file.floor import FileFloor
from semel.adapters.file.index import Index
from semel.adapters.file.lease import Lease
from semel.adapters.file.parking import mark
from semel.adapters.file.root import Place, Root, naming, open_private
from semel.core.behind import Behind, Read, proven_behind
from semel.core.frame import Frame, Point, witnessed
from semel.core.header import Proven
from semel.core.reading import PIECE_BYTES, Reading, foreign
from semel.core.tail import NEWER_WRITER, TailKind
from semel.core.values import Frozen
from semel.errors import NewerWriter, UnknownSession

DAMAGED_STATUS = "status.damaged-"


class Loss(Frozen, frozen=True, kw_only=True):
    """What a repair of a log gives up, or has given up.

    The log would end at byte `offset`, before record `seq`, with `kept_records` records. `lost_bytes` go to `kept_as`, None
    where nothing was done yet. `readable` are the first frames behind the cut whose headers are whole, `readable_records` counts
    all of them; `remembered` is the seq that the status document or the index called durable.
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
    readable_records: int
    kept_as: str | None = None


class _Found(NamedTuple):
    """A damaged log: what a repair gives up of it, and what is behind the cut."""

    loss: Loss
    behind: Behind


def assess(root: Root, session: str, known: frozenset[str]) -> Loss | None:
    """What a repair would give up; None where the log is not damaged. Changes nothing. `known` are the features of this build.

    Raises UnknownSession, IsCopy, and NewerWriter for a root or a log that a newer build wrote, which is never cut.
    """
    refuse_copy(root)
    FileFloor(root).refuse_newer(known)
    place = Place(root, session)
    with naming("read", place.log):
        try:
            with place.open() as directory:
                found = _assess(place, directory, known)
        except FileNotFoundError:
            raise UnknownSession(f"there is no session {session!r} in {root.path}") from None
    return None if found is None else found.loss


def repair(root: Root, session: str, known: frozenset[str]) -> Loss | None:
    """Cut a damaged log behind its last whole write, under its lease, with what is cut kept in a new file beside it.

    The status document, which remembers what is lost, is kept beside it, too, and behind the cut the index forgets the session.
    From before the cut on the session is marked, so that nobody opens it but who closes its run. Raises as `assess`, and
    SessionBusy.
    """
    place = Place(root, session)
    assess(root, session, known)  # refuses before a lease file is made
    with naming("repair", place.log), place.open() as directory:
        lease = Lease.take(place, directory)
        try:
            found = _assess(place, directory, known)
            if found is None:
                return None
            lease.stamp(found.behind.fence + 1)
            with nothing_in_vain(place, directory, DAMAGED_LOG, DAMAGED_STATUS):
                return replace(found.loss, kept_as=_cut(place, directory, found.loss.offset))
        finally:
            lease.release()


def _cut(place: Place, directory: int, offset: int) -> str:
    """Keep, then cut; every step of it may be the last one of this process.

    What remembers the lost records goes last: it may be all that shows the damage, and of a log that is not cut yet and not
    damaged any more the calls would count as never sent.
    """
    disk = place.disk
    fd = open_private(disk, Place.LOG, directory, os.O_RDWR | os.O_CREAT, place.log)
    try:
        kept = _kept(disk, directory, fd, offset)
        with suppress(FileNotFoundError):
            status = open_private(disk, Place.STATUS, directory, os.O_RDONLY, place.status)
            try:
                keep_aside(disk, directory, f"{DAMAGED_STATUS}{offset}", status)
            finally:
                disk.close(status)
        mark(place, directory)
        disk.sync_directory(directory)
        disk.truncate(fd, offset)
        disk.sync(fd)
    finally:
        disk.close(fd)
    Index(place.root.path).forget(place.session)
    with suppress(FileNotFoundError):
        disk.unlink(Place.STATUS, directory)
    disk.sync_directory(directory)
    return kept


def _kept(disk: Disk, directory: int, log: int, offset: int) -> str:
    """The file that holds what is cut: a new one, or that of a repair which came to its cut and not to its end."""
    name = f"{DAMAGED_LOG}{offset}"
    if disk.status(log).st_size <= offset:
        suffixes = (found.removeprefix(name) for found in disk.names(directory) if found.startswith(name))
        numbers = [int(suffix[1:] or 0) for suffix in suffixes if re.fullmatch(r"(-\d+)?", suffix)]
        if numbers:
            return f"{name}-{max(numbers)}" if max(numbers) else name
    return keep_aside(disk, directory, name, log, offset)


def _assess(place: Place, directory: int, known: frozenset[str]) -> _Found | None:
    """What would be lost; None where nothing is damaged. Memory holds a piece of the log, however long it is."""
    status = witnessed(place.read_status(directory))
    with _log(place, directory) as read:
        reading, size, offset, seq = Reading(), 0, 0, 0
        while piece := read(size, PIECE_BYTES):
            size += len(piece)
            frames = reading.feed(piece)
            if not reading.features <= known:
                raise NewerWriter(str(place.log), sorted(reading.features - known))
            offset, seq = _whole_writes(frames, reading.point) or (offset, seq)
        remembered = max(status, Index(place.root.path).witness(place.session, reading.point.lineage))
        tail = reading.tail(remembered)
        if tail.reason == NEWER_WRITER:
            raise NewerWriter(f"record {reading.point.seq} of {place.log}")
        theirs = foreign(reading.point, place.session)
        if theirs is not None:  # none of it is ours
            offset = seq = 0
        elif tail.kind is not TailKind.DAMAGED:
            return None
        behind = proven_behind(read, offset)
    loss = Loss(
        session=place.session,
        path=str(place.log),
        reason=theirs or tail.reason,
        offset=offset,
        seq=seq,
        kept_records=max(0, seq - 1),
        lost_bytes=size - offset,
        remembered=remembered,
        readable=behind.listed,
        readable_records=behind.count,
    )
    return _Found(loss, behind)


@contextmanager
def _log(place: Place, directory: int) -> Iterator[Read]:
    """A way to read the log; one that is gone is empty."""
    try:
        fd = open_private(place.disk, Place.LOG, directory, os.O_RDONLY, place.log)
    except FileNotFoundError:
        yield lambda _offset, _limit: b""
        return
    try:
        yield partial(place.disk.read, fd)
    finally:
        place.disk.close(fd)


def _whole_writes(frames: Sequence[Frame], behind: Point) -> tuple[int, int] | None:
    """Where the last whole write of these frames ends, and the seq behind it; None if none of them ends one.

    One of which a part is lost may have been acted upon. `behind` is where the log stands behind the frames.
    """
    for index in range(len(frames) - 1, -1, -1):
        if frames[index].left == 0:
            end = frames[index + 1].offset if index + 1 < len(frames) else behind.offset
            return end, frames[index].seq + 1
    return None
