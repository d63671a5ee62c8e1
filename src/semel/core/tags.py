"""Tags: a number for each part of the conversation, shown to the model as a mark in the request only (C44-C52).

Stored messages never change. Signed thinking, opaque reasoning, tool calls and text with provider state are never marked, since
a provider may bind them to their bytes; assistant text is marked on the anthropic_messages family alone.
"""

import re
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from semel.core.values import AssistantMessage, Block, Message, Part, Text, ToolMessage, UserMessage, has_state

MARKED_ASSISTANT_FAMILY = "anthropic_messages"
_MARK = re.compile(r"§\d+§ ?")


def marked(message: Message, tags: tuple[int, ...], family: str) -> Message:
    """The message as a request shows it; `tags` are those of its parts, in order."""
    numbers = iter(tags)
    match message:
        case UserMessage():
            text = _mark(message.text, next(numbers, None)) if message.text.strip() else message.text
            return replace(message, text=text, parts=tuple(_parts(message.parts, numbers)))
        case ToolMessage():
            return replace(message, text=_mark(message.text, next(numbers, None))) if message.text.strip() else message
        case AssistantMessage():
            if family != MARKED_ASSISTANT_FAMILY:
                return message
            return replace(
                message, blocks=tuple(_own(message.blocks, at, next(numbers, None)) for at in range(len(message.blocks)))
            )


def _parts(parts: tuple[Part, ...], numbers: Iterator[int]) -> Iterator[Part]:
    for part in parts:
        number = next(numbers, None)
        yield replace(part, text=_mark(part.text, number)) if isinstance(part, Text) else part


def _own(blocks: Sequence[Block], at: int, number: int | None) -> Block:
    """A mark that the model wrote itself is replaced by the part's own (C50)."""
    block = blocks[at]
    if not isinstance(block, Text) or number is None or has_state(blocks, at):
        return block
    return Text(text=_mark(_MARK.sub("", block.text, count=1) if _MARK.match(block.text) else block.text, number))


def _mark(text: str, number: int | None) -> str:
    return text if number is None else f"§{number}§ {text}"
