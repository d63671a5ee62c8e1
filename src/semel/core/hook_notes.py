"""What the hooks of an agent did to a piece of content, as its record keeps it (FACT20, P35, M13). Applied once, never run again.

A note is written where a hook did something: `changed` what it was given, `denied` a call, or `failed`. What came of it is the
content of the record itself; the note keeps what was there before, so that nothing is lost.
"""

from collections.abc import Sequence
from typing import Literal

from semel.core.values import AssistantMessage, Frozen, Part, UserMessage


class ToolOutput(Frozen, frozen=True, kw_only=True, tag="tool_output"):
    """What a call gave, as the model reads it: a text, or ordered parts."""

    text: str
    parts: tuple[Part, ...] = ()


HookPhase = Literal["pre_user", "post_assistant", "pre_tool", "post_tool"]


class HookNote(Frozen, frozen=True, kw_only=True):
    """What a hook did to the content of its record; stored once, never run again on replay (P35, FACT20).

    Its subject is what the hook was given: `messages` before the user's input, an assistant message behind an answer, an output
    behind a tool. Before a tool it is the opaque text of the arguments, whatever that text looks like (M13, M14); a note that
    stands at the answer itself names the call by its `ordinal` instead. `changed` are the arguments as a pre-tool hook left them;
    `message` is why it denied the call, or how it failed.
    """

    phase: HookPhase
    hook: str
    verdict: str
    messages: tuple[UserMessage, ...] = ()
    answer: AssistantMessage | None = None
    output: ToolOutput | None = None
    arguments: str | None = None
    ordinal: int | None = None
    changed: str | None = None
    message: str | None = None


CHANGED, DENIED, FAILED = "changed", "denied", "failed"


def original_input(hooks: Sequence[HookNote]) -> Sequence[UserMessage]:
    """The messages as they were sent, where a hook changed them; a key stands for these (Q9)."""
    return next((note.messages for note in hooks if note.phase == "pre_user" and note.messages), ())


def changed_arguments(hooks: Sequence[HookNote], ordinal: int) -> str | None:
    """The arguments of a call as the last pre-tool hook left them; None where none changed them."""
    for note in reversed(hooks):
        if note.phase == "pre_tool" and note.ordinal == ordinal and note.changed is not None:
            return note.changed
    return None


def refusing(hooks: Sequence[HookNote], ordinal: int) -> HookNote | None:
    """The note of the hook that keeps a call from being sent: it denied it, or failed. Any no wins."""
    return next(
        (note for note in hooks if note.phase == "pre_tool" and note.ordinal == ordinal and note.verdict in (DENIED, FAILED)),
        None,
    )
