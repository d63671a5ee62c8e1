"""A store in memory, held to the same contract as the file store, whose processes can die.

A `Medium` is what outlives a process: the bytes of the logs, and how much of them a sync has covered. Each `MemoryStore` on
it is one process; `crash` ends that process, with or without the power.
"""

import errno
import hashlib
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from msgspec.structs import replace

from semel.adapters.memory.blobs import MemoryBlobs
from semel.core.ceiling import CEILING_BYTES
from semel.core.frame import Frame, Point, Scan, encode_frames, scan, within_ceiling, witnessed
from semel.core.lookup import Lookup
from semel.core.reading import verified
from semel.errors import (
    AppendRefused,
    ForeignWrite,
    LeaseLost,
    NewerWriter,
    SessionBusy,
    StoreError,
    UnknownSession,
    WriterPoisoned,
    must,
)
from semel.ports.floor import FeatureFloor
from semel.ports.log import Bookmark, Payload, TakeFrames, View
from semel.ports.world import Clock


@dataclass(slots=True)
class MemoryLog:
    """One session on a medium. `synced_bytes` of `data` survive a power loss; `torn` are tails that were cut."""

    data: bytearray = field(default_factory=bytearray)
    synced_bytes: int = 0
    fence: int = 0
    status: bytes | None = None
    torn: list[bytes] = field(default_factory=list)
    holder: "MemoryWriter | None" = None
    blobs: dict[str, bytes] = field(default_factory=dict)
    remembered: tuple[str, bytes] | None = None


@dataclass(frozen=True, kw_only=True)
class MemoryBookmark:
    """Implements `ports.log.Bookmark`; `mark` is that of the whole log up to here, `fence` that of the tenure that left it."""

    mark: str
    fence: int
    point: Point
    lookup: Lookup
    features: frozenset[str]

    @property
    def digest(self) -> str:
        """The digest of the last frame."""
        return self.point.digest

    def witness(self, fence: int) -> int:
        """The highest record that is durable as this process knows, where the last tenure was ours; else 0."""
        return self.point.seq - 1 if fence == self.fence else 0

    def stands(self, data: bytes) -> bool:
        """Whether the log goes on from here."""
        return hashlib.sha256(data[: self.point.offset]).hexdigest() == self.mark


class Medium:
    """What the processes on one machine share: the logs, and the features that any of them may need.

    `fault` makes the next write or sync of any log fail, once. A floor that is None cannot be read.
    """

    def __init__(self) -> None:
        """Empty and sound."""
        self.logs: dict[str, MemoryLog] = {}
        self.floor: frozenset[str] | None = frozenset()
        self.mutex = threading.Lock()
        self.fault: Literal["write", "sync"] | None = None

    def fails(self, call: Literal["write", "sync"]) -> bool:
        """Whether this call is the one to fail."""
        hit = self.fault == call
        if hit:
            self.fault = None
        return hit


class MemoryFloor:
    """The floor of a medium; implements `ports.floor.FeatureFloor`."""

    def __init__(self, medium: Medium | None = None) -> None:
        """A medium of its own if none is given."""
        self._medium = medium or Medium()

    def names(self) -> frozenset[str]:
        """The names it holds now."""
        if self._medium.floor is None:
            raise StoreError("the feature floor cannot be read")
        return self._medium.floor

    def raise_to(self, names: Iterable[str]) -> None:
        """Add names."""
        with self._medium.mutex:
            self._medium.floor = self.names() | frozenset(names)


class MemoryStore:
    """One process on a medium; implements `ports.log.SessionStore`."""

    def __init__(
        self, clock: Clock, *, known: frozenset[str], medium: Medium | None = None, ceiling_bytes: int = CEILING_BYTES
    ) -> None:
        """`known` are the features that this build can interpret; without a `medium` it has its own."""
        self.ceiling_bytes = ceiling_bytes
        self.medium = medium or Medium()
        self.floor: FeatureFloor = MemoryFloor(self.medium)
        self._clock, self._known = clock, known
        self._writers: list[MemoryWriter] = []

    def sessions(self) -> Sequence[str]:
        """The ids of all sessions, sorted."""
        return sorted(session for session in self.medium.logs if self.exists(session))

    def strays(self) -> Mapping[str, StoreError]:
        """Memory has none."""
        return {}

    def exists(self, session: str) -> bool:
        """Whether the session has a log."""
        return session in self.medium.logs and bool(self.medium.logs[session].data)

    def made_here(self, session: str) -> bool:
        """Memory is nobody else's."""
        return self.exists(session)

    def owner(self, session: str) -> str | None:
        """Who holds the lease now, in words; None if nobody does."""
        log = self.medium.logs.get(session)
        return None if log is None or log.holder is None else "a process in memory"

    async def open(self, session: str, *, take: TakeFrames | None = None, bookmark: Bookmark | None = None) -> "MemoryWriter":
        """Take the lease, verify, cut a torn tail, and return the writer."""
        self._refuse_newer_floor()
        log = self.medium.logs.setdefault(session, MemoryLog())
        if log.holder is not None:
            raise SessionBusy(f"session {session!r} is in use by {self.owner(session)}. Wait until it is done.")
        data, where = bytes(log.data), f"the log of {session!r}"
        left = bookmark if isinstance(bookmark, MemoryBookmark) else None
        start = left if left is not None and left.stands(data) else None
        point = None if start is None else start.point
        found = verified(
            data[0 if point is None else point.offset :],
            session,
            where,
            self._known,
            anchor=max(witnessed(log.status), 0 if left is None else left.witness(log.fence)),
            start=point,
        )
        lookup = Lookup(where) if start is None else start.lookup.copy()
        lookup.add(found.frames)
        if take is not None and found.frames:
            take(found.frames)
        found = replace(
            found,
            frames=() if take is not None else found.frames,
            features=found.features if start is None else found.features | start.features,
        )
        log.fence = max(log.fence, found.point.fence) + 1
        if len(log.data) > found.tail.offset:
            log.torn.append(bytes(log.data[found.tail.offset :]))
            del log.data[found.tail.offset :]
        log.synced_bytes = len(log.data)
        self.floor.raise_to(found.features)
        writer = MemoryWriter(self, session, found, lookup=lookup, clock=self._clock)
        log.holder = writer
        self._writers.append(writer)
        return writer

    def read(self, session: str, after: int = -1, *, take: TakeFrames | None = None) -> View:
        """Frames with seq > `after` that can never vanish; raises UnknownSession if there is no log."""
        log = self.medium.logs.get(session)
        if log is None or not (log.data or witnessed(log.status)):
            raise UnknownSession(f"there is no session {session!r}")
        self._refuse_newer_floor()
        if log.holder is None:
            log.synced_bytes = scan(bytes(log.data)).tail.offset
        found = verified(bytes(log.data), session, f"the log of {session!r}", self._known, anchor=witnessed(log.status))
        shown = [frame for frame in found.frames if frame.offset < log.synced_bytes]
        frames = tuple(frame for frame in shown if frame.seq > after)
        mark = _mark(log) if len(shown) == len(found.frames) and found.tail.offset == len(log.data) else None
        if take is not None and frames:
            take(frames)
        head = shown[-1].seq if shown else 0
        return View(frames=frames if take is None else (), head=head, owner=self.owner(session), mark=mark)

    def blobs(self, session: str) -> MemoryBlobs:
        """The blobs of a session, for reading."""

        def refuse() -> None:
            raise LeaseLost("only who holds the session's lease may change its blobs. Nothing was written.")

        return MemoryBlobs(self.medium.logs.setdefault(session, MemoryLog()).blobs, refuse)

    def mark(self, session: str) -> str | None:
        """Stands for the bytes of the log as they are."""
        return _mark(self.medium.logs[session]) if self.exists(session) else None

    def recall(self, session: str) -> bytes | None:
        """What was remembered of a log that is still the same."""
        log = self.medium.logs.get(session)
        known = None if log is None else log.remembered
        return known[1] if log is not None and known is not None and known[0] == _mark(log) else None

    def remember(self, session: str, mark: str, content: bytes) -> None:
        """Keep what was derived from a log."""
        self.medium.logs[session].remembered = (mark, content)

    def remembered(self, session: str) -> int:
        """The highest record that the status calls durable."""
        return witnessed(self.read_status(session))

    @property
    def index_faults(self) -> Sequence[str]:
        """Memory has none."""
        return ()

    def read_status(self, session: str) -> bytes | None:
        """The last published status document."""
        return self.medium.logs[session].status if session in self.medium.logs else None

    def _refuse_newer_floor(self) -> None:
        """A build that lacks a feature of the floor may not use this medium at all (W18)."""
        lacking = sorted(self.floor.names() - self._known)
        if lacking:
            raise NewerWriter("the medium", lacking)

    def crash(self, *, lose_unsynced: bool = False) -> None:
        """End this process: its writers hold nothing any more. With `lose_unsynced` the machine lost power, and all ended."""
        for log in self.medium.logs.values():
            if log.holder is not None and (lose_unsynced or log.holder in self._writers):
                log.holder.die()
            if lose_unsynced:
                del log.data[log.synced_bytes :]
        self._writers.clear()


class MemoryWriter:
    """Implements `ports.log.LogWriter`. Made by `MemoryStore.open`."""

    inline = False  # a test may make it wait wherever it likes

    def __init__(self, store: MemoryStore, session: str, found: Scan, *, lookup: Lookup, clock: Clock) -> None:
        """`found` is what the log holds, all of it durable; `lookup` knows its frames."""
        log = store.medium.logs[session]
        self.ceiling_bytes = store.ceiling_bytes
        self.frames: Sequence[Frame] = found.frames
        self.fence = log.fence
        self._log, self._session, self._point, self._lookup = log, session, found.point, lookup
        self._medium, self._floor, self._clock = store.medium, store.floor, clock
        self.blobs = MemoryBlobs(log.blobs, self.check)
        self._durable = found.point.seq - 1
        self._features = found.features
        self.bookmark: MemoryBookmark | None = None
        self._dead: tuple[type[StoreError], str] | None = None

    @property
    def head(self) -> int:
        """The seq of the last frame written."""
        return max(self._point.seq - 1, 0)

    @property
    def size_bytes(self) -> int:
        """How long the log is."""
        return self._point.offset

    @property
    def digest(self) -> str:
        """The digest of the last frame written."""
        return self._point.digest

    async def append(self, batch: Sequence[Payload], *, at_ms: int | None = None) -> Sequence[Frame]:
        """Write `batch`, make it durable, and return its frames."""
        frames = self.note(batch, at_ms=at_ms)
        self._sync()
        return frames

    def note(self, batch: Sequence[Payload], *, at_ms: int | None = None) -> Sequence[Frame]:
        """Write `batch` without a sync."""
        self.check()
        if len(self._log.data) != self._point.offset:
            self._dead = ForeignWrite, f"the log of {self._session!r} changed under its writer. Nothing was written."
            self.check()
        synced = max(self._durable, 0)
        stamp = self._clock.now_ms() if at_ms is None else at_ms
        encoded = encode_frames(batch, self._point, at_ms=stamp, fence=self.fence, synced=synced)
        within_ceiling(encoded, self.ceiling_bytes, f"the log of {self._session!r}")
        required = {name for frame in encoded.frames for name in frame.requires}
        self._floor.raise_to(required)
        self._features |= required
        if self._medium.fails("write"):
            full = OSError(errno.ENOSPC, "no space left on the medium")
            raise AppendRefused(
                f"could not write to the log of {self._session!r}. It ends with its last good record, as before."
            ) from full
        self._log.data += encoded.data
        self._point = encoded.point
        self._lookup.add(encoded.frames)
        return encoded.frames

    def frame(self, seq: int) -> Frame:
        """The frame of that seq, read again."""
        return self._lookup.frame(seq, lambda offset, limit: bytes(self._log.data[offset : offset + limit]))

    def foresee(self, features: Sequence[str]) -> None:
        """Raise the floor now for frames that may come."""
        self.check()
        self._floor.raise_to(features)

    def check(self) -> None:
        """Raise LeaseLost unless this writer still holds the lease."""
        if self._dead is not None:
            error, message = self._dead
            raise error(message)
        if self._log.holder is not self:
            raise LeaseLost(f"the lease of session {self._session!r} is no longer ours. Nothing was written.")

    def publish_status(self, status: bytes) -> None:
        """Replace the session's status document."""
        self.check()
        must(witnessed(status) <= max(self._durable, 0), "a status names only what is durable", durable=self._durable)
        self._log.status = status

    async def close(self) -> None:
        """Make everything durable and give the lease back; idempotent."""
        try:
            if self._dead is None and self._log.holder is self:
                self._sync()
                self._leave_bookmark()
        finally:
            self.die()

    def _leave_bookmark(self) -> None:
        if self._log.data and len(self._log.data) == self._point.offset:
            self._lookup.let_go()
            self.bookmark = MemoryBookmark(
                mark=_mark(self._log), fence=self.fence, point=self._point, lookup=self._lookup, features=self._features
            )

    def die(self) -> None:
        """Hold nothing any more, as after the death of the process."""
        self._dead = self._dead or (LeaseLost, f"the writer of session {self._session!r} is closed. Nothing was written.")
        if self._log.holder is self:
            self._log.holder = None

    def _sync(self) -> None:
        if self._medium.fails("sync"):
            self._dead = WriterPoisoned, f"a sync of the log of {self._session!r} failed. Nothing more is accepted."
            self.check()
        self._durable = self._point.seq - 1
        self._log.synced_bytes = self._point.offset


def _mark(log: MemoryLog) -> str:
    return hashlib.sha256(log.data).hexdigest()
