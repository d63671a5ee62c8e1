"""The single writer of one session's log file: append, sync, and stop for good when a sync fails (HAZ3).

Between two appends the file belongs to this writer alone, so its size and its time of change are known: what does not match was
written by somebody else, and nothing is added to it (W34).
"""

import asyncio
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NoReturn

from semel.adapters.file.blobs import FileBlobs
from semel.adapters.file.bookmark import WRITTEN_MARKS, FileBookmark, Recovered, marks_of
from semel.adapters.file.floor import FileFloor
from semel.adapters.file.lease import Lease
from semel.adapters.file.root import NotSynced, Place, naming, open_private, replace_file, same_file
from semel.adapters.file.syncs import Syncs
from semel.core.frame import Encoded, Frame, encode_frames, within_ceiling, witnessed
from semel.errors import AppendRefused, ForeignWrite, LeaseLost, StoreError, WriterPoisoned, must
from semel.ports.log import Payload
from semel.ports.world import Clock


class FileWriter:
    """Implements `ports.log.LogWriter`. Made by `FileStore.open`; for one event loop."""

    def __init__(
        self,
        place: Place,
        lease: Lease,
        log: Recovered,
        *,
        floor: FileFloor,
        clock: Clock,
        syncs: Syncs,
        inline: bool,
        ceiling_bytes: int,
    ) -> None:
        """With `inline` a sync blocks the loop while this is the only writer that asks for one; else `syncs` does it apart."""
        self.ceiling_bytes = ceiling_bytes
        self.frames: Sequence[Frame] = log.scan.frames
        self.fence = lease.fence
        self._place, self._disk, self._path = place, place.disk, place.log
        self._at = str(place.log)  # asked about before each write
        self._lease, self._floor, self._clock, self.inline = lease, floor, clock, inline
        self._syncs = syncs
        self.blobs = FileBlobs(place, self.check)
        self._point, self._lookup = log.scan.point, log.lookup
        self._durable = log.scan.point.seq - 1
        self._features = log.scan.features
        self.bookmark: FileBookmark | None = None
        self._parents_pending = True
        self._dead: tuple[type[StoreError], str] | None = None
        self._one_at_a_time = asyncio.Lock()
        self._fd: int | None = None
        self._left = log.left  # the file's marks behind our last write
        with place.open() as directory, suppress(FileNotFoundError):
            self._fd = open_private(self._disk, Place.LOG, directory, os.O_RDWR | os.O_APPEND, self._path)
        if self._fd is None and log.left:
            raise ForeignWrite(f"{self._path} was removed while it was being opened. Nothing was written. Find who did that.")
        syncs.enter(self)

    @property
    def head(self) -> int:
        """The seq of the last frame written."""
        return max(self._point.seq - 1, 0)

    @property
    def size_bytes(self) -> int:
        """How long the log is."""
        return self._point.offset

    @property
    def durable(self) -> int:
        """The highest seq that a sync has covered, -1 if none: what this process may show to its readers."""
        return self._durable

    @property
    def digest(self) -> str:
        """The digest of the last frame written."""
        return self._point.digest

    async def append(self, batch: Sequence[Payload], *, at_ms: int | None = None) -> Sequence[Frame]:
        """Write `batch` as one write, sync it, and return its frames. If the caller is cancelled, the sync is still awaited."""
        async with self._one_at_a_time:
            self._allow()
            if self._parents_pending:
                self._encode(batch, at_ms)  # what is refused makes no file
                self._file()
                await self._do(self._sync_parents)
            frames = self._write(batch, at_ms)
            await self._do(lambda: self._sync(frames[-1].seq))
            return frames

    def note(self, batch: Sequence[Payload], *, at_ms: int | None = None) -> Sequence[Frame]:
        """Write `batch` without a sync."""
        self._allow()
        return self._write(batch, at_ms)

    def frame(self, seq: int) -> Frame:
        """The frame of that seq, read again from the file."""
        with naming("read", self._path):
            return self._lookup.frame(seq, lambda offset, limit: self._disk.read(self._file(), offset, limit))

    def foresee(self, features: Sequence[str]) -> None:
        """Raise the floor now for frames that may come; where it holds them already, nothing is done and nobody is asked."""
        if self._floor.holds(features):
            return
        self.check()
        self._floor.raise_to(features)

    def check(self) -> None:
        """Raise LeaseLost unless this writer still holds the lease, and WriterPoisoned if it failed before."""
        if self._dead is not None:
            error, message = self._dead
            raise error(message)
        self._lease.check()

    def publish_status(self, status: bytes) -> None:
        """Replace the session's status document atomically."""
        self.check()
        must(witnessed(status) <= max(self._durable, 0), "a status names only what is durable", durable=self._durable)
        with naming("publish", self._place.status), self._place.open() as directory:
            replace_file(self._disk, Place.STATUS, status, directory, self._place.status)

    async def close(self) -> None:
        """Sync what was only noted, close, and give the lease back. A poisoned writer is closed without another sync."""
        async with self._one_at_a_time:
            try:
                if self._dead is None and self._durable < self._point.seq - 1:
                    await self._do(lambda: self._sync(self._point.seq - 1))
                self._leave_bookmark()
            finally:
                self.abandon()

    def _leave_bookmark(self) -> None:
        """Say where the log ends, all of which `close` has synced, if nobody touched it or its lease."""
        with suppress(StoreError, OSError):
            self._allow()
            if self._fd is not None:
                self._lookup.let_go()
                self.bookmark = FileBookmark(
                    lease=self._lease.content,
                    left=self._left,
                    point=self._point,
                    lookup=self._lookup,
                    features=self._features,
                )

    def abandon(self) -> None:
        """Give everything back at once; for a writer that nobody will ever use."""
        self._dead = self._dead or (LeaseLost, f"the writer of {self._path} is closed. Nothing was written.")
        fd, self._fd = self._fd, None
        self._syncs.leave(self)
        try:
            if fd is not None:
                self._disk.close(fd)
        finally:
            self._lease.release()

    def _allow(self) -> None:
        """Everything that must hold before a byte is written: we are alive, the lease is ours, the file is as we left it."""
        self.check()
        if self._fd is None:
            return
        try:
            found = self._disk.status(self._fd)
            intact = found.st_size == self._point.offset and marks_of(found)[:WRITTEN_MARKS] == self._left[:WRITTEN_MARKS]
            intact = intact and same_file(found, self._disk.status_of(self._at))
        except OSError:
            intact = False
        if not intact:
            what = "changed under its writer: another program wrote to it or replaced it. Nothing was written."
            self._dead = ForeignWrite, f"{self._path} {what} Find that program, then look with `semel verify`."
            self.check()

    def _encode(self, batch: Sequence[Payload], at_ms: int | None) -> Encoded:
        stamp = self._clock.now_ms() if at_ms is None else at_ms
        encoded = encode_frames(batch, self._point, at_ms=stamp, fence=self.fence, synced=max(self._durable, 0))
        return within_ceiling(encoded, self.ceiling_bytes, str(self._path))

    def _write(self, batch: Sequence[Payload], at_ms: int | None) -> Sequence[Frame]:
        """One write at the end of the file, taken back if it fails; the floor comes first (W16)."""
        encoded = self._encode(batch, at_ms)
        required = {name for frame in encoded.frames for name in frame.requires}
        self._floor.raise_to(required)
        self._features |= required
        fd = self._file()
        try:
            self._disk.write(fd, encoded.data)
            self._left = marks_of(self._disk.status(fd))
        except OSError as error:
            self._take_back(fd, error)
        except BaseException as error:  # noqa: BLE001  _poison raises it again
            self._poison("a write was interrupted", error)
        self._point = encoded.point
        self._lookup.add(encoded.frames)
        return encoded.frames

    def _file(self) -> int:
        """The log file; made by the first write of a new session."""
        if self._fd is None:
            with naming("make", self._path), self._place.open() as directory:
                flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL
                self._fd = open_private(self._disk, Place.LOG, directory, flags, self._path)
                self._left = marks_of(self._disk.status(self._fd))
        return self._fd

    def _take_back(self, fd: int, error: OSError) -> NoReturn:
        """After a failed write: cut what arrived of it, durably, so that the log ends with its last good frame."""
        try:
            self._disk.truncate(fd, self._point.offset)
            self._disk.sync(fd)
            self._left = marks_of(self._disk.status(fd))
        except BaseException as second:  # noqa: BLE001  _poison raises it again
            self._poison(f"a write failed ({error.strerror}) and could not be taken back", second)
        if not self._parents_pending:
            self._durable = self._point.seq - 1
        raise AppendRefused(f"could not write to {self._path}: {error.strerror}. It ends with its last good record.") from error

    def _sync(self, upto: int) -> None:
        """Make everything up to the seq `upto` durable. May run in a thread, while the loop notes more."""
        if self._fd is not None:
            try:
                self._disk.sync(self._fd)
            except BaseException as error:  # noqa: BLE001  _poison raises it again
                self._poison("a sync failed", error)
        self._durable = max(self._durable, upto)

    def _sync_parents(self) -> None:
        """Make the file's name durable, once after every open; until that succeeds no barrier does (W25, W26)."""
        try:
            self._place.sync_parents()
        except NotSynced as error:
            what = f"could not sync the directories of {self._path}: {error.strerror}: {error.directory}"
            raise AppendRefused(f"{what}. {error.cure}. Nothing was written.") from error
        except OSError as error:
            raise AppendRefused(f"could not sync the directories of {self._path}: {error.strerror}. Try again.") from error
        self._parents_pending = False

    def _poison(self, what: str, error: BaseException) -> NoReturn:
        """Accept nothing more: what is on disk is doubtful, and a second sync could claim what the first one lost."""
        message = f"{self._path}: {what}: {error}. Nothing more is accepted; open the session again to see what is there."
        self._dead = WriterPoisoned, message
        if isinstance(error, Exception):
            raise WriterPoisoned(message) from error
        raise error

    async def _do(self, work: Callable[[], None]) -> None:
        if self.inline and self._syncs.alone(self):
            work()
        else:
            await self._syncs.do(work)
