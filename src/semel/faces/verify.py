"""Checking a log byte by byte: every frame, the tail rule, the features, that its records tell a legal story, and its blobs."""

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO, Literal

import msgspec

from semel.core.behind import Behind, proven_behind
from semel.core.codec import decode
from semel.core.features import KNOWN
from semel.core.frame import Frame, Lineage, Point, Tail, TailKind, witnessed
from semel.core.header import Proven
from semel.core.open_log import Opening
from semel.core.reading import PIECE_BYTES, Reading
from semel.core.tail import NEWER_WRITER
from semel.errors import CorruptLog, NewerWriter, StoreError
from semel.faces.reading import open_regular

LOG_NAME, STATUS_NAME, BLOBS_NAME = "wal.log", "status.json", "blobs"
Progress = Callable[[int], None]
Witness = Callable[[Lineage | None], int]
Opener = Callable[[Path], BufferedReader]
RegionKind = Literal["good", "torn", "damaged", "readable", "newer"]
_BLOB_NAME = re.compile(r"[0-9a-f]{64}")


class Region(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes `start` to `end` of a log.

    They are `good` frames, a `torn` tail, `damaged`, `readable` frames behind damage, or what a `newer` semel wrote.
    """

    start: int
    end: int
    kind: "RegionKind"


class BadBlob(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A blob that record `seq` is the first to name, and what is wrong with it. `why` it is unreadable."""

    name: str
    seq: int
    what: Literal["missing", "damaged", "unreadable"]
    why: str | None = None


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What a log is: `clean`, `torn`, `damaged`, `newer`, `corrupt`, `incomplete`, or `unreadable`.

    A torn tail was never acknowledged; the next open cuts it. An incomplete log is sound, but a blob that it names is not. Of an
    unreadable one nothing is known but the `reason`.
    `records` are good ones, up to `head_seq`; `offset` and `seq` say where the first bad frame starts and which it should be.
    `regions` tell what all its bytes are. `behind` lists the first proven frames behind the damage, `behind_records` counts them.
    `features` are those that its frames need, `blobs` how many blobs its records name.
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
    regions: tuple[Region, ...] = ()
    behind: tuple[Proven, ...] = ()
    behind_records: int = 0
    features: tuple[str, ...] = ()
    blobs: int = 0
    bad_blobs: tuple[BadBlob, ...] = ()

    @property
    def good(self) -> bool:
        """Whether this build opens the log, and can go on with all that it names."""
        return self.verdict in {"clean", "torn"}


def no_witness(_lineage: Lineage | None) -> int:
    """For a log of which nothing is known."""
    return 0


def verify_log(
    path: Path,
    session: str | None = None,
    progress: Progress = lambda _bytes: None,
    witness: Witness = no_witness,
    opener: Opener = open_regular,
) -> Verdict:
    """Check a log file. `session` is whose it should be, if that is known; a status document beside it is a witness.

    `opener` opens it and what lies beside it; what that refuses is `unreadable`, since no session is opened over it either.

    The file is read piece by piece: memory holds a piece of it, and its state. `witness` tells the highest record of a lineage
    that something else calls durable.
    """
    try:
        return _verdict(path, session, progress, witness, opener)
    except (OSError, StoreError) as error:
        return unreadable(
            path, session, f"{path.name} cannot be read: {_why(error)}" if isinstance(error, OSError) else str(error)
        )


def _why(error: OSError | StoreError) -> str:
    return (isinstance(error, OSError) and error.strerror) or str(error)


def unreadable(path: Path, session: str | None, why: str) -> Verdict:
    """The verdict on a log that nobody can read."""
    return Verdict(
        path=str(path), session=session, verdict="unreadable", records=0, bytes=0, head_seq=0, head_digest="", reason=why
    )


def _verdict(path: Path, session: str | None, progress: Progress, witness: Witness, opener: Opener) -> Verdict:
    anchor = witnessed(_read_status(path.with_name(STATUS_NAME), opener))  # read first: the log only grows
    check = _Check(session, opener)
    size = check.read(path, progress, must_be_there=not anchor and (path.exists() or not witness(None)))
    point = check.reading.point
    tail = check.reading.tail(max(anchor, witness(point.lineage)))
    lineage = point.lineage
    fault, offset, seq, reason = _fault(check, tail)
    good = point if check.at is None else check.good
    behind = _behind(path, point.offset, opener) if fault == "damaged" and size else Behind()
    bad_blobs = tuple(_bad_blobs(path.with_name(BLOBS_NAME), check.opening.blobs, opener)) if fault in ("clean", "torn") else ()
    if bad_blobs:
        fault, offset, seq = "incomplete", None, bad_blobs[0].seq
        reason = f"{len(bad_blobs)} of the blobs that it names are missing or damaged"
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
        regions=tuple(_regions(point.offset, size, tail, behind)),
        behind=behind.listed,
        behind_records=behind.count,
        features=tuple(sorted(check.reading.features)),
        blobs=len(check.opening.blobs),
        bad_blobs=bad_blobs,
    )


def _behind(path: Path, offset: int, opener: Opener) -> Behind:
    with opener(path) as file:
        return proven_behind(partial(_read_at, file), offset)


def _read_at(file: BinaryIO, offset: int, limit: int) -> bytes:
    file.seek(offset)
    return file.read(limit)


def _regions(end: int, size: int, tail: Tail, behind: Behind) -> Iterator[Region]:
    """What the bytes of a log are, in order, as far as `behind` lists them; `end` is that of the last good frame."""
    if end:
        yield Region(start=0, end=end, kind="good")
    at, readable = end, end
    for line in (header for header in behind.listed if header.whole):
        if line.offset > at:
            if at > readable:
                yield Region(start=readable, end=at, kind="readable")
            yield Region(start=at, end=line.offset, kind="damaged")
            readable = line.offset
        at = line.payload_offset + line.length + 1
    if at > readable:
        yield Region(start=readable, end=at, kind="readable")
    if at < size and behind.count == len(behind.listed):
        rest: RegionKind = "torn" if tail.kind is TailKind.TORN else "newer" if tail.reason == NEWER_WRITER else "damaged"
        yield Region(start=at, end=size, kind=rest)


def _bad_blobs(directory: Path, named: Mapping[str, int], opener: Opener) -> Iterator[BadBlob]:
    """Every blob that a record names and that is not there, or not what its name says."""
    for name, seq in named.items():
        path = directory / (name if _BLOB_NAME.fullmatch(name) else "no name")  # one that leads elsewhere names no blob
        try:
            with opener(path) as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
        except FileNotFoundError:
            yield BadBlob(name=name, seq=seq, what="missing")
            continue
        except (OSError, StoreError) as error:
            yield BadBlob(name=name, seq=seq, what="unreadable", why=_why(error))
            continue
        if digest != name:
            yield BadBlob(name=name, seq=seq, what="damaged")


class _Check:
    """One pass over a log: what its bytes say, and what its records do."""

    def __init__(self, session: str | None, opener: Opener) -> None:
        self.session, self._opener = session, opener
        self.reading = Reading()
        self.opening = Opening(session or "")
        self.lacking: Frame | None = None
        self.good = Point()  # behind the last record that this build can follow
        self.at: int | None = None  # where the first one starts that it cannot

    def read(self, path: Path, progress: Progress, *, must_be_there: bool) -> int:
        """Read it all; returns how much. A log that is gone while a witness remembers it reads as an empty one."""
        size = 0
        try:
            with self._opener(path) as file:
                while piece := file.read(PIECE_BYTES):
                    size += len(piece)
                    self._take(self.reading.feed(piece))
                    progress(len(piece))
        except FileNotFoundError:
            if must_be_there:
                raise
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


def _read_status(path: Path, opener: Opener) -> bytes | None:
    with suppress(FileNotFoundError), opener(path) as file:
        return file.read()
    return None


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


def logs_below(path: Path) -> Sequence[Path]:
    """The logs that a path means: itself, that of a session's directory, or all below a state directory.

    A log that is gone counts where its status document is still there. Raises StoreError where nobody can look.
    """
    try:
        if not path.is_dir():
            return [path]
        inside = path / "sessions"
        directories = [path] if _is_session(path) or not inside.exists() else sorted(inside.iterdir())
    except OSError as error:
        raise StoreError(f"could not look for logs in {path}: {error.strerror}") from error
    return [directory / LOG_NAME for directory in directories if _is_session(directory)]


def _is_session(directory: Path) -> bool:
    """Whether there is a log or a status document, or nobody can look for them."""
    for name in (LOG_NAME, STATUS_NAME):
        try:
            (directory / name).lstat()
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError:
            pass
        return True
    return False
