"""Which blobs the records of a log name: what `verify` and copies check, and what no `collect` may remove. Pure."""

from collections.abc import Iterable

from semel.core.codec import decode
from semel.core.features import MEDIA_CONTENT, contents
from semel.core.frame import Frame
from semel.core.records import Record
from semel.core.values import Media


def named_blobs(frames: Iterable[Frame]) -> dict[str, int]:
    """The names of all blobs in these frames, each with the seq of the first record that names it.

    Content with parts is gated (M5), so that all other frames are passed over undecoded. Raises NewerWriter.
    """
    found: dict[str, int] = {}
    for frame in frames:
        record = decode(frame) if frame.requires and MEDIA_CONTENT in frame.requires else None
        if record is not None:
            for name in _names(record):
                found.setdefault(name, frame.seq)
    return found


def _names(record: Record) -> Iterable[str]:
    for content in contents(record):
        for part in getattr(content, "parts", ()):
            if isinstance(part, Media):
                yield part.sha256
