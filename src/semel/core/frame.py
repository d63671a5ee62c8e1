"""The text frame: frames <-> bytes (design 3 and 14), as functions of bytes without a disk.

One frame is one line, whose header `core.header` describes. Its `sha256` covers the digest of the frame before (64 zeros at
first), the line up to and including the space before the digest, and the JSON, so the last digest names the whole history.
The lineage line is exactly the frame at offset 0. What may lie behind the last good frame is the business of `core.tail`.
"""

import hashlib
import zlib
from collections.abc import Sequence
from typing import ClassVar, Protocol

import msgspec

from semel.core.header import (
    FEATURE_NAME,
    PAYLOAD_BYTES_MAX,
    Lineage,
    Point,
    decode_lineage,
    encode_lineage,
    number_in,
)
from semel.core.tail import Tail, TailKind, judge
from semel.core.values import Frozen
from semel.errors import AppendRefused, SessionFull

__all__ = [
    "PAYLOAD_BYTES_MAX",
    "Encoded",
    "Frame",
    "Lineage",
    "Point",
    "Scan",
    "Tail",
    "TailKind",
    "encode_frames",
    "encode_lineage",
    "incomplete",
    "line_of",
    "scan",
    "synced_upto",
    "within_ceiling",
    "witnessed",
]


class Frame(Frozen, frozen=True, kw_only=True):
    """One good frame. `digest` names the whole history up to it; `offset` is where its line starts."""

    ver: int
    seq: int
    at_ms: int
    fence: int
    synced: int
    left: int
    requires: tuple[str, ...]
    digest: str
    payload: bytes
    offset: int
    torn: ClassVar[bool] = False
    """A frame by itself is taken as one of a whole write; `incomplete` tells which are not."""


class Scan(Frozen, frozen=True, kw_only=True):
    """All good frames, what lies behind them, where the log stands between the two, and the features that the frames require."""

    frames: tuple[Frame, ...]
    tail: Tail
    point: Point
    features: frozenset[str] = frozenset()


class _Witness(msgspec.Struct):
    head_seq: int = 0


class Encoded(Frozen, frozen=True, kw_only=True):
    """A batch as bytes, its frames as a reader will find them, and where the log then stands."""

    data: bytes
    frames: tuple[Frame, ...]
    point: Point


class Unframed(Protocol):
    """A payload on its way into a log; `ports.log.Payload` is one."""

    @property
    def json(self) -> bytes:
        """The record as one line of JSON."""

    @property
    def requires(self) -> Sequence[str]:
        """The features that a reader must know, sorted."""

    @property
    def lineage(self) -> bool:
        """Whether this is the lineage line."""


def encode_frames(batch: Sequence[Unframed], after: Point, *, at_ms: int, fence: int, synced: int) -> Encoded:
    """Frame a batch as one write behind `after`; `synced` is the highest seq known durable now, 0 if none.

    Raises AppendRefused for a batch that no log may hold; nothing can have been written then (LOG-3).
    """
    if not batch:
        raise AppendRefused("an empty batch was to be appended")
    parts: list[bytes] = []
    frames: list[Frame] = []
    offset, digest, previous, stamp = after.offset, after.digest, after.digest.encode(), f"{at_ms} {fence} {synced}"
    seq, left = after.seq, len(batch)
    for payload in batch:
        _refuse_payload(payload, seq)
        left, json, requires = left - 1, payload.json, tuple(payload.requires)
        size = len(json)
        ver = 2 if seq == 0 else 3 if requires else 1
        head = f"{ver} {seq} {stamp} {left} {size} {','.join(requires) if requires else '-'} ".encode()
        head = b"%b%08x " % (head, zlib.crc32(head))
        digester = hashlib.sha256(previous + head)
        digester.update(json)
        digest = digester.hexdigest()
        previous = digest.encode()
        parts += (head, previous, b" ", json, b"\n")
        frames.append(
            Frame(
                ver=ver,
                seq=seq,
                at_ms=at_ms,
                fence=fence,
                synced=synced,
                left=left,
                requires=requires,
                digest=digest,
                payload=json,
                offset=offset,
            )
        )
        offset += len(head) + size + 66  # the digest, a space, a newline
        seq += 1
    lineage = decode_lineage(batch[0].json) if after.seq == 0 else after.lineage
    point = Point(offset=offset, seq=seq, digest=digest, fence=fence, synced=synced, lineage=lineage)
    return Encoded(data=b"".join(parts), frames=tuple(frames), point=point)


def line_of(frame: Frame) -> bytes:
    """The bytes of a good frame in its log."""
    requires = ",".join(frame.requires) or "-"
    numbers = f"{frame.ver} {frame.seq} {frame.at_ms} {frame.fence} {frame.synced} {frame.left} {len(frame.payload)}"
    head = f"{numbers} {requires} ".encode()
    return b"%b%08x %b %b\n" % (head, zlib.crc32(head), frame.digest.encode(), frame.payload)


def within_ceiling(encoded: Encoded, ceiling_bytes: int, where: str) -> Encoded:
    """The batch, if the log `where` may become as long as that. Raises SessionFull; nothing can have been written then (W10)."""
    if encoded.point.offset > ceiling_bytes:
        raise SessionFull(
            f"{where} would grow to {encoded.point.offset} bytes; {ceiling_bytes} is its ceiling. Nothing was written."
        )
    return encoded


def _refuse_payload(payload: Unframed, seq: int) -> None:
    size = len(payload.json)
    if size > PAYLOAD_BYTES_MAX:
        raise AppendRefused(f"record {seq} has {size} bytes; a record may have {PAYLOAD_BYTES_MAX}")
    if not size or b"\n" in payload.json or b"\0" in payload.json:
        raise AppendRefused(f"record {seq} is not one line of JSON")
    names = payload.requires
    if names and (list(names) != sorted(set(names)) or not all(FEATURE_NAME.fullmatch(name) for name in names)):
        raise AppendRefused(f"record {seq} requires {list(names)}, which are not sorted feature names")
    if payload.lineage != (seq == 0):
        raise AppendRefused(f"record {seq} {'is a' if payload.lineage else 'has no'} lineage line; a log starts with exactly one")
    if payload.lineage and (names or decode_lineage(payload.json) is None):
        raise AppendRefused("the lineage line does not say {type, lineage, session}, or it requires features")


def good_frames(data: bytes, start: Point, at: int = 0) -> tuple[list[Frame], Point]:
    """The good frames of `data` from `at`, which lies at `start.offset` of the log, and where the log stands behind them.

    A frame is good if it is proven, its digest right, its newline in its place, its seq the next, its fence and synced not
    below those before, synced < seq, and `requires` is `-` exactly when ver is not 3.

    This is the one loop over every byte of a log. So a header is compared with the only bytes that would be right where that
    decides, and what the frames of one write have in common is parsed once.
    """
    frames: list[Frame] = []
    base = start.offset - at
    find, crc32, sha256, numbers, features = data.find, zlib.crc32, hashlib.sha256, _Numbers(), _Features()
    position, seq, previous, lineage = at, start.seq, start.digest.encode(), start.lineage
    at_ms, fence, synced = 0, start.fence, start.synced
    at_stamp = fence_stamp = synced_stamp = b" "  # which no field can be; it can be empty
    while (end := find(b"\n", position)) >= 0:
        fields = data[position:end].split(b" ", 10)
        if len(fields) < 11:
            break
        ver, number, at_text, fence_text, synced_text, left_text, size, requires, check, claimed, payload = fields
        length = len(payload)
        head = data[position : end - length - 65]
        if check != b"%08x" % crc32(head[:-9]) or number != b"%d" % seq or numbers[size] != length:
            break
        digester = sha256(previous + head)
        digester.update(payload)
        digest = digester.hexdigest()
        if claimed != digest.encode() or ver != (b"2" if seq == 0 else b"1" if requires == b"-" else b"3"):
            break
        if at_text != at_stamp or fence_text != fence_stamp or synced_text != synced_stamp:
            at_stamp, fence_stamp, synced_stamp = at_text, fence_text, synced_text
            at_ms, fence_now, synced_now = number_in(at_text), numbers[fence_text], number_in(synced_text)
            if at_ms < 0 or fence_now < fence or not synced <= synced_now < (seq or 1):
                break
            fence, synced = fence_now, synced_now
        left, names = numbers[left_text], features[requires]
        if left < 0 or names is None or length > PAYLOAD_BYTES_MAX:
            break
        if seq == 0 and (names or (lineage := decode_lineage(payload)) is None):
            break
        frames.append(
            Frame(
                ver=1 if ver == b"1" else int(ver),
                seq=seq,
                at_ms=at_ms,
                fence=fence,
                synced=synced,
                left=left,
                requires=names,
                digest=digest,
                payload=payload,
                offset=base + position,
            )
        )
        position, previous, seq = end + 1, claimed, seq + 1
    return frames, _point_behind(frames, start, base + position, lineage)


class _Numbers(dict[bytes, int]):
    """Header numbers that come again and again, by their text; -1 for what is none."""

    def __missing__(self, text: bytes) -> int:
        self[text] = number = number_in(text)
        return number


class _Features(dict[bytes, tuple[str, ...] | None]):
    """Lists of features by their text, empty for `-`; None for what is no sorted list of names."""

    def __missing__(self, text: bytes) -> tuple[str, ...] | None:
        names = text.decode("latin-1").split(",")
        legal = names == sorted(set(names)) and all(map(FEATURE_NAME.fullmatch, names))
        self[text] = () if text == b"-" else tuple(names) if legal else None
        return self[text]


def _point_behind(frames: list[Frame], start: Point, offset: int, lineage: Lineage | None) -> Point:
    if not frames:
        return start
    last = frames[-1]
    return Point(offset=offset, seq=last.seq + 1, digest=last.digest, fence=last.fence, synced=last.synced, lineage=lineage)


def incomplete(frames: Sequence[Frame]) -> frozenset[int]:
    """The seqs of every frame whose write never reached its end: never acknowledged as a batch, so never acted upon.

    A write is complete when frames of the same fence count `left` down to 0 without a gap; what a later tenure writes never
    completes the write of an earlier one. The last write of the log counts too.
    """
    found: list[int] = []
    start, due, fence = -1, 0, 0  # of the write that still waits for frames: its first, how many are due, its tenure
    for at, frame in enumerate(frames):
        left = frame.left
        if start >= 0 and (left != due or frame.fence != fence):
            found.extend(lost.seq for lost in frames[start:at])
            start = -1
        if not left:
            start = -1
            continue
        if start < 0:
            start, fence = at, frame.fence
        due = left - 1
    if start >= 0:
        found.extend(lost.seq for lost in frames[start:])
    return frozenset(found)


def synced_upto(frames: Sequence[Frame]) -> int:
    """The highest seq that the frames themselves say was durable; 0 if they say nothing."""
    return frames[-1].synced if frames else 0


def scan(data: bytes, anchor: int = 0, start: Point | None = None) -> Scan:
    """Read a log. `anchor` is the highest seq that any outside witness calls durable; a log that lacks it is damaged.

    `data` is the whole log, or what lies behind `start`. Never raises: damage and newer writers are what `tail` says.
    """
    frames, point = good_frames(data, start or Point())
    return Scan(
        frames=tuple(frames),
        tail=judge(data, (start or Point()).offset, point, anchor),
        point=point,
        features=frozenset().union(*{frame.requires for frame in frames}),
    )


def witnessed(status: bytes | None) -> int:
    """The seq that a status document calls durable; 0 if it says nothing that can be read."""
    try:
        return max(0, msgspec.json.decode(status or b"{}", type=_Witness).head_seq)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return 0
