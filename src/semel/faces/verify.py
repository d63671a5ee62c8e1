"""Checking a log byte by byte: every frame, the tail rule, the features, and that its records tell a legal story."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from semel.core.codec import decode
from semel.core.features import KNOWN
from semel.core.frame import Frame, Point, Proven, Scan, TailKind, good_frames, incomplete, proven_behind, scan, witnessed
from semel.core.open_log import state_of
from semel.core.tail import NEWER_WRITER
from semel.errors import CorruptLog, NewerWriter, StoreError

LOG_NAME, STATUS_NAME = "wal.log", "status.json"
_CHUNK_BYTES = 16 * 1024 * 1024
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

    Raises StoreError if it cannot be read.
    """
    anchor = witnessed(_read(path.with_name(STATUS_NAME)))  # read first: the log only grows
    found = _read(path)
    if found is None and not anchor:
        raise StoreError(f"there is no log at {path}")
    data = found or b""  # a log that is gone while a witness remembers it is damaged, like one that was cut
    log = _scan(data, anchor, progress)
    lineage = log.point.lineage
    of = session or (lineage.session if lineage else None)
    fault = _fault(log, of)
    good = log.frames if fault.seq is None else tuple(frame for frame in log.frames if frame.seq < fault.seq)
    return Verdict(
        path=str(path),
        session=of,
        verdict=fault.verdict,
        records=max(0, len(good) - 1),
        bytes=len(data),
        head_seq=max(0, len(good) - 1),
        head_digest=good[-1].digest if good else Point().digest,
        offset=fault.offset,
        seq=fault.seq,
        reason=fault.reason,
        behind=proven_behind(data, log.point.offset) if fault.verdict == "damaged" else (),
    )


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes() if path.is_file() else None
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}") from error


def _scan(data: bytes, anchor: int, progress: Progress) -> Scan:
    """The scan of the whole log, piece by piece, so that one can see it move."""
    frames: list[Frame] = []
    point = Point()
    while len(data) - point.offset > _CHUNK_BYTES:
        found, after = good_frames(data[point.offset : point.offset + _CHUNK_BYTES], point)
        if not found:
            break
        frames += found
        progress(after.offset - point.offset)
        point = after
    rest = scan(data[point.offset :], anchor, point)
    progress(len(data) - point.offset)
    return Scan(frames=(*frames, *rest.frames), tail=rest.tail, point=rest.point)


def _fault(log: Scan, session: str | None) -> "_Fault":
    """The verdict, and where and why if it is not clean. What bytes say comes before what records say."""
    offset, seq, reason = log.tail.offset, log.point.seq, log.tail.reason
    lacking = next((frame for frame in log.frames if not KNOWN.issuperset(frame.requires)), None)
    if lacking is not None:
        needs = ", ".join(sorted(set(lacking.requires) - KNOWN))
        return _Fault("newer", lacking.offset, lacking.seq, f"it needs {needs}")
    if log.tail.kind is TailKind.DAMAGED:
        newer = reason == NEWER_WRITER
        return _Fault("newer" if newer else "damaged", offset, seq, "a newer semel wrote it" if newer else reason)
    lineage = log.point.lineage
    if lineage is not None and session is not None and lineage.session != session:
        return _Fault("damaged", 0, 0, f"it is the log of session {lineage.session!r}")
    try:
        state_of(log.frames, incomplete(log.frames), session or "")
    except CorruptLog as error:
        return _Fault("corrupt", _offset(log, error.seq), error.seq, f"{error.reason}: {error.detail}")
    except NewerWriter:
        at = _first_unread(log.frames)
        return _Fault("newer", _offset(log, at), at, "this build cannot read its record")
    return _Fault("torn", offset, seq, reason) if log.tail.kind is TailKind.TORN else _Fault("clean")


class _Fault(NamedTuple):
    verdict: str
    offset: int | None = None
    seq: int | None = None
    reason: str | None = None


def _offset(log: Scan, seq: int) -> int | None:
    return next((frame.offset for frame in log.frames if frame.seq == seq), None)


def _first_unread(frames: Sequence[Frame]) -> int:
    """The first record that does not decode; that the first line does not is the other thing that only a newer build does."""
    for frame in frames[1:]:
        try:
            decode(frame)
        except NewerWriter:
            return frame.seq
    return 0


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
