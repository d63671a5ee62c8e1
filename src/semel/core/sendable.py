"""A message as a provider takes it: without blank text, and without state that only another model understands (B24, B22, M4).

Pure functions of the message, so that the log keeps what was received, and each request says the same of it.
"""

from msgspec.structs import replace

from semel.core.texts import EMPTY_MESSAGE, NO_OUTPUT
from semel.core.values import AssistantMessage, Block, Message, Opaque, Text, ToolCall, ToolMessage, UserMessage, is_idle

Tagged = tuple[Message, tuple[int, ...]]


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
    return (message, tags) if traits(message)[0] else (None, ())


def traits(answer: AssistantMessage) -> tuple[bool, bool]:
    """Whether a model can be shown anything of an answer without its blank texts; and whether it holds provider state."""
    says, opaque = bool(answer.parts), False
    for block in answer.blocks:
        if isinstance(block, ToolCall):
            says = True
        elif isinstance(block, Opaque):
            opaque = True
        elif not says:
            says = bool(block.text.strip())
    return says, opaque


def portable(message: Message, tags: tuple[int, ...]) -> Tagged:
    """The message for a model that is not its author: visible text is portable, opaque state is dropped as a whole."""
    if not isinstance(message, AssistantMessage) or not message.opaque:
        return message, tags
    kept = [(at, block) for at, block in enumerate(message.blocks) if _readable(block)]
    return replace(message, blocks=tuple(block for _, block in kept)), tuple(tags[at] for at, _ in kept) if tags else ()


def _readable(block: Block) -> bool:
    """Whether a model other than its author gets anything from this block."""
    return isinstance(block, ToolCall) or (isinstance(block, Text) and bool(block.text.strip()))
