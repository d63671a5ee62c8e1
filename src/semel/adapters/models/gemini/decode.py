"""Response body of generateContent -> text deltas and one answer (wire 0.1, wire 4).

There is no closing event: an answer is complete with a `finishReason`, or a `blockReason` for its prompt, and the end of the
body. Each event holds whole parts. Texts are joined only with their like: unsigned, and both thought or both not.
"""

from semel.adapters.models import sse
from semel.adapters.models.arguments import of_value
from semel.adapters.models.decoding import Decoded, EventDecoder, TextRun, Undecodable, interrupted, reported
from semel.adapters.models.gemini.errors import read_error
from semel.adapters.models.gemini.options import GeminiOptions
from semel.adapters.models.gemini.render import CALL_STATE, PART, TEXT_STATE
from semel.adapters.models.json_text import count_of, items_of, member, text_of
from semel.adapters.models.opaque import opaque
from semel.adapters.models.pricing import priced
from semel.adapters.models.server_error import ServerError
from semel.core.values import JSON, Block, Stop, Text, ToolCall, Usage, clean_text, printable
from semel.ports.model import FailureClass

_FILTERED = frozenset(
    {"SAFETY", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "RECITATION", "LANGUAGE", "MODEL_ARMOR", "ESCALATION"}
)
_FAILED = {
    "MALFORMED_FUNCTION_CALL": FailureClass.MALFORMED_OUTPUT,
    "UNEXPECTED_TOOL_CALL": FailureClass.MALFORMED_OUTPUT,
    "MALFORMED_RESPONSE": FailureClass.MALFORMED_OUTPUT,
    "NO_IMAGE": FailureClass.MALFORMED_OUTPUT,
    "OTHER": FailureClass.MALFORMED_OUTPUT,
    "TOO_MANY_TOOL_CALLS": FailureClass.INVALID_REQUEST,
    "MISSING_THOUGHT_SIGNATURE": FailureClass.OPAQUE_STATE_REJECTED,
    "PUP_LIMITED_DISABLED": FailureClass.AUTH,
}
_UNSPECIFIED = frozenset({"", "FINISH_REASON_UNSPECIFIED", "BLOCK_REASON_UNSPECIFIED", "BLOCKED_REASON_UNSPECIFIED"})


def gemini_decoder(options: GeminiOptions) -> EventDecoder:
    """A decoder for one body."""
    return EventDecoder(GeminiAnswer(options))


class GeminiAnswer:
    """What the events of one answer add up to. Implements decoding.Answer."""

    def __init__(self, options: GeminiOptions) -> None:
        """Nothing yet."""
        self._options = options
        self._shown = TextRun()
        self._parts: list[dict[str, JSON]] = []
        self._finish = self._blocked = ""
        self._usage: JSON = None
        self.done = False  # only the end of the body ends an answer
        self.progressed = False

    def event(self, event: sse.Event, value: JSON) -> str:
        """One response, which holds what is new of the answer."""
        del event
        self.progressed = False
        if value is None:
            return ""
        if (error := read_error(value)) is not None:
            raise reported(error)
        return self._take(value)

    def document(self, value: JSON) -> None:
        """A whole response, or, where events were not asked for, a list of what they would have held."""
        if (error := read_error(value)) is not None:
            raise reported(error)
        chunks = items_of(value) if isinstance(value, list) else [value]
        if not any("candidates" in chunk or "promptFeedback" in chunk for chunk in items_of(chunks)):
            raise Undecodable("the body is not a response")
        for chunk in chunks:
            if (error := read_error(chunk)) is not None:
                raise reported(error)
            self._take(chunk)

    def error_in(self, value: JSON) -> ServerError | None:
        """The error of an event."""
        return read_error(value)

    def decoded(self) -> Decoded:
        """The whole answer."""
        if not (self._finish or self._blocked):
            raise interrupted("the stream ended without a finishReason")
        if self._finish in _FAILED:
            raise Undecodable(f"the server ended the answer with finishReason {self._finish}", failure=_FAILED[self._finish])
        blocks = self._blocks()
        if self._finish == "STOP" and not any(isinstance(block, (Text, ToolCall)) for block in blocks):
            raise Undecodable("the answer has no parts", failure=FailureClass.MALFORMED_OUTPUT)
        stop = self._stop(any(isinstance(block, ToolCall) for block in blocks))
        usage = priced(_usage_of(self._usage), self._options.price)
        raw = printable(self._finish or self._blocked, limit=100)
        return Decoded(blocks=tuple(blocks), stop=stop, usage=usage, raw_stop=raw)

    def _take(self, value: JSON) -> str:
        if not isinstance(value, dict):
            return ""
        if isinstance(value.get("usageMetadata"), dict):
            self._usage = value["usageMetadata"]  # counts are running totals
        blocked = text_of(member(value, "promptFeedback", "blockReason"))
        if blocked not in _UNSPECIFIED:
            self._blocked, self.progressed = blocked, True
        shown = ""
        for candidate in items_of(value.get("candidates"))[:1]:
            for part in items_of(member(candidate, "content", "parts")):
                self._parts.append(part)
                self.progressed = self.progressed or bool(part.get("text")) or "text" not in part
                if not part.get("thought"):
                    shown += self._shown.add(text_of(part.get("text")))
            finish = text_of(candidate.get("finishReason"))
            if finish not in _UNSPECIFIED:
                self._finish, self.progressed = finish, True
        return shown

    def _stop(self, called: bool) -> Stop:  # noqa: FBT001  # says what was found, switches nothing
        if not self._finish:
            return Stop.CONTENT_FILTER
        if self._finish == "STOP":
            return Stop.TOOL_USE if called else Stop.END_TURN
        if self._finish == "MAX_TOKENS":
            return Stop.MAX_TOKENS
        filtered = self._finish in _FILTERED or self._finish.startswith("IMAGE_")
        return Stop.CONTENT_FILTER if filtered else Stop.OTHER

    def _blocks(self) -> list[Block]:
        blocks: list[Block] = []
        for part in _joined(self._parts):
            call = part.get("functionCall")
            if isinstance(call, dict):
                blocks += _called(part, call)
            elif isinstance(part.get("text"), str) and not part.get("thought"):
                blocks += self._said(part)
            elif any(name not in ("thought", "thoughtSignature", "text") or value for name, value in part.items()):
                blocks.append(opaque(PART, part))
        return blocks

    def _said(self, part: dict[str, JSON]) -> list[Block]:
        text = clean_text(text_of(part["text"]))
        state = {name: value for name, value in part.items() if name != "text"}
        kept = bool(state) and self._options.dialect.text_state
        if not text:
            return [opaque(PART, part)] if kept else []
        return [Text(text=text), *([opaque(TEXT_STATE, state)] if kept else [])]


def _joined(parts: list[dict[str, JSON]]) -> list[dict[str, JSON]]:
    """Adjacent texts as one where neither is signed; their other members are equal then."""
    result: list[dict[str, JSON]] = []
    for part in parts:
        last = result[-1] if result else {}
        if _is_bare(part) and _is_bare(last) and bool(part.get("thought")) == bool(last.get("thought")):
            result[-1] = {**last, "text": text_of(last["text"]) + text_of(part["text"])}
        else:
            result.append(part)
    return result


def _is_bare(part: dict[str, JSON]) -> bool:
    return isinstance(part.get("text"), str) and part.keys() <= {"text", "thought"}


def _called(part: dict[str, JSON], call: dict[str, JSON]) -> list[Block]:
    """A call, and its state; every call that Gemini made has one, so that those of other models are told from it."""
    args = call.get("args")
    given = text_of(call.get("id"))
    state = {**({"id": given} if given else {}), **{name: value for name, value in part.items() if name != "functionCall"}}
    name = clean_text(text_of(call.get("name")))
    return [
        ToolCall(id=clean_text(given), name=name, arguments=of_value({} if args is None else args)),
        opaque(CALL_STATE, state),
    ]


def _usage_of(raw: JSON) -> Usage:
    """Gemini counts what the cache served within the prompt, and what was thought beside the candidates (wire 0.7)."""
    prompt, extra = count_of(raw, "promptTokenCount"), count_of(raw, "toolUsePromptTokenCount")
    cache_read = count_of(raw, "cachedContentTokenCount")
    said, thought = count_of(raw, "candidatesTokenCount"), count_of(raw, "thoughtsTokenCount")
    return Usage(
        input=None if prompt is None else max(0, prompt + (extra or 0) - (cache_read or 0)),
        output=None if said is None and thought is None else (said or 0) + (thought or 0),
        cache_read=cache_read,
        reasoning=thought,
    )
