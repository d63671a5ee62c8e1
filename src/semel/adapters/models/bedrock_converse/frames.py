"""Amazon's event-stream framing: length, headers, payload, two checksums (wire 5). Pure, and both ways, for scripted peers.

A frame is `total_len u32, headers_len u32, crc u32 of these eight bytes, headers, payload, crc u32 of all before it`, big-endian.
A header is `name_len u8, name, type u8, value`; only strings are read, the others are skipped by their length.
"""

import struct
import zlib
from collections.abc import Iterator, Mapping

from semel.core.values import Frozen

HEADER_BYTES_MAX = 128 * 1024
FRAME_BYTES_MAX = 24 * 1024 * 1024
_PRELUDE = struct.Struct(">III")
_SMALLEST = _PRELUDE.size + 4
_STRING = 7
_LENGTHS = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}  # bytes of a value by its type; 6 and 7 carry their length


class FrameDamaged(Exception):
    """The bytes are no frames, or were changed on their way."""


class Frame(Frozen, frozen=True, kw_only=True):
    """One frame: its string headers, and its payload."""

    headers: dict[str, str]
    payload: bytes


class FrameParser:
    """An incremental parser: `feed` it the bytes as they come, it yields the frames that they complete."""

    def __init__(self) -> None:
        """Nothing yet."""
        self._buffer = bytearray()

    @property
    def pending(self) -> bool:
        """Whether bytes of a frame are left over; at the end of a body that means it was cut."""
        return bool(self._buffer)

    def feed(self, chunk: bytes) -> Iterator[Frame]:
        """Yield the frames that end in `chunk`. Raises FrameDamaged."""
        self._buffer += chunk
        start = 0
        while (size := self._size_at(start)) is not None and len(self._buffer) - start >= size:
            yield _frame(bytes(memoryview(self._buffer)[start : start + size]))
            start += size
        del self._buffer[:start]

    def _size_at(self, start: int) -> int | None:
        """The length of the frame at `start`; None while its prelude is not here. A wrong one is found before it is used."""
        if len(self._buffer) - start < _PRELUDE.size:
            return None
        total, headers, check = _PRELUDE.unpack_from(self._buffer, start)
        if zlib.crc32(memoryview(self._buffer)[start : start + 8]) != check:
            raise FrameDamaged("the checksum of a frame's length is wrong")
        if not _SMALLEST + headers <= total <= FRAME_BYTES_MAX or headers > HEADER_BYTES_MAX:
            raise FrameDamaged(f"a frame claims {total} bytes with {headers} of headers")
        return int(total)


def _frame(raw: bytes) -> Frame:
    total, headers, _ = _PRELUDE.unpack_from(raw)
    if zlib.crc32(memoryview(raw)[:-4]) != struct.unpack_from(">I", raw, total - 4)[0]:
        raise FrameDamaged("the checksum of a frame is wrong")
    end = _PRELUDE.size + headers
    return Frame(headers=_headers(raw[_PRELUDE.size : end]), payload=raw[end:-4])


def _headers(raw: bytes) -> dict[str, str]:
    found: dict[str, str] = {}
    at = 0
    try:
        while at < len(raw):
            name_end = at + 1 + raw[at]
            name, kind = raw[at + 1 : name_end].decode(), raw[name_end]
            at = name_end + 1
            if kind in (6, _STRING):
                size = struct.unpack_from(">H", raw, at)[0]
                at += 2
            else:
                size = _LENGTHS[kind]
            if at + size > len(raw) or name in found:
                raise FrameDamaged("the headers of a frame do not fit, or one occurs twice")
            found[name] = raw[at : at + size].decode() if kind == _STRING else ""
            at += size
    except (IndexError, KeyError, struct.error, UnicodeDecodeError):
        raise FrameDamaged("the headers of a frame cannot be read") from None
    return found


def frame(headers: Mapping[str, str], payload: bytes) -> bytes:
    """The bytes of one frame."""
    packed = b"".join(
        bytes([len(name.encode())]) + name.encode() + bytes([_STRING]) + struct.pack(">H", len(value.encode())) + value.encode()
        for name, value in headers.items()
    )
    lengths = struct.pack(">II", _SMALLEST + len(packed) + len(payload), len(packed))
    head = lengths + struct.pack(">I", zlib.crc32(lengths)) + packed + payload
    return head + struct.pack(">I", zlib.crc32(head))
