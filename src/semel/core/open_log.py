"""From verified frames to the state: decode, mark what a torn write left behind, fold."""

from collections.abc import Mapping, Sequence

from semel.core.blob_names import named_blobs
from semel.core.codec import decode, decode_all
from semel.core.fold import fold_placed
from semel.core.frame import Frame, incomplete
from semel.core.header import decode_lineage
from semel.core.places import FindRecord
from semel.core.records import Record
from semel.core.state import Logged, Session
from semel.errors import CorruptLog, NewerWriter


def state_of(frames: Sequence[Frame], torn: frozenset[int], session: str) -> Session:
    """The state of a session after these frames. `torn` are the seqs of writes that never became whole.

    Raises NewerWriter and CorruptLog.
    """
    if not frames:
        return Session(session=session)
    return fold_frames(frames[1:], torn, _first_state(frames[0], session))


def _first_state(first: Frame, session: str) -> Session:
    identity = decode_lineage(first.payload)
    if identity is None:
        raise NewerWriter(f"the first line of session {session!r}")
    return Session(session=identity.session, lineage=identity.lineage, last_at_ms=first.at_ms, last_fence=first.fence)


def finding(frames: Sequence[Frame], ahead: Mapping[int, Record] | None = None) -> FindRecord:
    """Finds the records of a log whose frames are at hand, from the first to the last; and those of `ahead`, not in it yet."""

    def find(seq: int) -> Record | None:
        if ahead is not None and seq in ahead:
            return ahead[seq]
        return decode(frames[seq - frames[0].seq])

    return find


class Opening:
    """The fold of a log whose frames come piece by piece, as `SessionStore.open` hands them out.

    Memory holds the frames and the records of one piece, and of one write if that is longer.
    """

    def __init__(self, session: str, known: Session | None = None) -> None:
        """`known` is the state up to where the frames go on; one that begins with the lineage line is folded from the start.

        `failed` is what `state` will raise; `blobs` are those that were named, as in `named_blobs`; `whole` says that every frame
        of the log was handed in.
        """
        self._session = session
        self._state = known
        self.whole = known is None
        self._write: list[Frame] = []
        self.failed: CorruptLog | NewerWriter | None = None
        self.blobs: dict[str, int] = {}

    def take(self, frames: Sequence[Frame]) -> None:
        """More frames, in order. What contradicts the log before it is kept for `state`: damage behind it comes first.

        A write is folded once it is known whether it became whole: all but the last one, if that still waits for frames.
        """
        if self.failed is not None:
            return
        self._note_blobs(frames)
        if frames and frames[0].seq == 0:
            self._state, self.whole = None, True
        known = [*self._write, *frames]
        waits = len(known)
        while waits and known[waits - 1].left:
            waits -= 1  # the last frame of a write has none left, so at most these belong to one that still waits
        self._write = known[waits:]
        self._fold(known[:waits])

    def state(self) -> Session:
        """The state after all frames; what belongs to a write that never became whole is torn. Raises as `state_of` does."""
        write, self._write = self._write, []
        self._fold(write)
        if self.failed is not None:
            raise self.failed
        return self._state or Session(session=self._session)

    def _note_blobs(self, frames: Sequence[Frame]) -> None:
        """Of frames that cannot be read nothing is noted: the fold comes to them in their turn, and refuses them."""
        try:
            named = named_blobs(frames)
        except NewerWriter:
            return
        for name, seq in named.items():
            self.blobs.setdefault(name, seq)

    def _fold(self, frames: list[Frame]) -> None:
        """Fold frames behind which a write ends, or the log."""
        if not frames or self.failed is not None:
            return
        torn = incomplete(frames)
        try:
            if self._state is None:
                self._state = _first_state(frames[0], self._session)
                del frames[0]
            self._state = fold_frames(frames, torn, self._state)
        except (CorruptLog, NewerWriter) as error:
            self.failed = error


def fold_frames(frames: Sequence[Frame], torn: frozenset[int], state: Session) -> Session:
    """The state behind these frames, which follow those that it was made of. Raises what the first of them is refused with."""
    records, refusal = decode_all(frames, f"session {state.session!r}")
    places = [_torn(frame) if frame.seq in torn else frame for frame in frames] if torn else frames
    state = fold_placed(places, records, state, torn=bool(torn))
    if refusal is not None:
        raise refusal
    return state


def _torn(frame: Frame) -> Logged:
    """Where a record of a torn write stands."""
    return Logged(
        seq=frame.seq,
        at_ms=frame.at_ms,
        fence=frame.fence,
        record=None,
        torn=True,
        requires=frame.requires,
        digest=frame.digest,
    )
