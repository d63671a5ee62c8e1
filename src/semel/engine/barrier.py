"""THE rule: append and sync, and only then act or tell (B3, B16, design 2). The only caller of the log's `append` and `note`.

A commit is folded before it is written, so that a record which would contradict the log is refused while that costs nothing;
the state becomes current, and listeners hear of it, only after the sync.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from semel.core.codec import encode
from semel.core.features import foreseen
from semel.core.fold import fold
from semel.core.header import encode_lineage
from semel.core.records import Record
from semel.core.state import Logged, Session
from semel.engine.feed import Committed, Feed
from semel.ports.log import LogWriter, Payload
from semel.ports.world import Clock


class Barrier:
    """The state of one session and the only door to its log."""

    def __init__(self, writer: LogWriter, feed: Feed, clock: Clock, state: Session) -> None:
        """`state` is what `writer.frames` fold to."""
        self.state = state
        self._writer = writer
        self._feed = feed
        self._clock = clock
        self._held: list[Record] = []
        self._lineage_written = bool(writer.frames)

    @property
    def digest(self) -> str:
        """Names the whole history up to the head."""
        return self._writer.digest

    def hold(self, records: Sequence[Record]) -> None:
        """Keep records for the next commit; a death may lose them, so nothing may depend on them (design 14)."""
        self._held.extend(records)

    async def commit(self, records: Sequence[Record]) -> None:
        """Make records durable. Returns after the sync; an error means that nothing may be acted upon."""
        if not records:
            return
        batch = (*self._held, *records)
        at_ms = self._clock.now_ms()
        payloads = self._payloads(batch)
        after = self._fold(batch, payloads, at_ms)
        coming = {name for record in records for name in foreseen(record)}
        if coming:
            self._writer.foresee(sorted(coming))
        if not self._lineage_written:
            payloads.insert(0, Payload(json=encode_lineage(self.state.lineage, self.state.session), lineage=True))
        frames = await self._writer.append(payloads, at_ms=at_ms)
        self._lineage_written = True
        self._held.clear()
        self.state = replace(after, digest=frames[-1].digest)
        self._feed.publish(*(Committed(frame=frame) for frame in frames if frame.seq > 0))

    def note(self, record: Record) -> None:
        """Write a record that only matters while this machine is up: a process death keeps it, a power loss may not (LOG-7)."""
        at_ms = self._clock.now_ms()
        payloads = self._payloads((record,))
        after = self._fold((record,), payloads, at_ms)
        frames = self._writer.note(payloads, at_ms=at_ms)
        self.state = replace(after, digest=frames[-1].digest)

    def check_tenure(self) -> None:
        """Raise LeaseLost unless this process still holds the session; asked immediately before each dispatch (P8)."""
        self._writer.check()

    def publish_status(self, status: bytes) -> None:
        """Replace status.json; only after the sync of what it describes."""
        self._writer.publish_status(status)

    def _payloads(self, records: Sequence[Record]) -> list[Payload]:
        return [Payload(json=json, requires=requires) for json, requires in map(encode, records)]

    def _fold(self, records: Sequence[Record], payloads: Sequence[Payload], at_ms: int) -> Session:
        head, fence = self._writer.head, self._writer.fence
        places = (
            Logged(seq=head + place, at_ms=at_ms, fence=fence, record=record, requires=payload.requires)
            for place, (record, payload) in enumerate(zip(records, payloads, strict=True), start=1)
        )
        return fold(places, self.state)
