"""The tail rule (design 3): what lies behind the last good frame, and whether a crash of ours can have left it.

The obvious rule, "the last frame is short or wrong, so it was torn", silently drops acknowledged records when one bit of
their length flips. Here a tail is TORN only if every byte of it can be what an unsynced append leaves: the strict prefix of a
frame that may come next, holes where unwritten sectors were, and later lines that admit that nothing here was synced.
"""

import enum
import hashlib
import re
import zlib
from collections.abc import Iterator
from itertools import pairwise

from semel.core.header import (
    FEATURE_NAME,
    HEADER,
    NUMBER_LIMIT,
    PAYLOAD_BYTES_MAX,
    Lineage,
    Point,
    Proven,
    decode_lineage,
    number_in,
    proven,
)
from semel.core.values import Frozen

NEWER_WRITER = "newer_writer"
SECTOR_BYTES = 512
_HOLE = re.compile(rb"\0+")
_DIGITS_MAX = 19


class TailKind(enum.StrEnum):
    """What lies behind the last good frame."""

    CLEAN = "clean"
    TORN = "torn"
    DAMAGED = "damaged"


class Tail(Frozen, frozen=True, kw_only=True):
    """What lies behind the last good frame, which ends at `offset`. `reason` is empty when clean, else says why, in words."""

    kind: TailKind
    offset: int
    reason: str = ""


def judge(data: bytes, base: int, point: Point, anchor: int) -> Tail:
    """The rule itself. `base` is the offset of the first byte of `data` in the log."""
    at = point.offset - base
    fault: str | None
    if _is_newer(data, at, point):
        fault = NEWER_WRITER
    elif at == len(data):
        if anchor < max(point.seq, 1):
            return Tail(kind=TailKind.CLEAN, offset=point.offset)
        fault = f"record {anchor} was durable, but the log ends before it"
    else:
        hole = data.find(b"\0", at)
        text = data[at : len(data) if hole < 0 else hole]
        fault = _whole_line_fault(data, at, point) if b"\n" in text else _start_fault(text, point)
        fault = fault or _fault_behind(data, base, at, point)
        if fault is None and anchor >= max(point.seq, 1):
            fault = f"it is cut short, but record {anchor} was durable"
    if fault is not None:
        return Tail(kind=TailKind.DAMAGED, offset=point.offset, reason=fault)
    return Tail(kind=TailKind.TORN, offset=point.offset, reason="an append that was never acknowledged was cut short")


def settled(data: bytes, base: int, point: Point) -> int:
    """How many of these bytes show that the log is damaged, whatever follows them; 0 while that is open. `base` as in `judge`."""
    end = data.rfind(b"\n") + 1
    found = judge(data[:end], base, point, 0)
    return end if found.kind is TailKind.DAMAGED and found.reason != NEWER_WRITER else 0


def _is_newer(data: bytes, at: int, point: Point) -> bool:
    """Whether the line at `at` is intact, but of a version or (for the lineage line) a shape that this build does not know.

    A torn line of an unknown version counts as well once its header is proven: only a newer writer can have begun it.
    """
    header = proven(data, at)
    if header is None:
        return False
    unknown = header.ver not in (1, 2, 3)
    end = header.payload_offset + header.length
    if len(data) <= end:
        return unknown
    no_lineage = point.seq == header.seq == 0 and header.ver == 2 and decode_lineage(data[header.payload_offset : end]) is None
    return (unknown or no_lineage) and _is_verified(data, header, point)


def _is_verified(data: bytes, header: Proven, point: Point) -> bool:
    """Whether the whole line of a proven header is there, and its digest right behind `point`."""
    body, end = header.payload_offset, header.payload_offset + header.length
    digest = hashlib.sha256(point.digest.encode() + data[header.offset : body - 65] + data[body:end]).hexdigest()
    return header.whole and data[body - 65 : body - 1] == digest.encode()


def _whole_line_fault(data: bytes, at: int, point: Point) -> str:
    """What is wrong with a line that has its newline and is no good frame."""
    header = proven(data, at)
    if header is None:
        return "its header does not match its check"
    if not header.whole:
        return "the line does not end where its header says"
    if header.seq < point.seq:
        return f"record {header.seq} comes a second time, so two programs wrote to this log"
    if header.seq > point.seq:
        return f"record {header.seq} stands there, so records are missing"
    if not _is_verified(data, header, point):
        return "it does not match its digest, or was not written behind the record before it"
    return "its version, features or numbers contradict its place"


def _start_fault(text: bytes, point: Point) -> str | None:
    """Why `text` is not a strict, possibly empty, prefix of a frame that may come next; None if it is."""
    *fields, last = text.split(b" ", 10)
    for index, field in enumerate(fields):
        fault = _field_fault(index, field, fields, point, whole=True)
        if fault is not None:
            return fault
    if len(fields) < 10:
        return _field_fault(len(fields), last, fields, point, whole=False)
    length = int(fields[6])
    if len(last) > length:
        return "the record is longer than its header says"
    if len(last) == length:
        head = text[: len(text) - length - 65]
        if hashlib.sha256(point.digest.encode() + head + last).hexdigest().encode() != fields[9]:
            return "the record does not match its digest"
    return None


def _field_fault(index: int, field: bytes, fields: list[bytes], point: Point, *, whole: bool) -> str | None:
    """Why header field `index`, whole or cut short, cannot be what the next frame has there; None if it can."""
    fits: bool
    if index == 0:
        fits = _is_part(field, (b"2",) if point.seq == 0 else (b"1", b"3"), whole=whole)
    elif index == 1:
        fits = _is_part(field, (b"%d" % point.seq,), whole=whole)
    elif index < 7:
        limit = NUMBER_LIMIT - 1
        low = (0, point.fence, point.synced, 0, 0)[index - 2]
        high = (limit, limit, max(point.seq - 1, 0), limit, PAYLOAD_BYTES_MAX)[index - 2]
        fits = _number_fits(field, low, high, whole=whole)
    elif index == 7:
        fits = _requires_fits(field, whole=whole) if fields[0] == b"3" else _is_part(field, (b"-",), whole=whole)
    elif index == 8:
        check = zlib.crc32(b" ".join(fields[:8]) + b" ")
        fits = _is_part(field, (b"%08x" % check,), whole=whole)
    else:
        fits = re.fullmatch(rb"[0-9a-f]{64}" if whole else rb"[0-9a-f]{0,64}", field) is not None
    names = ("version", "seq", "time", "fence", "synced", "left", "length", "requires", "check", "digest")
    return None if fits else f"the {names[index]} in its header is not what may come next"


def _is_part(field: bytes, allowed: tuple[bytes, ...], *, whole: bool) -> bool:
    return field in allowed if whole else any(one.startswith(field) for one in allowed)


def _number_fits(field: bytes, low: int, high: int, *, whole: bool) -> bool:
    """Whether the number, or some number that starts with these digits, lies within the bounds."""
    if not field:
        return not whole
    value = number_in(field)
    if value < 0:
        return False
    more = 1 if whole or value == 0 else _DIGITS_MAX
    return any(value * 10**digits <= high and (value + 1) * 10**digits > low for digits in range(more))


def _requires_fits(field: bytes, *, whole: bool) -> bool:
    """Whether this is, or begins, a list of sorted feature names."""
    *names, last = field.decode("latin-1").split(",")
    if whole:
        names.append(last)
    elif last and (not FEATURE_NAME.fullmatch(last) or (names and last + "{" < names[-1])):
        return False  # "{" is above every character of a name: no longer name could be in order either
    return all(FEATURE_NAME.fullmatch(name) for name in names) and all(a < b for a, b in pairwise(names))


def _fault_behind(data: bytes, base: int, at: int, point: Point) -> str | None:
    """What comes first, from the first hole on, that an unsynced write does not leave, or that was durable; None if nothing does.

    It is told in the order of the bytes, so that what is told of a part is told of all.
    """
    lineage = point.lineage
    holes = [hole.span() for hole in _HOLE.finditer(data, at)]
    for (start, end), (limit, _) in pairwise([*holes, (len(data), len(data))]):
        if not _may_be_unwritten(data, base, at, start, end):
            return f"the NUL bytes up to byte {base + end} are not whole unwritten sectors"
        for line, stop, header in _later_lines(data, end, limit):
            fault = _line_fault(data, line, stop, header, point.seq)
            if fault is not None:
                return fault
            if header is not None and header.ver == 2 and data[stop : stop + 1] == b"\n":
                claimed = decode_lineage(data[header.payload_offset : stop])
                if claimed is None or _differs(lineage, claimed):
                    return "a later line names another lineage"
                lineage = claimed
    return None


def _may_be_unwritten(data: bytes, base: int, at: int, start: int, end: int) -> bool:
    """Whether a run of NULs can be sectors that were never written."""
    starts = start == at or (base + start) % SECTOR_BYTES == 0 or data[start - 1 : start] == b"\n"
    return starts and ((base + end) % SECTOR_BYTES == 0 or end == len(data))


def _later_lines(data: bytes, end: int, limit: int) -> Iterator[tuple[int, int, Proven | None]]:
    """Every line between a hole's end and the next: its start, its stop (its newline, or that limit), its proven header.

    What directly follows the hole is the rest of a cut line and left out, unless a proven header starts there.
    """
    position, is_line = end, False
    while position < limit:
        newline = data.find(b"\n", position, limit)
        stop = limit if newline < 0 else newline
        header = proven(data, position)
        if is_line or header is not None:
            yield position, stop, header
        position, is_line = stop + 1, True


def _differs(known: Lineage | None, claimed: Lineage) -> bool:
    return known is not None and known.lineage != claimed.lineage


def _line_fault(data: bytes, start: int, stop: int, header: Proven | None, seq: int) -> str | None:
    """Why the line from `start` to `stop` (its newline, a hole or the end of the file) forbids a cut; None if it does not."""
    ends_here = data[stop : stop + 1] == b"\n"
    if header is None:
        cut_header = not ends_here and HEADER.match(data, start) is None
        return None if cut_header else "a later line is not proven"
    if header.synced >= max(seq, 1):
        return f"a later line says that record {header.synced} was durable"
    end = header.payload_offset + header.length
    if stop > end or (ends_here and stop != end):
        return "a later line does not end where its header says"
    return None
