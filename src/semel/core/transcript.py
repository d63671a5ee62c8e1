"""How the conversation grows: by whole messages, of which the state keeps the places, and how much of it the model sees (P1, C4).

A view or tags change what is read, and nothing that is kept, so that a turn costs the same however long the history is (P10).
"""

from collections.abc import Sequence

from msgspec.structs import replace

from semel.core.conversation import Conversation, View
from semel.core.places import FindRecord
from semel.core.state import Session
from semel.core.targets import STATE_LEFT_OUT
from semel.core.values import Message


def grown(state: Session, messages: Sequence[int | Message], tags: Sequence[tuple[int, ...]] = ()) -> Session:
    """The state with these messages behind the others; `tags` are those of their parts, if they have any.

    A message is its place in the log, or itself where no single record gives it.
    """
    return replace(state, transcript=state.transcript.plus(messages, tags))


def corrected(state: Session, at: int, message: Message) -> Session:
    """The state with another message at a place that no request has rendered yet."""
    return replace(state, transcript=state.transcript.corrected(at, message))


def for_target(state: Session, target: str) -> Session:
    """The conversation as the model of the next run may see it: another one gets no state that only its author understands.

    Visible text is portable (M4); opaque state is dropped as a whole, never translated (B22). The places are kept anew then, so
    that a renderer that keeps the bytes of messages does not take it for the old conversation.
    """
    return state if target == state.target else replace(without_opaque(state, STATE_LEFT_OUT), target=target)


def holds_opaque(state: Session) -> bool:
    """Whether some answer of the conversation has provider state that a request would show."""
    view = state.compaction.view
    return state.transcript.holds_opaque or (view is not None and view.holds_opaque)


def without_opaque(state: Session, why: str) -> Session:
    """The conversation without any provider state, that of a view's replacement too. `why` is noted where there was some."""
    if not holds_opaque(state):
        return state
    view = state.compaction.view
    if view is not None:
        state = showing(state, view=view.for_another())
    return changed(replace(state, transcript=state.transcript.for_another()), why)


def changed(state: Session, what: str) -> Session:
    """The state that knows that the next request starts with other bytes than the last one that was answered."""
    known = state.answered is None or what in state.changed
    return state if known else replace(state, changed=(*state.changed, what))


def showing(state: Session, *, view: View | None) -> Session:
    """The state from which the model sees this view of the transcript."""
    return replace(state, compaction=replace(state.compaction, view=view))


def history_of(state: Session, find: FindRecord) -> Conversation:
    """The whole conversation of the lineage. Taking a message of it raises what `find` raises."""
    return Conversation(state.transcript, find)


def messages_of(state: Session, find: FindRecord) -> Conversation:
    """What the model sees of the conversation. Taking a message of it raises what `find` raises."""
    return Conversation(state.transcript, find, view=state.compaction.view, family=state.tag_family)
