"""What could still be read behind damage: proven headers, for people who decide what to do. Never for replay."""

import re
from collections.abc import Callable

from msgspec.structs import replace

from semel.core.header import HEADER, Proven, proven
from semel.core.values import Frozen

LISTED_MOST = 1000
_WINDOW_BYTES = 4 * 1024 * 1024
_HEADER_BYTES_MOST = 64 * 1024  # a longer one, which no build writes, may be passed over
_HEADER_ANYWHERE = re.compile(b"(?=(" + HEADER.pattern + b"))")

Read = Callable[[int, int], bytes]
"""Up to so many bytes of a log from an offset on; fewer only at its end."""


class Behind(Frozen, frozen=True, kw_only=True):
    """The proven headers behind a byte: the first of them, how many there are, and the highest fence that any of them has."""

    listed: tuple[Proven, ...] = ()
    count: int = 0
    fence: int = 0


def proven_behind(read: Read, offset: int) -> Behind:
    """Every proven header at or behind `offset`. Memory holds a window of the log, however long that is."""
    listed: list[Proven] = []
    count, fence, at = 0, 0, offset
    while data := read(at, _WINDOW_BYTES):
        sure = len(data) if len(data) < _WINDOW_BYTES else len(data) - _HEADER_BYTES_MOST
        position = 0
        while position < sure and (match := _HEADER_ANYWHERE.search(data, position)) is not None and match.start() < sure:
            position = match.start() + 1
            header = proven(data, match.start())
            if header is None:
                continue
            whole = header.whole or _is_whole(read, at + len(data), at + header.payload_offset + header.length, data, header)
            header = replace(header, offset=at + header.offset, payload_offset=at + header.payload_offset, whole=whole)
            count, fence = count + 1, max(fence, header.fence)
            if count <= LISTED_MOST:
                listed.append(header)
            position = header.payload_offset - at + (header.length if whole else 0)
        at += max(sure, position)
    return Behind(listed=tuple(listed), count=count, fence=fence)


def _is_whole(read: Read, at: int, end: int, data: bytes, header: Proven) -> bool:
    """Whether a line that goes on behind its window, which ends at `at`, has its first newline at `end`."""
    if end < at or data.find(b"\n", header.payload_offset) >= 0:
        return False
    while piece := read(at, min(_WINDOW_BYTES, end + 1 - at)):
        newline = piece.find(b"\n")
        if newline >= 0:
            return at + newline == end
        at += len(piece)
    return False
