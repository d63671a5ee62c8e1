"""Finding a frame of a log again by its seq: what a state that keeps no content is read with (design 3).

Keeps where each line starts, eight bytes for a record, and the frames around the one that was asked for last, so that reading on
from there costs nothing more. What is read is verified like everything else, against the digest of the line before it.
"""

from array import array
from collections.abc import Callable, Sequence
from operator import attrgetter

from semel.core.frame import Frame, good_frames
from semel.core.header import GENESIS, Point
from semel.errors import LogDamaged, must

_offset = attrgetter("offset")
AHEAD_BYTES = 64 * 1024

Read = Callable[[int, int], bytes]
"""The bytes of the log from an offset, at most so many."""


class Lookup:
    """Where the frames of one log are. It is told of them in order, as they are verified or written."""

    def __init__(self, where: str) -> None:
        """`where` names the log in messages."""
        self._where = where
        self._offsets = array("Q")
        self._near: Sequence[Frame] = ()

    def add(self, frames: Sequence[Frame]) -> None:
        """More frames, behind those that it knows."""
        if frames:
            must(frames[0].seq == len(self._offsets), "frames are added in order", seq=frames[0].seq)
            self._offsets.extend(map(_offset, frames))

    def copy(self) -> "Lookup":
        """Another one that knows the same, and may be told of other frames from here on."""
        other = Lookup(self._where)
        other._offsets = self._offsets[:]
        return other

    def frame(self, seq: int, read: Read) -> Frame:
        """The frame of that seq, which is one of those added. Raises LogDamaged where the log does not hold it any more."""
        must(0 <= seq < len(self._offsets), "a frame of the log is looked up", seq=seq)
        near = self._near
        if not near or not near[0].seq <= seq <= near[-1].seq:
            near = self._near = self._frames_from(seq, read)
        return near[seq - near[0].seq]

    def let_go(self) -> None:
        """Keep only where the frames are, for a log that is not read for now."""
        self._near = ()

    def _frames_from(self, seq: int, read: Read) -> Sequence[Frame]:
        start, behind = self._offsets[seq], len(self._offsets) - 1
        end = self._offsets[seq + 1] if seq < behind else None
        before = self._offsets[seq - 1] if seq else start
        data = read(before, AHEAD_BYTES if end is None else max(AHEAD_BYTES, end - before))
        while b"\n" not in data[start - before :] and len(data) < len(more := read(before, len(data) * 2)):
            data = more  # the last line of the log, which is longer than what is read ahead
        fields = data[: start - before].split(b" ", 10)
        digest = fields[9].decode("latin-1") if seq and len(fields) == 11 else GENESIS
        frames, _ = good_frames(data[start - before :], Point(offset=start, seq=seq, digest=digest))
        if not frames:
            raise LogDamaged(self._where, start, seq, "it was verified when the log was opened, and reads otherwise now")
        return frames[: behind - seq + 1]
