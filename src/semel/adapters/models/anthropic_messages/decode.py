"""Response body of the Messages API -> text deltas and one answer (wire 0.1, wire 1).

An answer is complete only with `message_stop`, and a stop reason before it. Blocks are kept in the order in which they began;
servers may start an index anew, send deltas for a block that never began, or a call's whole input with its start.
"""

from dataclasses import dataclass, field

from semel.adapters.models import sse
from semel.adapters.models.anthropic_messages.errors import error_object, read_error
from semel.adapters.models.anthropic_messages.options import MessagesOptions
from semel.adapters.models.anthropic_messages.render import OPAQUE_PREFIX
from semel.adapters.models.arguments import of_value, received
from semel.adapters.models.decoding import Decoded, EventDecoder, TextRun, Undecodable, interrupted, reported
from semel.adapters.models.json_text import count_of, items_of, member, parse, text_of
from semel.adapters.models.opaque import opaque, raw_member
from semel.adapters.models.pricing import priced
from semel.adapters.models.server_error import ServerError
from semel.core.values import JSON, Block, Stop, ToolCall, Usage, clean_text, printable

_STOPS = {
    "end_turn": Stop.END_TURN,
    "tool_use": Stop.TOOL_USE,
    "max_tokens": Stop.MAX_TOKENS,
    "model_context_window_exceeded": Stop.MAX_TOKENS,
    "stop_sequence": Stop.END_TURN,
    "refusal": Stop.REFUSAL,
}


def messages_decoder(options: MessagesOptions) -> EventDecoder:
    """A decoder for one body."""
    return EventDecoder(MessagesAnswer(options))


@dataclass
class _Open:
    """A block that is being assembled: what its start held, and its pieces."""

    start: dict[str, JSON]
    raw: str | None = None  # the text of a start that is all of a block
    text: TextRun = field(default_factory=TextRun)
    pieces: list[str] = field(default_factory=list)
    signature: str | None = None


class MessagesAnswer:
    """What the events of one answer add up to. Implements decoding.Answer."""

    def __init__(self, options: MessagesOptions) -> None:
        """Nothing yet."""
        self._options = options
        self._blocks: list[_Open] = []
        self._at_index: dict[JSON, _Open] = {}
        self._usage: dict[str, JSON] = {}
        self._stop_reason = ""
        self._whole = False
        self.done = False
        self.progressed = False

    def event(self, event: sse.Event, value: JSON) -> str:
        """One event. Those of an unknown type, and those without a payload, say nothing."""
        self.progressed = False
        if not isinstance(value, dict):
            return ""
        if event.type == "error" and "error" not in value:
            raise reported(error_object(value))
        if (error := read_error(value)) is not None:
            raise reported(error)
        kind = text_of(value.get("type")) or event.type
        if kind == "content_block_delta":
            return self._delta(value.get("index"), value.get("delta"))
        if kind == "content_block_start":
            return self._start(value.get("index"), value.get("content_block"), event.data)
        if kind == "message_start":
            self._count(member(value, "message", "usage"))
        elif kind == "message_delta":
            self._stopped(member(value, "delta", "stop_reason"))
            self._count(value.get("usage"))
        elif kind == "message_stop":
            if not self._stop_reason:
                raise interrupted("the stream ended without a stop_reason")
            self.done = True
        return ""

    def document(self, value: JSON) -> None:
        """A whole message of a server that does not stream, or its error."""
        if (error := read_error(value)) is not None:
            raise reported(error)
        if not isinstance(value, dict) or not isinstance(value.get("content"), list):
            raise Undecodable("the body is not a message")
        for index, block in enumerate(items_of(value["content"])):
            self._start(index, block)
        self._count(value.get("usage"))
        self._stopped(value.get("stop_reason"))
        if not self._stop_reason:
            raise Undecodable("the body holds no finished message")
        self._whole = True

    def error_in(self, value: JSON) -> ServerError | None:
        """The error of an event."""
        return read_error(value)

    def decoded(self) -> Decoded:
        """The whole answer."""
        if not (self.done or self._whole):
            raise interrupted("the stream ended without message_stop")
        blocks = tuple(block for opened in self._blocks for block in _finished(opened))
        stop = _STOPS.get(self._stop_reason, Stop.OTHER)
        if stop in (Stop.END_TURN, Stop.TOOL_USE):
            stop = Stop.TOOL_USE if any(isinstance(block, ToolCall) for block in blocks) else Stop.END_TURN
        usage = priced(_usage_of(self._usage), self._options.price)
        return Decoded(blocks=blocks, stop=stop, usage=usage, raw_stop=printable(self._stop_reason, limit=100))

    def _start(self, index: JSON, start: JSON, data: str = "") -> str:
        if not isinstance(start, dict):
            return ""
        assembled = not data or start.get("type") in ("text", "thinking", "tool_use")
        opened = _Open(start=start, raw=None if assembled else raw_member(data, "content_block"))
        self._blocks.append(opened)
        self._at_index[index if isinstance(index, int) else None] = opened
        self.progressed = True
        text = start.get("text") if start.get("type") == "text" else start.get("thinking")
        shown = opened.text.add(text_of(text))
        return shown if start.get("type") == "text" else ""

    def _delta(self, index: JSON, delta: JSON) -> str:
        opened = self._at_index.get(index if isinstance(index, int) else None)
        if opened is None or not isinstance(delta, dict):
            return ""
        kind = delta.get("type")
        piece = ""
        if kind == "text_delta":
            piece = text_of(delta.get("text"))
            shown = opened.text.add(piece)
            self.progressed = bool(piece)
            return shown
        if kind == "input_json_delta":
            piece = text_of(delta.get("partial_json"))
            opened.pieces.append(piece)
        elif kind == "thinking_delta":
            piece = text_of(delta.get("thinking"))
            opened.text.add(piece)
        elif kind == "signature_delta":
            piece = opened.signature = text_of(delta.get("signature"))
        self.progressed = bool(piece)
        return ""

    def _stopped(self, reason: JSON) -> None:
        if text_of(reason):
            self._stop_reason = text_of(reason)
            self.progressed = True

    def _count(self, usage: JSON) -> None:
        """Counts are running totals; what a later event leaves out keeps its value."""
        if isinstance(usage, dict):
            self._usage.update({name: count for name, count in usage.items() if count is not None})


def _finished(opened: _Open) -> list[Block]:
    start, kind = opened.start, text_of(opened.start.get("type"))
    if kind == "text":
        return opened.text.blocks()
    if kind == "tool_use":
        text = "".join(opened.pieces)
        arguments = received(text) if text.strip() or not start.get("input") else of_value(start["input"])
        name, call_id = clean_text(text_of(start.get("name"))), clean_text(text_of(start.get("id")))
        return [ToolCall(id=call_id, name=name, arguments=arguments)]
    if kind == "thinking":
        start = {**start, "thinking": opened.text.text}
        if opened.signature is not None:
            start["signature"] = opened.signature
    elif opened.pieces:
        opened.raw, start = None, {**start, "input": parse("".join(opened.pieces)) or {}}
    return [opaque(OPAQUE_PREFIX + printable(kind, limit=64), start, opened.raw)] if kind else []


def _usage_of(raw: dict[str, JSON]) -> Usage:
    """Anthropic counts input without what the cache served or took (wire 0.7)."""
    return Usage(
        input=count_of(raw, "input_tokens"),
        output=count_of(raw, "output_tokens"),
        cache_read=count_of(raw, "cache_read_input_tokens"),
        cache_write=count_of(raw, "cache_creation_input_tokens"),
        reasoning=count_of(raw, "output_tokens_details", "thinking_tokens"),
    )
