"""THE rule: append and sync, and only then act or tell (B3, B16, design 2). The only caller of the log's `append` and `note`.

A commit is folded before it is written, so that a record which would contradict the log is refused while that costs nothing; it
is decoded again, too, so that nothing is written which no build could read. The state becomes current, and listeners hear of it,
only after the sync. One commit at a time, each to its end: a caller that is cancelled leaves a barrier that knows what it wrote.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

from msgspec.structs import replace

from semel.core.ceiling import dispensable, framed_bytes, has_ended_full, reserve_bytes
from semel.core.codec import decode, encode_checked
from semel.core.features import foreseen
from semel.core.fold import fold
from semel.core.frame import Frame
from semel.core.header import encode_lineage
from semel.core.records import Record, RunFinished, RunStarted
from semel.core.state import Logged, Session
from semel.engine.feed import Committed, Feed
from semel.engine.waiting import to_its_end
from semel.errors import AppendRefused, CorruptLog, SessionFull, StoreError
from semel.ports.blobs import Blobs
from semel.ports.log import LogWriter, Payload
from semel.ports.world import Clock

RETRY_SECONDS = (0.05, 0.2, 0.5, 1.0, 2.0)
"""How long an outcome in memory waits for a log that refused it without harm, as a full disk does; then the run gives up."""

RECENT_RECORDS = 64
"""So many records are at hand without reading them again: more than a turn has, whose messages the next request shows."""


class Barrier:
    """The durable state of one session and the only door to its log."""

    def __init__(self, writer: LogWriter, feed: Feed, clock: Clock, state: Session, *, new: bool) -> None:
        """`state` is what the writer's frames fold to; `new` says that there are none yet."""
        self.state = state
        self.digest = writer.digest
        self._writer = writer
        self._feed = feed
        self._clock = clock
        self._held: list[Record] = []
        self._noted: list[Logged] = []
        self._noted_frames: list[Frame] = []
        self._waiting_notes: list[Record] = []
        self._one_at_a_time = asyncio.Lock()
        self._lineage_due = new
        self._recent: tuple[Logged, ...] = ()

    @property
    def blobs(self) -> Blobs:
        """The files of the session; put before the record that names them."""
        return self._writer.blobs

    def hold(self, records: Sequence[Record]) -> None:
        """Keep records for the next commit; a death may lose them, so nothing may depend on them (design 14)."""
        self._held.extend(records)

    async def commit(self, records: Sequence[Record]) -> None:
        """Make records durable. Returns after the sync; an error means that nothing may be acted upon.

        Raises SessionFull, with nothing written, where the log would grow into its reserve.
        """
        if records:
            await self.commit_chosen(lambda _state: records)

    async def commit_chosen(self, choose: Callable[[Session], Sequence[Record]]) -> None:
        """Make durable what `choose` says for the state that no other commit can change any more."""
        await to_its_end(self._commit(choose), at_once=self._writer.inline)

    def note(self, record: Record) -> None:
        """Write a record that only matters while this machine is up: a process death keeps it, a power loss may not (LOG-7).

        It counts in the state from the next commit on, which makes it durable. Raises CorruptLog, and writes nothing, where it
        contradicts the log. One that is told of during a commit is dropped then, and waits for the next commit where the log does
        not take it. In a full log, only what the reserve has room for is written: the first mark of each call, but not of those
        that run again.
        """
        if self._one_at_a_time.locked():
            self._waiting_notes.append(record)
        else:
            self._write_note(record)

    def record(self, seq: int) -> Record | None:
        """The record of a seq up to the state's head, for a message that the state only names. Raises LogDamaged."""
        recent = self._recent
        if recent and recent[0].seq <= seq <= recent[-1].seq:
            return recent[seq - recent[0].seq].record
        return decode(self._writer.frame(seq), f"session {self.state.session!r}")

    def let_go(self) -> None:
        """The session is given back: keep the state, and no record."""
        self._recent = ()

    async def settled(self) -> None:
        """Wait for the commit that is under way, if one is: what it makes durable comes before what is done behind this."""
        if self._one_at_a_time.locked():
            async with self._one_at_a_time:
                pass

    def check_tenure(self) -> None:
        """Raise LeaseLost unless this process still holds the session; asked immediately before each dispatch (P8)."""
        self._writer.check()

    def publish_status(self, status: bytes) -> None:
        """Replace status.json; only after the sync of what it describes."""
        self._writer.publish_status(status)

    async def _commit(self, choose: Callable[[Session], Sequence[Record]]) -> None:
        async with self._one_at_a_time:
            self._write_waiting_notes()
            try:
                records = choose(self.state)
                if records:
                    await self._append((*self._held, *records), held=len(self._held))
            finally:
                self._write_waiting_notes()

    async def _append(self, batch: Sequence[Record], *, held: int) -> None:
        at_ms = self._clock.now_ms()
        after, payloads, places = self._admitted(batch, at_ms)
        if not payloads:  # all of it was dispensable in a full log
            del self._held[:held]
            return
        for record in batch:
            if coming := foreseen(record):
                self._writer.foresee(coming)
        frames = await self._write(payloads, at_ms)
        self._lineage_due = False
        recent = (*self._recent, *self._noted, *places)
        self._recent = recent[-RECENT_RECORDS:]
        del self._held[:held]
        self.digest = frames[-1].digest
        self.state = replace(after, digest=self.digest)
        self._feed.publish(*[Committed(frame=frame) for frame in (*self._noted_frames, *frames) if frame.seq > 0])
        self._noted.clear()
        self._noted_frames.clear()

    def _admitted(self, batch: Sequence[Record], at_ms: int) -> tuple[Session, list[Payload], list[Logged]]:
        """The state behind this batch, the batch as payloads, and where its records come to stand.

        What is dispensable is left out where only the reserve is left.

        Raises SessionFull where even that would leave less than is needed to close the session (W11, W12).
        """
        places, payloads = self._placed(batch, at_ms)
        after = fold((*self._noted, *places), self.state)
        if payloads and self._lineage_due:
            payloads.insert(0, Payload(json=encode_lineage(self.state.lineage, self.state.session), lineage=True))
        if not payloads or (self._fits(after, payloads) and not (_opens(batch) and has_ended_full(self.state))):
            return after, payloads, places
        needed = [record for record in batch if not dispensable(record)]
        if len(needed) < len(batch):
            return self._admitted(needed, at_ms)
        raise SessionFull(
            f"session {self.state.session!r} is full: its log has {self._writer.size_bytes} bytes, its ceiling is "
            f"{self._writer.ceiling_bytes}, and {reserve_bytes(self.state)} are kept to close it. "
            f"Nothing was written. Start a new session."
        )

    def _fits(self, after: Session, payloads: Sequence[Payload]) -> bool:
        growth = sum([framed_bytes(len(payload.json), payload.requires) for payload in payloads])
        return self._writer.size_bytes + growth + reserve_bytes(after) <= self._writer.ceiling_bytes

    async def _write(self, payloads: Sequence[Payload], at_ms: int) -> Sequence[Frame]:
        for seconds in RETRY_SECONDS:
            try:
                return await self._writer.append(payloads, at_ms=at_ms)
            except AppendRefused as error:
                if not isinstance(error.__cause__, OSError):
                    raise  # what is wrong with the batch itself does not pass
                await self._clock.sleep(seconds)
        return await self._writer.append(payloads, at_ms=at_ms)

    def _write_waiting_notes(self) -> None:
        """Write what was told of during a commit. What the log does not take now waits for the next commit.

        It raises nothing: it would take the place of what became of the commit, whose records may be durable.
        """
        while self._waiting_notes:
            try:
                with suppress(CorruptLog):  # of a call that the commit closed
                    self._write_note(self._waiting_notes[0])
            except StoreError:
                return
            del self._waiting_notes[0]

    def _write_note(self, record: Record) -> None:
        at_ms = self._clock.now_ms()
        places, payloads = self._placed((record,), at_ms)
        if not self._fits(fold((*self._noted, *places), self.state), payloads):
            return
        self._noted_frames.extend(self._writer.note(payloads, at_ms=at_ms))
        self._noted.extend(places)

    def _placed(self, batch: Sequence[Record], at_ms: int) -> tuple[list[Logged], list[Payload]]:
        """Records as whoever reads the log will find them, and as what is written."""
        head, fence = self._writer.head, self._writer.fence
        if head != self.state.head + len(self._noted):
            self._writer.check()  # a write that failed left frames that nobody counts: the writer says why it takes no more
        places: list[Logged] = []
        payloads: list[Payload] = []
        for seq, record in enumerate(batch, start=head + 1):
            json, requires, found = encode_checked(record)
            payloads.append(Payload(json=json, requires=requires))
            places.append(Logged(seq=seq, at_ms=at_ms, fence=fence, record=found, requires=requires))
        return places, payloads


def _opens(batch: Sequence[Record]) -> bool:
    """Whether a run is open behind these records that was not before."""
    started = any(isinstance(record, RunStarted) for record in batch)
    return started and not any(isinstance(record, RunFinished) for record in batch)
