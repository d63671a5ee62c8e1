"""The values that everything else speaks of: text, messages, tools, usage, money, derived ids.

All are frozen. Text is clean by the time it is in one of these: `clean_text` runs once, where text enters (design 3).
"""

import enum
import hashlib
import math
import unicodedata
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec

JSON = Any  # a JSON value: dict, list, str, int, float, bool or None


class Frozen(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Base of all values: immutable and encoded without the fields that have their default (W40). By keyword only.

    What never changes refers to nothing that came after it, so no cycle goes through a value and the collector passes it over.
    """


class Effect(enum.StrEnum):
    """May a call of this tool run again after a crash?"""

    ONCE = "once"  # never: what became of it is asked or a person decides
    IDEMPOTENT = "idempotent"  # yes, under the same key
    READ = "read"  # yes, freely


class Stop(enum.StrEnum):
    """Why the model stopped, in the words of no provider."""

    END_TURN = "end_turn"
    TOOL_USE = "tool_use"
    MAX_TOKENS = "max_tokens"
    CONTENT_FILTER = "content_filter"
    REFUSAL = "refusal"
    OTHER = "other"


class Text(Frozen, frozen=True, kw_only=True, tag="text"):
    """Text that the model wrote or is to read."""

    text: str


class ToolCall(Frozen, frozen=True, kw_only=True, tag="tool_call"):
    """A call as the model issued it. `arguments` is its own text, byte for byte; `id` pairs it with its result only."""

    id: str
    name: str
    arguments: str


class Opaque(Frozen, frozen=True, kw_only=True, tag="opaque"):
    """Provider state, kept as received. `format` names what it is; `data` is its JSON text, echoed to the same model only."""

    format: str
    data: str


class Media(Frozen, frozen=True, kw_only=True, tag="media"):
    """A picture, sound or document: a reference to a blob of the session, named by the sha256 of its bytes."""

    media_type: str
    sha256: str
    size_bytes: int
    name: str | None = None


Part = Text | Media
Block = Text | ToolCall | Opaque

STATE_OF_TEXT = frozenset({"gemini.text", "responses.message"})
"""Formats of state that belongs to the text directly before it, such as its signature; that text may be blank (M1)."""


def is_idle(blocks: Sequence[Block], at: int) -> bool:
    """Whether this block is a blank text, with no provider state of its own behind it."""
    block = blocks[at]
    return isinstance(block, Text) and not block.text.strip() and not has_state(blocks, at)


def has_state(blocks: Sequence[Block], at: int) -> bool:
    """Whether provider state of its own stands directly behind this text."""
    behind = blocks[at + 1] if at + 1 < len(blocks) else None
    return isinstance(behind, Opaque) and behind.format in STATE_OF_TEXT


class UserMessage(Frozen, frozen=True, kw_only=True, tag="user"):
    """What a person, or semel on their behalf, says to the model: a text, and the files and the like that it speaks of.

    A request shows the parts in front of the text.
    """

    text: str
    parts: tuple[Part, ...] = ()


class AssistantMessage(Frozen, frozen=True, kw_only=True, tag="assistant"):
    """One model answer: its blocks in the order received, and the pictures and the like that the model made."""

    blocks: tuple[Block, ...]
    parts: tuple[Part, ...] = ()

    @property
    def text(self) -> str:
        """All text blocks, joined."""
        return "".join([block.text for block in self.blocks if isinstance(block, Text)])

    @property
    def opaque(self) -> bool:
        """Whether it holds provider state."""
        return any(isinstance(block, Opaque) for block in self.blocks)

    @property
    def has_calls(self) -> bool:
        """Whether it calls any tool."""
        for block in self.blocks:  # noqa: SIM110  every answer of a log is asked, and a generator costs more than the loop
            if isinstance(block, ToolCall):
                return True
        return False

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The tool calls, in issue order; a call's ordinal is its index here."""
        return tuple([block for block in self.blocks if isinstance(block, ToolCall)])


class ToolMessage(Frozen, frozen=True, kw_only=True, tag="tool"):
    """What the model is told about one call: a text or ordered parts; where both are there, the text comes first."""

    tool_call_id: str
    text: str
    is_error: bool = False
    parts: tuple[Part, ...] = ()


Message = UserMessage | AssistantMessage | ToolMessage


class ToolSpec(Frozen, frozen=True, kw_only=True):
    """A tool as the model sees it and as recovery must know it. `parameters` is the JSON Schema as canonical JSON text.

    `effect`, `interruptible` and `sequential` are independent of each other (Q11, A13). Milliseconds throughout. `module` names
    who provides it, where that is somebody else than the agent (R12).
    """

    name: str
    description: str
    parameters: str
    effect: Effect = Effect.ONCE
    interruptible: bool = True
    sequential: bool = False
    reconciles: bool = False
    timeout_ms: int | None = None
    module: str | None = None


class Money(Frozen, frozen=True, kw_only=True):
    """An amount in millionths of a currency unit, so that sums are exact."""

    micros: int
    currency: str

    def __str__(self) -> str:
        """Amount with at least two decimals, then the currency."""
        text = f"{self.micros / 1_000_000:.6f}".rstrip("0")
        whole, _, part = text.partition(".")
        return f"{whole}.{part.ljust(2, '0')} {self.currency}"


class Usage(Frozen, frozen=True, kw_only=True):
    """Tokens of one answer or of a run. None is "not reported", not zero (FACT12). `input` is without cache reads and writes."""

    input: int | None = None
    output: int | None = None
    cache_read: int | None = None
    cache_write: int | None = None
    reasoning: int | None = None
    cost: Money | None = None

    @property
    def total(self) -> int:
        """All input and output tokens that were reported; this is what a token limit counts."""
        return (self.input or 0) + (self.output or 0) + (self.cache_read or 0) + (self.cache_write or 0)


def add_usage(one: Usage, other: Usage) -> Usage:
    """Sum field by field; a field that neither reported stays unreported. Currencies must agree (K14 is checked before)."""
    cost = other.cost if one.cost is None else one.cost
    if one.cost is not None and other.cost is not None:
        cost = Money(micros=one.cost.micros + other.cost.micros, currency=one.cost.currency)
    return Usage(
        input=other.input if one.input is None else one.input + (other.input or 0),
        output=other.output if one.output is None else one.output + (other.output or 0),
        cache_read=other.cache_read if one.cache_read is None else one.cache_read + (other.cache_read or 0),
        cache_write=other.cache_write if one.cache_write is None else one.cache_write + (other.cache_write or 0),
        reasoning=other.reasoning if one.reasoning is None else one.reasoning + (other.reasoning or 0),
        cost=cost,
    )


class Bundle(Frozen, frozen=True, kw_only=True):
    """The frozen render bundle of a run: all that decides the bytes of its requests, beside the prompt (P4).

    `options` is canonical JSON text of family-specific settings. `renderer` is the version of the family's renderer (P6).
    """

    family: str
    model: str
    endpoint: str
    renderer: int
    max_output_tokens: int | None = None
    options: str = "{}"


NO_MEDIA: Mapping[str, bytes] = MappingProxyType({})


class Prompt(Frozen, frozen=True, kw_only=True):
    """All that a family renders into one request body. `messages` is append-only between the steps of a session.

    `media` holds the bytes that the messages name, by their sha256; it may load each when it is asked for.
    """

    instructions: str
    tools: tuple[ToolSpec, ...]
    messages: Sequence[Message]
    media: Mapping[str, bytes] = NO_MEDIA


def clean_text(text: str) -> str:
    """Make text storable: lone surrogates and NUL become U+FFFD. Runs once, where text enters (B19)."""
    if text.isascii():
        return text.replace("\0", "\ufffd") if "\0" in text else text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").replace("\0", "\ufffd")


def clean_json(value: JSON) -> JSON:
    """A copy of a JSON value whose texts, keys included, are clean (B19)."""
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, dict):
        return {clean_text(key): clean_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [clean_json(item) for item in value]
    return value


def control_free(text: str) -> str:
    """A clean text whose control characters, other than line breaks and tabs, are spaces (T10)."""
    text = clean_text(text)
    if text.isprintable():
        return text
    return "".join(" " if unicodedata.category(c) == "Cc" and c not in "\n\t" else c for c in text)


def printable(text: str, *, limit: int) -> str:
    """One bounded, control-free line for an error or a reason (T4): controls become spaces, the cut is on a code point."""
    flat = " ".join("".join(c if c.isprintable() else " " for c in clean_text(text)).split())
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"


DERIVED_DIGITS = 32


def derived_id(*parts: str | int) -> str:
    """First 32 hex of sha256 over the parts joined by U+001F (design 14)."""
    return hashlib.sha256("\x1f".join(map(str, parts)).encode()).hexdigest()[:DERIVED_DIGITS]


def digest_text(text: str) -> str:
    """First 32 hex of the sha256 of a text."""
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def finite(value: JSON) -> bool:
    """Whether a JSON value holds no NaN or infinity, which JSON cannot carry."""
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, dict):
        return all(finite(item) for item in value.values())
    if isinstance(value, (list, tuple)):
        return all(finite(item) for item in value)
    return True
