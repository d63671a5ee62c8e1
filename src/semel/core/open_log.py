"""From verified frames to the state: decode, mark what a torn write left behind, fold."""

from collections.abc import Iterable, Iterator

from semel.core.codec import decode
from semel.core.fold import fold
from semel.core.frame import Frame
from semel.core.header import decode_lineage
from semel.core.state import Logged, Session
from semel.errors import NewerWriter


def state_of(frames: Iterable[Frame], torn: frozenset[int], session: str) -> Session:
    """The state of a session after these frames. `torn` are the seqs of writes that never became whole.

    Raises NewerWriter and CorruptLog.
    """
    iterator = iter(frames)
    first = next(iterator, None)
    if first is None:
        return Session(session=session)
    identity = decode_lineage(first.payload)
    if identity is None:
        raise NewerWriter(f"the first line of session {session!r}")
    state = Session(session=identity.session, lineage=identity.lineage, last_at_ms=first.at_ms, last_fence=first.fence)
    return fold(logged(iterator, torn, session), state)


def logged(frames: Iterable[Frame], torn: frozenset[int], session: str) -> Iterator[Logged]:
    """Frames decoded, each where it stands."""
    for frame in frames:
        yield Logged(
            seq=frame.seq,
            at_ms=frame.at_ms,
            fence=frame.fence,
            record=decode(frame, f"session {session!r}"),
            torn=frame.seq in torn,
            requires=frame.requires,
            digest=frame.digest,
        )
