"""Checking a log byte by byte: every frame, the tail rule, the features, and that its records tell a legal story."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from semel.core.codec import decode
from semel.core.features import KNOWN
from semel.core.frame import Frame, Point, Proven, Tail, TailKind, proven_behind, witnessed
from semel.core.open_log import Opening
from semel.core.reading import PIECE_BYTES, Reading
from semel.core.tail import NEWER_WRITER
from semel.errors import CorruptLog, NewerWriter, StoreError

LOG_NAME, STATUS_NAME = "wal.log", "status.json"
Progress = Callable[[int], None]


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What a log is: `clean`, `torn` (an unacknowledged tail, which the next open cuts), `damaged`, `newer` or `corrupt`.

    `records` are good ones, up to `head_seq`; `offset` and `seq` say where the first bad frame starts and which it should be.
    `behind` lists the proven frames behind the damage.
    """

    path: str
    session: str | None
    verdict: str
    records: int
    bytes: int
    head_seq: int
    head_digest: str
    offset: int | None = None
    seq: int | None = None
    reason: str | None = None
    behind: tuple[Proven, ...] = ()

    @property
    def good(self) -> bool:
        """Whether this build opens the log."""
        return self.verdict in {"clean", "torn"}


def verify_log(path: Path, session: str | None = None, progress: Progress = lambda _bytes: None) -> Verdict:
    """Check a log file. `session` is whose it should be, if that is known; a status document beside it is a witness.

    The file is read piece by piece: memory holds a piece of it, and its state. Raises StoreError if it cannot be read.
    """
    anchor = witnessed(_read_status(path.with_name(STATUS_NAME)))  # read first: the log only grows
    check = _Check(session)
    size = check.read(path, progress, must_be_there=not anchor)
    tail, point = check.reading.tail(anchor), check.reading.point
    lineage = point.lineage
    fault, offset, seq, reason = _fault(check, tail)
    good = point if check.at is None else check.good
    return Verdict(
        path=str(path),
        session=session or (lineage.session if lineage else None),
        verdict=fault,
        records=max(0, good.seq - 1),
        bytes=size,
        head_seq=max(0, good.seq - 1),
        head_digest=good.digest,
        offset=offset,
        seq=seq,
        reason=reason,
        behind=proven_behind(path.read_bytes(), point.offset) if fault == "damaged" and size else (),
    )


class _Check:
    """One pass over a log: what its bytes say, and what its records do."""

    def __init__(self, session: str | None) -> None:
        self.session = session
        self.reading = Reading()
        self.opening = Opening(session or "")
        self.lacking: Frame | None = None
        self.good = Point()  # behind the last record that this build can follow
        self.at: int | None = None  # where the first one starts that it cannot

    def read(self, path: Path, progress: Progress, *, must_be_there: bool) -> int:
        """Read it all; returns how much. A log that is gone while a witness remembers it reads as an empty one."""
        size = 0
        try:
            if not path.is_file() and not must_be_there:
                return 0
            with path.open("rb") as file:
                while piece := file.read(PIECE_BYTES):
                    size += len(piece)
                    self._take(self.reading.feed(piece))
                    progress(len(piece))
        except OSError as error:
            gone = isinstance(error, FileNotFoundError)
            what = f"there is no log at {path}" if gone else f"{path} cannot be read: {error.strerror}"
            raise StoreError(what) from error
        return size

    def _take(self, frames: Sequence[Frame]) -> None:
        if self.lacking is None and not self.reading.features <= KNOWN:
            self.lacking = next(frame for frame in frames if not KNOWN.issuperset(frame.requires))
        if self.lacking is None and not self.opening.failed:
            self.opening.take(frames)
            if self.opening.failed is None:
                self._follow(frames[-1] if frames else None)
                return
            bad = next((at for at, frame in enumerate(frames) if self._stops_at(frame)), 0)
            self._follow(frames[bad - 1] if bad else None)
            self.at = frames[bad].offset
        elif self.lacking is not None and self.at is None:
            bad = next((at for at, frame in enumerate(frames) if frame.seq == self.lacking.seq), 0)
            self._follow(frames[bad - 1] if bad else None)
            self.at = self.lacking.offset

    def _follow(self, last: Frame | None) -> None:
        if last is not None:
            self.good = Point(seq=last.seq + 1, digest=last.digest)

    def _stops_at(self, frame: Frame) -> bool:
        """Whether this is the record that contradicts those before it, or that this build cannot decode."""
        if isinstance(self.opening.failed, CorruptLog):
            return frame.seq == self.opening.failed.seq
        try:
            if frame.seq > 0:
                decode(frame)
        except NewerWriter:
            return True
        return False


def _read_status(path: Path) -> bytes | None:
    try:
        return path.read_bytes() if path.is_file() else None
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}") from error


Fault = tuple[str, int | None, int | None, str | None]


def _fault(check: _Check, tail: Tail) -> Fault:
    """The verdict, and where and why if it is not clean. What bytes say comes before what records say."""
    point, lacking = check.reading.point, check.lacking
    offset, seq, reason = tail.offset, point.seq, tail.reason
    if lacking is not None:
        return "newer", lacking.offset, lacking.seq, f"it needs {', '.join(sorted(set(lacking.requires) - KNOWN))}"
    if tail.kind is TailKind.DAMAGED:
        newer = reason == NEWER_WRITER
        return "newer" if newer else "damaged", offset, seq, "a newer semel wrote it" if newer else reason
    lineage = point.lineage
    if lineage is not None and check.session is not None and lineage.session != check.session:
        return "damaged", 0, 0, f"it is the log of session {lineage.session!r}"
    try:
        check.opening.state()
    except CorruptLog as error:
        return "corrupt", check.at, error.seq, f"{error.reason}: {error.detail}"
    except NewerWriter:
        return "newer", check.at, check.good.seq, "this build cannot read its record"
    return ("torn", offset, seq, reason) if tail.kind is TailKind.TORN else ("clean", None, None, None)


def logs_below(path: Path) -> Iterator[Path]:
    """The logs that a path means: itself, that of a session's directory, or all below a state directory.

    A log that is gone counts where its status document is still there.
    """
    if path.is_file():
        yield path
        return
    directories = [path] if _is_session(path) else sorted((path / "sessions").glob("*/"))
    yield from (directory / LOG_NAME for directory in directories if _is_session(directory))


def _is_session(directory: Path) -> bool:
    return (directory / LOG_NAME).is_file() or (directory / STATUS_NAME).is_file()
