"""Response body of ConverseStream -> text deltas and one answer (wire 0.1, wire 5).

An answer is complete with `messageStop` and, unless it is known to be missing, the `metadata` behind it, at the end of a frame.
A wrong checksum and a frame that the end of the body cuts are damage on the way: interrupted. Only calls have a start event;
text and reasoning begin with their first delta.
"""

import base64
from collections.abc import Iterator
from dataclasses import dataclass, field

from semel.adapters.models.arguments import of_value, received
from semel.adapters.models.bedrock_converse.errors import exception
from semel.adapters.models.bedrock_converse.frames import FRAME_BYTES_MAX, Frame, FrameDamaged, FrameParser
from semel.adapters.models.bedrock_converse.options import ConverseOptions
from semel.adapters.models.bedrock_converse.render import REASONING
from semel.adapters.models.decoding import JSON_BODY_BYTES_MAX, Decoded, TextRun, Undecodable, interrupted, reported
from semel.adapters.models.json_text import count_of, items_of, member, parse, text_of
from semel.adapters.models.opaque import opaque
from semel.adapters.models.pricing import priced
from semel.core.values import JSON, Block, Stop, ToolCall, Usage, clean_text, printable
from semel.ports.model import FailureClass

_HEAD_BYTES = 1024
_STOPS = {
    "end_turn": Stop.END_TURN,
    "tool_use": Stop.TOOL_USE,
    "max_tokens": Stop.MAX_TOKENS,
    "model_context_window_exceeded": Stop.MAX_TOKENS,
    "stop_sequence": Stop.END_TURN,
    "guardrail_intervened": Stop.CONTENT_FILTER,
    "content_filtered": Stop.CONTENT_FILTER,
    "refusal": Stop.REFUSAL,
}
_EVENTS = frozenset({"contentBlockDelta", "contentBlockStart", "messageStop", "metadata"})
_MALFORMED = frozenset({"malformed_model_output", "malformed_tool_use"})


@dataclass
class _Open:
    """A block that is being assembled."""

    call: dict[str, JSON] | None = None
    text: TextRun = field(default_factory=TextRun)
    thought: TextRun = field(default_factory=TextRun)
    pieces: list[str] = field(default_factory=list)
    signature: str | None = None
    redacted: list[str] = field(default_factory=list)
    reasons: bool = False


class ConverseDecoder:
    """Reads one body of frames, or a JSON document instead of them. Implements decoding.Decoder."""

    def __init__(self, options: ConverseOptions) -> None:
        """Nothing yet."""
        self._options = options
        self._parser = FrameParser()
        self._document: bytearray | None = None
        self._blocks: dict[JSON, _Open] = {}
        self._stop_reason = ""
        self._usage: JSON = None
        self.head = b""
        self.done = False
        self.progressed = False

    def feed(self, chunk: bytes) -> Iterator[str]:
        """Yield the text that `chunk` adds. Raises Undecodable."""
        self.progressed = False
        if not self.head and chunk and chunk[0] > FRAME_BYTES_MAX >> 24:
            self._document = bytearray()  # no frame is so long that it could start like this
        if len(self.head) < _HEAD_BYTES:
            self.head += chunk[:_HEAD_BYTES]
        if self._document is not None:
            self._document += chunk
            self.progressed = True
            if len(self._document) > JSON_BODY_BYTES_MAX:
                raise Undecodable(f"the body is longer than {JSON_BODY_BYTES_MAX} bytes", failure=FailureClass.MALFORMED_OUTPUT)
            return
        try:
            for frame in self._parser.feed(chunk):
                if text := self._take(frame):
                    yield text
        except FrameDamaged as damage:
            raise interrupted(str(damage)) from None

    def trailer(self, rest: bytes) -> None:
        """Nothing follows the metadata."""

    def result(self) -> Decoded:
        """The answer. Raises Undecodable if the body ended without one."""
        if self._document is not None:
            self._whole(parse(bytes(self._document)))
        elif self._parser.pending:
            raise interrupted("the stream ended within a frame")
        elif not self._stop_reason or (self._options.dialect.metadata_required and not self.done):
            raise interrupted(f"the stream ended without {'metadata' if self._stop_reason else 'messageStop'}")
        if self._stop_reason in _MALFORMED:
            raise Undecodable(
                f"the server ended the answer with stopReason {self._stop_reason}", failure=FailureClass.MALFORMED_OUTPUT
            )
        blocks = tuple(block for opened in self._blocks.values() for block in self._finished(opened))
        stop = _STOPS.get(self._stop_reason, Stop.OTHER)
        if stop in (Stop.END_TURN, Stop.TOOL_USE):
            stop = Stop.TOOL_USE if any(isinstance(block, ToolCall) for block in blocks) else Stop.END_TURN
        usage = priced(_usage_of(self._usage), self._options.price)
        return Decoded(blocks=blocks, stop=stop, usage=usage, raw_stop=printable(self._stop_reason, limit=100))

    def _take(self, frame: Frame) -> str:
        kind, payload = frame.headers.get(":message-type", "event"), parse(frame.payload) if frame.payload else None
        if kind == "error":
            told = {"message": frame.headers.get(":error-message", "")}
            raise reported(exception(frame.headers.get(":error-code", ""), told))
        if kind == "exception":
            raise reported(exception(frame.headers.get(":exception-type", ""), payload))
        event = frame.headers.get(":event-type", "")
        if event not in _EVENTS:
            return ""  # whatever it holds (wire 5)
        if not isinstance(payload, dict):
            raise interrupted("the stream holds an event that is not JSON")
        if event == "contentBlockDelta":
            return self._delta(self._block(payload), payload.get("delta"))
        if event == "contentBlockStart":
            call = member(payload, "start", "toolUse")
            if isinstance(call, dict):
                self._block(payload).call = call
                self.progressed = True
        elif event == "messageStop":
            self._stop_reason = text_of(payload.get("stopReason"))
            self.progressed = True
        elif event == "metadata":
            self._usage = payload.get("usage")
            self.done = bool(self._stop_reason)
        return ""

    def _block(self, payload: dict[str, JSON]) -> _Open:
        index = payload.get("contentBlockIndex")
        return self._blocks.setdefault(index if isinstance(index, int) else None, _Open())

    def _delta(self, opened: _Open, delta: JSON) -> str:
        piece = text_of(member(delta, "text"))
        if piece:
            self.progressed = True
            return opened.text.add(piece)
        called = text_of(member(delta, "toolUse", "input"))
        thought = member(delta, "reasoningContent")
        opened.pieces.append(called)
        if isinstance(thought, dict):
            opened.reasons = True
            opened.thought.add(text_of(thought.get("text")))
            if isinstance(thought.get("signature"), str):
                opened.signature = thought["signature"]
            if redacted := text_of(thought.get("redactedContent")):
                opened.redacted.append(redacted)
        self.progressed = self.progressed or bool(called or thought)
        return ""

    def _whole(self, body: JSON) -> None:
        """A response of Converse without streaming; anything else that is no stream is no answer."""
        content = member(body, "output", "message", "content")
        if not isinstance(content, list) or not text_of(member(body, "stopReason")):
            raise Undecodable("the body is not an API response")
        for index, item in enumerate(items_of(content)):
            opened = self._blocks.setdefault(index, _Open())
            opened.text.add(text_of(item.get("text")))
            if isinstance(item.get("toolUse"), dict):
                opened.call = item["toolUse"]
            reasoned = item.get("reasoningContent")
            if isinstance(reasoned, dict):
                self._delta(opened, {"reasoningContent": member(reasoned, "reasoningText") or reasoned})
        self._stop_reason, self._usage = text_of(member(body, "stopReason")), member(body, "usage")

    def _finished(self, opened: _Open) -> list[Block]:
        if opened.call is not None:
            text, whole = "".join(opened.pieces), opened.call.get("input")
            arguments = received(text) if text.strip() or not whole else of_value(whole)
            name, call_id = text_of(opened.call.get("name")), text_of(opened.call.get("toolUseId"))
            return [ToolCall(id=clean_text(call_id), name=clean_text(name), arguments=arguments)]
        reasoned: list[Block] = []
        if opened.reasons and self._options.dialect.reasoning:
            reasoned = [opaque(REASONING, {"reasoningContent": content}) for content in _contents(opened)]
        return [*reasoned, *opened.text.blocks()]


def _contents(opened: _Open) -> Iterator[dict[str, JSON]]:
    """What goes back: the text with its signature as one, the redacted part as the text that it came as."""
    text = opened.thought.text
    if text or opened.signature is not None:
        signed = {} if opened.signature is None else {"signature": opened.signature}
        yield {"reasoningText": {"text": text, **signed}}
    if opened.redacted:
        yield {"redactedContent": opened.redacted[0] if len(opened.redacted) == 1 else _joined(opened.redacted)}


def _joined(parts: list[str]) -> str:
    """Several base64 texts as one, for which their bytes have to be put together; as they came where they are none."""
    try:
        return base64.b64encode(b"".join(base64.b64decode(part) for part in parts)).decode()
    except ValueError:
        return "".join(parts)


def _usage_of(raw: JSON) -> Usage:
    """Bedrock counts input without what the cache served or took (wire 0.7)."""
    return Usage(
        input=count_of(raw, "inputTokens"),
        output=count_of(raw, "outputTokens"),
        cache_read=count_of(raw, "cacheReadInputTokens"),
        cache_write=count_of(raw, "cacheWriteInputTokens"),
    )
