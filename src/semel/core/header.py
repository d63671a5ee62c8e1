"""The header of a line and what decides the next one: the part of the frame that is frozen for all versions (design 3).

    <ver> <seq> <at_ms> <fence> <synced> <left> <len> <requires|-> <check> <sha256> <json>

Numbers are decimal without leading zeros and below 2^63. `check` is the CRC-32 of the line up to and including the space
before it; a header whose check is right is *proven*.
"""

import re
import zlib

import msgspec

from semel.core.values import Frozen

PAYLOAD_BYTES_MAX = 64 * 1024 * 1024
NUMBER_LIMIT = 2**63
_ZERO, _DIGITS_MAX = ord("0"), len(str(2**63))
GENESIS = "0" * 64  # stands for the digest before the first frame

_NUMBER = rb"(0|[1-9][0-9]{0,18})"
_NAME = rb"[a-z0-9][a-z0-9._/-]*"
_REQUIRES = rb"(-|" + _NAME + rb"(?:," + _NAME + rb")*)"
HEADER = re.compile(b" ".join([_NUMBER] * 7 + [_REQUIRES, rb"([0-9a-f]{8})", rb"([0-9a-f]{64})", b""]))
FEATURE_NAME = re.compile(_NAME.decode())


class Lineage(Frozen, frozen=True, kw_only=True, tag_field="type", tag="lineage"):
    """What the lineage line says: the 128-bit identity of this log (32 hex) and the session it belongs to (W30)."""

    lineage: str
    session: str


class Point(Frozen, frozen=True, kw_only=True):
    """Where a log stands behind some frame: all that decides which frame may come next. The default is an empty log.

    `offset` is where the next line starts and `seq` the number it must have; `lineage` is None until the first line is read.
    """

    offset: int = 0
    seq: int = 0
    digest: str = GENESIS
    fence: int = 0
    synced: int = 0
    lineage: Lineage | None = None


class Proven(Frozen, frozen=True, kw_only=True):
    """A header whose check is right, wherever it was found; `whole` if its line also ends where its length says."""

    offset: int
    ver: int
    seq: int
    at_ms: int
    fence: int
    synced: int
    left: int
    payload_offset: int
    length: int
    whole: bool


def encode_lineage(lineage: str, session: str) -> bytes:
    """Payload of the lineage line."""
    return msgspec.json.encode(Lineage(lineage=lineage, session=session))


def decode_lineage(payload: bytes) -> Lineage | None:
    """What a lineage line says; None if this build cannot tell."""
    try:
        found = msgspec.json.decode(payload, type=Lineage)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return found if re.fullmatch("[0-9a-f]{32}", found.lineage) else None


def number_in(text: bytes) -> int:
    """The number that a field of a header says; -1 for a text that is none."""
    if not text.isdigit() or (text[0] == _ZERO and len(text) > 1) or len(text) > _DIGITS_MAX:
        return -1
    number = int(text)
    return number if number < NUMBER_LIMIT else -1


def proven(data: bytes, at: int) -> Proven | None:
    """The proven header that starts at `at`, if one does."""
    header = HEADER.match(data, at)
    if header is None or zlib.crc32(data[at : header.start(9)]) != int(header[9], 16):
        return None
    ver, seq, at_ms, fence, synced, left, length = map(int, header.groups()[:7])
    return Proven(
        offset=at,
        ver=ver,
        seq=seq,
        at_ms=at_ms,
        fence=fence,
        synced=synced,
        left=left,
        payload_offset=header.end(),
        length=length,
        whole=data.find(b"\n", header.end()) == header.end() + length,
    )
