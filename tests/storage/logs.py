"""A reference log with everything that a log can hold, and what the sweeps over its bytes count."""

from collections.abc import Sequence
from dataclasses import dataclass

from semel.core.behind import proven_behind
from semel.core.frame import Frame, Point, encode_frames, encode_lineage
from semel.core.header import Proven
from semel.ports.log import Payload

LINEAGE = "000102030405060708090a0b0c0d0e0f"
SESSION = "box"
START_MS = 1767225600000


@dataclass(frozen=True)
class Write:
    """One write of a log: its frames, and whether a sync followed it (so that it was acknowledged)."""

    frames: tuple[Frame, ...]
    data: bytes
    synced: bool


@dataclass(frozen=True)
class Log:
    writes: tuple[Write, ...]

    @property
    def data(self) -> bytes:
        return b"".join(write.data for write in self.writes)

    @property
    def frames(self) -> tuple[Frame, ...]:
        return tuple(frame for write in self.writes for frame in write.frames)

    @property
    def boundaries(self) -> list[int]:
        """Where frames start, and the end."""
        return [*(frame.offset for frame in self.frames), len(self.data)]


def lineage_payload(session: str = SESSION, lineage: str = LINEAGE) -> Payload:
    return Payload(json=encode_lineage(lineage, session), lineage=True)


def payload(size: int, tag: str = "note", requires: tuple[str, ...] = ()) -> Payload:
    """A payload of `size` bytes or a little more, in which every printable kind of byte occurs."""
    filler = ('0123456789 "abc" {x: [1, 2]} äöü 日本 @@ ```' * (size // 20 + 1)).replace('"', "'")[: max(size - 30, 1)]
    return Payload(json=f'{{"type":"{tag}","text":"{filler}"}}'.encode(), requires=requires)


def build(plan: Sequence[tuple[Sequence[Payload], int, bool]], *, start: Point | None = None, durable: int = 0) -> Log:
    """A log from writes, each (payloads, fence, whether a sync follows)."""
    point, writes = start or Point(), []
    for number, (batch, fence, synced) in enumerate(plan):
        encoded = encode_frames(batch, point, at_ms=START_MS + number, fence=fence, synced=durable)
        writes.append(Write(encoded.frames, encoded.data, synced))
        point = encoded.point
        if synced:
            durable = point.seq - 1
    return Log(tuple(writes))


def reference_log(*, lineage: str = LINEAGE, size: int = 120) -> Log:
    """27 frames in 12 writes: three tenures, gated records, notes, batches of up to five, one of 4 KiB."""
    gated = ("early-return/v1", "terminate/v1")
    return build(
        [
            ([lineage_payload(lineage=lineage), payload(size), payload(20)], 1, True),
            ([payload(size), payload(60), payload(size), payload(40)], 1, True),
            ([payload(30)], 1, False),
            ([payload(size, "ü"), payload(size * 2)], 1, True),
            ([payload(40), payload(40), payload(40), payload(40), payload(40)], 3, True),
            ([payload(size, requires=gated)], 3, True),
            ([payload(20)], 3, False),
            ([payload(25)], 3, False),
            ([payload(size), payload(size, requires=gated[:1]), payload(10)], 3, True),
            ([payload(size * 8)], 12, True),
            ([payload(size), payload(30)], 12, True),
            ([payload(33), payload(size), payload(20)], 12, True),
        ]
    )


def behind(data: bytes, offset: int) -> tuple[Proven, ...]:
    """The proven headers behind a byte of a log that is in memory."""
    return proven_behind(lambda at, limit: data[at : at + limit], offset).listed
