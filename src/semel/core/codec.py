"""Records to payload bytes and back.

Encoding is deterministic: field order is the type's, defaults are left out, nothing that JSON cannot carry gets in (W40).
Decoding follows design 14: an unknown type of a ver 1 frame is informational and skipped, an unknown field is ignored, and a
known type that does not decode was written by a newer build.
"""

from collections.abc import Sequence
from operator import attrgetter

import msgspec

from semel.core import features
from semel.core.frame import Frame
from semel.core.records import Record
from semel.core.values import Frozen
from semel.errors import AppendRefused, NewerWriter

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[Record] = msgspec.json.Decoder(Record)
_UNTOLD = "its type cannot be told"
_requires, _payload = attrgetter("requires"), attrgetter("payload")


class _Typed(Frozen, frozen=True, kw_only=True):
    """Just enough of a payload to see what it is."""

    type: str


_typed = msgspec.json.Decoder(_Typed)
_KNOWN_TYPES = frozenset(str(member.__struct_config__.tag) for member in Record.__args__)


def encode(record: Record) -> tuple[bytes, tuple[str, ...]]:
    """The payload of a record, and the features that its frame must name."""
    return _encoder.encode(record), features.needed(record)


def encode_checked(record: Record) -> tuple[bytes, tuple[str, ...], Record]:
    """As `encode`, and the record as whoever decodes it again will find it.

    Raises AppendRefused for a value of a wrong type, which would brick the session.
    """
    try:
        payload, requires = encode(record)
        found = _decoder.decode(payload)
    except (msgspec.MsgspecError, UnicodeEncodeError, TypeError, OverflowError) as error:
        kind = type(record).__name__
        raise AppendRefused(f"a {kind} with a value that no log can hold was refused: {error}. Nothing was written.") from None
    return payload, requires, found


def decode(frame: Frame, where: str = "the log", known: frozenset[str] = features.KNOWN) -> Record | None:
    """The record of a verified frame; None for one that is informational and unknown to this build.

    `known` are the features of the build. Raises NewerWriter for a missing feature, which is asked before the content is
    decoded (W15), an unknown gated type, or a known type that does not decode.
    """
    if frame.requires and not known.issuperset(frame.requires):
        missing = sorted({name for name in frame.requires if name not in known})
        raise NewerWriter(f"record {frame.seq} of {where}", missing)
    try:
        return _decoder.decode(frame.payload)
    except msgspec.ValidationError as error:
        kind = _type_of(frame.payload)
        if kind is not None and kind not in _KNOWN_TYPES and frame.ver == 1:
            return None
        raise NewerWriter(
            f"record {frame.seq} of {where}", detail=f"({kind or 'its type cannot be told'}) does not decode: {error}"
        ) from error
    except msgspec.DecodeError as error:
        raise NewerWriter(f"record {frame.seq} of {where}", detail=f"is not JSON: {error}") from error
    except RecursionError as error:
        raise NewerWriter(f"record {frame.seq} of {where}", detail="is nested too deep to be read") from error


def decode_all(
    frames: Sequence[Frame], where: str = "the log", known: frozenset[str] = features.KNOWN
) -> tuple[Sequence[Record | None], NewerWriter | None]:
    """The records of many frames, up to the first that `decode` refuses; and that refusal."""
    if not any(map(_requires, frames)):
        try:
            return list(map(_decoder.decode, map(_payload, frames))), None
        except (msgspec.DecodeError, RecursionError):
            pass  # which of them it was, and whether it matters, is told one by one
    found: list[Record | None] = []
    for frame in frames:
        try:
            found.append(decode(frame, where, known))
        except NewerWriter as refusal:
            return found, refusal
    return found, None


def _type_of(payload: bytes) -> str | None:
    try:
        return _typed.decode(payload).type
    except (msgspec.DecodeError, RecursionError):
        return None
