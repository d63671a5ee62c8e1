"""What a conversation says: the messages that a state only names, read from the records that it was folded from."""

from collections.abc import Iterable, Sequence

from semel.core.frame import Frame
from semel.core.open_log import finding
from semel.core.places import FindRecord
from semel.core.state import Logged, Session
from semel.core.transcript import history_of, messages_of
from semel.core.values import Message
from semel.faces.story import RunStory, SuppliedStory, Telling
from semel.faces.views import view_of
from semel.ports.log import SessionStore
from tests.support.frames import frames_of


def find_in(logged: Iterable[Logged]) -> FindRecord:
    """Finds the records of this log."""
    records = {one.seq: one.record for one in logged}
    return lambda seq: records[seq]


def said(state: Session, logged: Iterable[Logged]) -> list[Message]:
    """The whole conversation."""
    return list(history_of(state, find_in(logged)))


def shown(state: Session, logged: Iterable[Logged]) -> list[Message]:
    """What a model sees of it."""
    return list(messages_of(state, find_in(logged)))


def said_in(store: SessionStore, session: str) -> list[Message]:
    """The whole conversation of a session of this store."""
    view = view_of(store, session)
    return list(history_of(view.state, finding(frames_of(store, session))))


def runs_told(frames: Sequence[Frame], state: Session) -> list[RunStory]:
    """The runs of a log, as they are told to people."""
    told: list[SuppliedStory | RunStory] = []
    telling = Telling(state, told.append)
    telling.take(frames)
    telling.end()
    return [one for one in told if isinstance(one, RunStory)]
