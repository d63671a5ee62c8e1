"""How the conversation grows: by whole messages, without what no provider takes, and as the model sees it (P1, B24, C4, C49).

`transcript` is the history of the lineage. Where a view replaces a range of it, or the run shows tags, `shown` is kept beside it
and grows with it, so that a turn costs the same however long the history is (P10).
"""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from semel.core.persistent import Chain
from semel.core.state import Session, View
from semel.core.tags import marked
from semel.core.texts import EMPTY_MESSAGE, NO_OUTPUT
from semel.core.values import (
    AssistantMessage,
    Block,
    Message,
    Text,
    ToolCall,
    ToolMessage,
    UserMessage,
    is_idle,
)

Tagged = tuple[Message, tuple[int, ...]]


def grown(state: Session, messages: Iterable[Message], tags: Sequence[tuple[int, ...]] = ()) -> Session:
    """The state with these messages behind the others; `tags` are those of their parts, if they have any."""
    transcript, shown, table = state.transcript, state.shown, state.part_tags
    for at, message in enumerate(messages):
        numbers = tags[at] if at < len(tags) else ()
        sent, numbers = sendable(message, numbers)
        if sent is None:
            continue
        if numbers:
            table = table.plus(str(len(transcript)), numbers)
        if shown is not None:
            shown = shown.plus(_as_shown(state, sent, numbers))
        transcript = transcript.plus(sent)
    return replace(state, transcript=transcript, shown=shown, part_tags=table)


def sendable(message: Message, tags: tuple[int, ...] = ()) -> tuple[Message | None, tuple[int, ...]]:
    """The message without blank text, which every provider refuses; None where nothing is left of it (B24).

    Opaque state stays as it is, in its order (B22), and so does the text that it belongs to. A tool result always keeps its
    place: an empty one says so in words.
    """
    match message:
        case UserMessage():
            blank = not message.text.strip() and not message.parts
            return (replace(message, text=EMPTY_MESSAGE) if blank else message), tags
        case ToolMessage():
            blank = not message.text.strip() and not message.parts
            return (replace(message, text=NO_OUTPUT) if blank else message), tags
        case AssistantMessage():
            return _answer(message, tags)


def _answer(message: AssistantMessage, tags: tuple[int, ...]) -> tuple[AssistantMessage | None, tuple[int, ...]]:
    kept = [at for at in range(len(message.blocks)) if not is_idle(message.blocks, at)]
    if len(kept) != len(message.blocks):
        tags = tuple(tags[at] for at in kept) if tags else ()
        message = replace(message, blocks=tuple(message.blocks[at] for at in kept))
    says = message.text.strip() or message.calls or message.parts
    return (message, tags) if says else (None, ())


def corrected(state: Session, at: int, message: Message) -> Session:
    """The state with another message at a place that no request has rendered yet."""
    return rebuilt(replace(state, transcript=state.transcript.replaced(at, message)))


def for_target(state: Session, target: str) -> Session:
    """The conversation as the model of the next run may see it: another one gets no state that only its author understands.

    Visible text is portable (M4); opaque state is dropped as a whole, never translated (B22). Every message is made anew, so that
    a renderer that keeps the bytes of messages does not take it for the old conversation.
    """
    return state if target == state.target else replace(without_opaque(state), target=target)


def holds_opaque(state: Session) -> bool:
    """Whether some answer of the conversation has provider state."""
    return any(isinstance(message, AssistantMessage) and message.opaque for message in state.transcript)


def without_opaque(state: Session) -> Session:
    """The conversation without any provider state."""
    if not holds_opaque(state):
        return state
    table = type(state.part_tags)()
    kept: list[Message] = []
    for at, message in enumerate(state.transcript):
        tags = state.part_tags.get(str(at), ())
        portable, tags = _portable(message, tags)
        if tags:
            table = table.plus(str(at), tags)
        kept.append(portable)
    return rebuilt(replace(state, transcript=Chain(kept), part_tags=table))


def _portable(message: Message, tags: tuple[int, ...]) -> Tagged:
    if not isinstance(message, AssistantMessage) or not message.opaque:
        return replace(message), tags
    kept = [(at, block) for at, block in enumerate(message.blocks) if _readable(block)]
    return replace(message, blocks=tuple(block for _, block in kept)), tuple(tags[at] for at, _ in kept) if tags else ()


def _readable(block: Block) -> bool:
    """Whether a model other than its author gets anything from this block."""
    return isinstance(block, ToolCall) or (isinstance(block, Text) and bool(block.text.strip()))


def showing(state: Session, *, view: View | None, tag_family: str | None) -> Session:
    """The state from which the model sees this view of the transcript, with tags where a family is named."""
    compaction = replace(state.compaction, view=view)
    return rebuilt(replace(state, compaction=compaction, tag_family=tag_family))


def rebuilt(state: Session) -> Session:
    """The state with `shown` made anew from the transcript; O(n), so only when the view or the tags change."""
    view = state.compaction.view
    if view is None and state.tag_family is None:
        return replace(state, shown=None)
    everything = [_as_shown(state, message, state.part_tags.get(str(at), ())) for at, message in enumerate(state.transcript)]
    if view is not None:
        everything[view.start : view.end] = view.replacement
    return replace(state, shown=Chain(everything))


def _as_shown(state: Session, message: Message, tags: tuple[int, ...]) -> Message:
    return marked(message, tags, state.tag_family) if state.tag_family is not None and tags else message
