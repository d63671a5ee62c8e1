"""Response body of a chat completion -> text deltas and one answer (wire 0.1, wire 2).

An answer is complete only with a `finish_reason` and, unless the server is known to leave it out, `[DONE]`.
"""

from semel.adapters.models import sse
from semel.adapters.models.decoding import Decoded, EventDecoder, TextRun, Undecodable, interrupted, reported
from semel.adapters.models.json_text import text_of
from semel.adapters.models.openai_chat.calls import CallAssembler
from semel.adapters.models.openai_chat.options import ChatOptions
from semel.adapters.models.openai_chat.reasoning import Reasoning
from semel.adapters.models.openai_chat.usage import usage_of
from semel.adapters.models.openai_errors import read_error
from semel.adapters.models.server_error import ServerError
from semel.core.values import JSON, Stop, printable
from semel.ports.model import FailureClass

_STOPS = {
    "stop": Stop.END_TURN,
    "eos": Stop.END_TURN,
    "length": Stop.MAX_TOKENS,
    "max_tokens": Stop.MAX_TOKENS,
    "model_length": Stop.MAX_TOKENS,
    "tool_calls": Stop.TOOL_USE,
    "function_call": Stop.TOOL_USE,
    "content_filter": Stop.CONTENT_FILTER,
}
_CUT = (Stop.MAX_TOKENS, Stop.CONTENT_FILTER)
_FAILED = {
    "error": FailureClass.SERVER_ERROR,
    "insufficient_system_resource": FailureClass.OVERLOADED,
    "abort": FailureClass.SERVER_ERROR,
}


def chat_decoder(options: ChatOptions) -> EventDecoder:
    """A decoder for one body; `options` say what the server is known for."""
    return EventDecoder(ChatAnswer(options))


class ChatAnswer:
    """What the chunks of one answer add up to. Implements decoding.Answer."""

    def __init__(self, options: ChatOptions) -> None:
        """Nothing yet."""
        self._options = options
        self._text = TextRun()
        self._refused = False
        self._calls, self._reasoning = CallAssembler(), Reasoning()
        self._usage: dict[str, JSON] | None = None
        self._finish = ""
        self._whole = False
        self.done = False
        self.progressed = False

    def event(self, event: sse.Event, value: JSON) -> str:
        """One chunk, or `[DONE]`."""
        if value is None:
            if not self._finish:
                raise interrupted("the stream ended without finish_reason")
            self.done = True
            return ""
        if event.type == "error" and isinstance(value, dict) and "error" not in value:
            value = {"error": value}
        return self._take(value, "delta")

    def document(self, value: JSON) -> None:
        """A completion of a server that does not stream, or its error."""
        if not isinstance(value, dict):
            raise Undecodable("the body is not an API response")
        self._take(value, "message")
        if not self._finish:
            raise Undecodable("the body holds no finished choice")
        self._whole = True

    def error_in(self, value: JSON) -> ServerError | None:
        """The error of a chunk."""
        return read_error(value)

    def decoded(self) -> Decoded:
        """The whole answer."""
        complete = self.done or self._whole or (self._finish and not self._options.dialect.done_required)
        if not complete:
            missing = "finish_reason" if not self._finish else "[DONE]"
            raise interrupted(f"the stream ended without {missing}")
        blocks = [*self._reasoning.blocks(), *self._text.blocks(), *self._calls.blocks()]
        stop = _STOPS.get(self._finish, Stop.OTHER)
        if stop in (Stop.END_TURN, Stop.TOOL_USE):
            stop = Stop.TOOL_USE if len(self._calls) else Stop.REFUSAL if self._refused else Stop.END_TURN
        usage = usage_of(self._usage, self._options)
        return Decoded(blocks=tuple(blocks), stop=stop, usage=usage, raw_stop=printable(self._finish, limit=100))

    def _take(self, chunk: JSON, member: str) -> str:
        """Add one chunk, whose choice holds its content under `member`; returns the text to show."""
        self.progressed = False
        if not isinstance(chunk, dict):
            return ""
        if (error := read_error(chunk)) is not None:
            raise reported(error)
        self._count(chunk.get("usage"))
        choice = _first_choice(chunk.get("choices"))
        if choice is None:
            return ""
        if (error := read_error(choice)) is not None:
            raise reported(error)
        self._count(choice.get("usage"))
        content = choice.get(member)
        shown = self._add(content) if isinstance(content, dict) else ""
        if reason := text_of(choice.get("finish_reason")):
            self._finished(reason)
        return shown

    def _add(self, content: dict[str, JSON]) -> str:
        piece, refusal = _content_text(content.get("content")), text_of(content.get("refusal"))
        if refusal:
            self._refused = True
            piece += refusal
        calls = content.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            self._calls.add(call)
        reasoned = self._reasoning.add(content)
        self.progressed = bool(piece or calls or reasoned)
        return self._text.add(piece)

    def _count(self, usage: JSON) -> None:
        """Counts are running totals, of which an object without any tells nothing."""
        if isinstance(usage, dict) and any(count is not None for count in usage.values()):
            self._usage = usage

    def _finished(self, reason: str) -> None:
        """Take a reason; one that says the answer was cut stays, whatever a later chunk says (B14)."""
        self.progressed = True
        if reason in _FAILED:
            raise Undecodable(f"the server ended the answer with finish_reason {reason!r}", failure=_FAILED[reason])
        if _STOPS.get(self._finish) not in _CUT:
            self._finish = reason


def _first_choice(choices: JSON) -> dict[str, JSON] | None:
    """Choice 0; it is the only one asked for."""
    for choice in choices if isinstance(choices, list) else ():
        if isinstance(choice, dict) and choice.get("index") in (None, 0):
            return choice
    return None


def _content_text(content: JSON) -> str:
    """The text of a `content`, which some servers send as a list of parts."""
    if isinstance(content, list):
        return "".join(text_of(part.get("text")) for part in content if isinstance(part, dict) and part.get("type") == "text")
    return text_of(content)
