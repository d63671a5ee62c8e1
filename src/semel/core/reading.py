"""Reading a log piece by piece: frames come out as soon as they are verified, and memory holds a piece, not the log.

`Reading` does for a stream what `frame.scan` does for bytes. What forbids to use a log is raised: a feature that this build
lacks at the first frame that needs it, before anybody decodes that; damage and a foreign log at the end.
"""

from collections.abc import Sequence
from operator import attrgetter

from msgspec.structs import replace

from semel.core.frame import Frame, Scan, good_frames
from semel.core.header import PAYLOAD_BYTES_MAX, Point
from semel.core.tail import NEWER_WRITER, SECTOR_BYTES, Tail, TailKind, judge, settled
from semel.errors import LogDamaged, NewerWriter

PIECE_BYTES = 256 * 1024  # what a piece becomes stays in the cache of a processor until it is folded
_requires = attrgetter("requires")
_LINE_BYTES_MOST = PAYLOAD_BYTES_MAX + 1024 * 1024


class Reading:
    """One pass over a log. `point` is where it stands behind the good frames so far, `features` what those need.

    What lies behind the good frames is kept for the tail rule, but not what cannot change its verdict.
    """

    def __init__(self, start: Point | None = None) -> None:
        """From `start`, by default from the beginning."""
        self.point = start or Point()
        self.features: frozenset[str] = frozenset()
        self._rest: list[bytes] = []
        self._waiting_bytes = 0
        self._stuck = self._decided = False
        self._zeros = 0  # unwritten sectors directly behind the good frames that are not kept

    def feed(self, piece: bytes) -> Sequence[Frame]:
        """The good frames that this piece completes, in order; none any more once something else was met."""
        if self._decided or self._is_more_of_a_hole(piece):
            return ()
        self._rest.append(piece)
        self._waiting_bytes -= len(piece)
        if self._waiting_bytes > 0 and (self._stuck or b"\n" not in piece):
            return ()
        frames, rest = self._good_frames()
        self._rest = [rest]
        newline, nul = rest.find(b"\n"), rest.find(b"\0")
        self._stuck = newline >= 0 or len(rest) > _LINE_BYTES_MOST
        if newline >= 0:
            # A whole line that is no frame is damage, whatever follows; behind a hole it takes more to say so.
            behind = self._behind()
            decided = settled(rest, behind.offset, behind) if 0 <= nul < newline else newline + 2
            self._decided, self._rest = decided > 0, [rest[:decided] if decided else rest]
        elif self._stuck and nul < 0:
            start = rest[: _LINE_BYTES_MOST + 1]  # as long as no frame is, so what follows cannot make one of it
            if judge(start, self.point.offset, self.point, 0).kind is TailKind.DAMAGED:
                self._decided, self._rest = True, [start]
        self._waiting_bytes = len(rest)  # a long line is not looked at again before it has doubled
        self.features = self.features.union(*set(map(_requires, frames)))
        return frames

    def _good_frames(self) -> tuple[list[Frame], bytes]:
        """The good frames of what waits, and what lies behind them. `point` moves on.

        Of the last piece only the line that it completes is joined to what was there: a copy of all of it costs time.
        """
        *waiting, piece = self._rest
        cut = piece.find(b"\n") + 1
        data = b"".join([*waiting, piece[:cut]])
        frames, point = good_frames(data, self.point)
        rest = data[point.offset - self.point.offset :]
        if rest:
            rest += piece[cut:]
        else:
            front, (frames_behind, point) = point, good_frames(piece, point, cut)
            frames += frames_behind
            rest = piece[cut + point.offset - front.offset :]
        self.point = point
        return frames, rest

    def tail(self, anchor: int = 0) -> Tail:
        """What lies behind the good frames, once there is nothing more to feed. `anchor` as in `frame.scan`."""
        behind = self._behind()
        return replace(judge(b"".join(self._rest), behind.offset, behind, anchor), offset=self.point.offset)

    def _behind(self) -> Point:
        """Where what is kept begins: behind the good frames, and behind the hole that is not kept."""
        return replace(self.point, offset=self.point.offset + self._zeros)

    def _is_more_of_a_hole(self, piece: bytes) -> bool:
        """Whether the log goes on with whole sectors of NULs where it has had nothing but NULs behind its good frames."""
        more = len(piece) % SECTOR_BYTES == 0 and self._waiting_bytes > 0 and not piece.strip(b"\0")
        if not more or len(self._rest) != 1 or self._rest[0].strip(b"\0"):
            return False
        self._zeros += len(piece)
        return True


class Verification:
    """A reading that raises for everything that forbids to use the log: LogDamaged (P7) or NewerWriter (W15, W29)."""

    def __init__(self, session: str, where: str, known: frozenset[str], start: Point | None = None) -> None:
        """`where` names the log in messages; `known` are the features that this build can interpret."""
        self._session, self._where, self._known = session, where, known
        self._reading = Reading(start)

    @property
    def point(self) -> Point:
        """Where the log stands behind the good frames so far."""
        return self._reading.point

    def feed(self, piece: bytes) -> Sequence[Frame]:
        """The good frames that this piece completes. Raises NewerWriter at the first that this build cannot interpret."""
        frames = self._reading.feed(piece)
        if not self._reading.features <= self._known:
            first = next(frame for frame in frames if not self._known.issuperset(frame.requires))
            raise NewerWriter(f"record {first.seq} of {self._where}", sorted(set(first.requires) - self._known))
        return frames

    def end(self, anchor: int = 0, frames: Sequence[Frame] = ()) -> Scan:
        """What was read, with those of its frames that the caller kept. Raises LogDamaged and NewerWriter."""
        point, tail = self.point, self._reading.tail(anchor)
        if tail.kind is TailKind.DAMAGED:
            if tail.reason == NEWER_WRITER:
                raise NewerWriter(f"record {point.seq} of {self._where}")
            raise LogDamaged(self._where, tail.offset, point.seq, tail.reason)
        theirs = foreign(point, self._session)
        if theirs is not None:
            raise LogDamaged(self._where, 0, 0, theirs)
        return Scan(frames=tuple(frames), tail=tail, point=point, features=self._reading.features)


def foreign(point: Point, session: str) -> str | None:
    """That a log is not that of the session, in words; None if it is, or if nothing says whose it is."""
    if point.lineage is None or point.lineage.session == session:
        return None
    return f"it is the log of session {point.lineage.session[:200]!r}, not of {session!r}"


def verified(
    data: bytes, session: str, where: str, known: frozenset[str], *, anchor: int = 0, start: Point | None = None
) -> Scan:
    """Scan a log that is in memory, or its part behind `start`. Raises LogDamaged and NewerWriter."""
    verification = Verification(session, where, known, start)
    return verification.end(anchor, verification.feed(data))
