"""Prompt -> request body: deterministic, and each message is rendered once (P4, P10, wire 0.3). What all families share.

A body is its head (all before the first message), what each message adds, and its tail (all behind the last one). The head and
the messages are kept with their running digest, so that the next step of the conversation costs its own messages and a copy.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from msgspec.structs import replace

from semel.adapters.models.media import told
from semel.core.persistent import Growing
from semel.core.values import JSON, NO_MEDIA, AssistantMessage, Bundle, Message, Prompt, Text
from semel.ports.model import Request

KEPT_BYTES = 64 * 1024 * 1024


@dataclass
class Place:
    """Where a conversation stands: the role whose turn is open, and what later messages need to know of those before them.

    `names` holds the tool of each call of the last answer by its id, `wire_ids` the id that its provider gave it, where that
    one is echoed; `tools` the names of all tools that were ever called, in that order; `documents` counts the documents of each
    name, where no two may have the same; `shown` what tools showed and a family can only say behind all results. `counted` are
    the pictures and documents shown since the last answer, for servers that take so many of them in one message. `media` holds
    bytes by their sha256 while messages that name them are rendered, and no longer.
    """

    role: str = ""
    media: Mapping[str, bytes] = field(default_factory=lambda: NO_MEDIA)
    names: dict[str, str] = field(default_factory=dict)
    wire_ids: dict[str, str] = field(default_factory=dict)
    tools: dict[str, None] = field(default_factory=dict)
    documents: dict[str, int] = field(default_factory=dict)
    shown: list[JSON] = field(default_factory=list)
    counted: dict[str, int] = field(default_factory=dict)


class Form(Protocol):
    """How a family writes a body."""

    def head(self, instructions: str, place: Place) -> bytes:
        """Everything before the first message; `place` is where that message then stands."""

    def message(self, message: Message, place: Place) -> bytes:
        """What a message adds behind those before it; `place` moves on."""

    def tail(self, prompt: Prompt, place: Place) -> bytes:
        """Everything behind the last message."""


@dataclass
class _Kept:
    """The rendered start of one conversation, up to and including the last of `messages`."""

    messages: Sequence[Message]
    head: bytes
    body: bytearray
    place: Place
    digest: "hashlib._Hash" = field(repr=False)


class Renderer:
    """Renders in one form. Keeps what it rendered of the conversations it saw last, within KEPT_BYTES."""

    def __init__(self, form: Form, bundle: Bundle | None = None) -> None:
        """`form` is bound to one `bundle`, which another renderer need not know."""
        self._form, self.bundle = form, bundle
        self._kept: OrderedDict[int, _Kept] = OrderedDict()  # by the identity of their origin, which the value keeps alive
        self._kept_bytes = 0

    @property
    def size_bytes(self) -> int:
        """What it keeps."""
        return self._kept_bytes

    def render(self, prompt: Prompt) -> Request:
        """One request body. The cost beyond copying it is that of the messages not rendered before."""
        kept = self._grown(prompt)
        tail = self._form.tail(prompt, kept.place)
        digest = kept.digest.copy()
        digest.update(tail)
        return Request(body=b"".join((kept.body, tail)), sha256=digest.hexdigest())

    def _grown(self, prompt: Prompt) -> _Kept:
        messages, place = prompt.messages, Place()
        head = self._form.head(prompt.instructions, place)
        if not messages:
            return _fresh(head, place)
        key = id(messages.origin if isinstance(messages, Growing) else messages[0])
        kept = self._kept.pop(key, None)
        if kept is not None:
            self._kept_bytes -= len(kept.body)
        if kept is None or kept.head != head or not _continues(kept.messages, messages):
            kept = _fresh(head, place)
        self._extend(kept, messages, prompt.media)
        self._kept[key] = kept
        self._kept_bytes += len(kept.body)
        while self._kept_bytes > KEPT_BYTES and len(self._kept) > 1:
            self._kept_bytes -= len(self._kept.popitem(last=False)[1].body)
        return kept

    def _extend(self, kept: _Kept, messages: Sequence[Message], media: Mapping[str, bytes]) -> None:
        kept.place.media = media
        for index in range(len(kept.messages), len(messages)):
            message = messages[index]
            if isinstance(message, AssistantMessage):
                kept.place.counted.clear()
            more = self._form.message(_in_words(message), kept.place)
            kept.body += more
            kept.digest.update(more)
        kept.place.media = NO_MEDIA
        kept.messages = messages if isinstance(messages, Growing) else tuple(messages)


def _in_words(message: Message) -> Message:
    """What a model itself made, such as a picture, goes back as a text that names it: no family takes it in an answer."""
    if not isinstance(message, AssistantMessage) or not message.parts:
        return message
    return replace(message, blocks=(*message.blocks, Text(text=told(message.parts))), parts=())


def _fresh(head: bytes, place: Place) -> _Kept:
    return _Kept(messages=(), head=head, body=bytearray(head), place=place, digest=hashlib.sha256(head))


def _continues(before: Sequence[Message], now: Sequence[Message]) -> bool:
    """Whether `now` starts with the very messages of `before`. O(1) for two versions of one, which the engine renders."""
    if isinstance(before, Growing) and isinstance(now, Growing):
        return now.grew_from(before)
    return len(now) >= len(before) and all(old is new for old, new in zip(before, now, strict=False))
