"""Response body of a chat completion -> text deltas and one answer (wire 0.1, wire 2).

An answer is complete only with a `finish_reason` and, unless the server is known to leave it out, `[DONE]`. Whatever else ends
the body is `interrupted`, however complete it looks. What the first byte shows decides how the body is read: some servers send
JSON or a web page under the content type of a stream.
"""

import json
from collections.abc import Iterator

from semel.adapters.models import sse
from semel.adapters.models.openai_chat.calls import CallAssembler
from semel.adapters.models.openai_chat.errors import ServerError, class_of_finish, read_error
from semel.adapters.models.openai_chat.options import ChatOptions
from semel.adapters.models.openai_chat.reasoning import Reasoning
from semel.adapters.models.openai_chat.usage import usage_of
from semel.core.values import JSON, Block, Frozen, Stop, Text, Usage, clean_text, printable
from semel.ports.model import FailureClass

JSON_BODY_BYTES_MAX = 16 * 1024 * 1024
_FIELDS = (b":", b"data", b"event", b"id", b"retry")
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


class Decoded(Frozen, frozen=True, kw_only=True):
    """A complete answer without the facts of its exchange."""

    blocks: tuple[Block, ...]
    stop: Stop
    usage: Usage
    raw_stop: str


class Undecodable(Exception):
    """The body gives no answer: because of `failure`, because the server reported `error`, or because it is no API's at all."""

    def __init__(self, message: str, *, failure: FailureClass | None = None, error: ServerError | None = None) -> None:
        """Neither `failure` nor `error` means that the body is not a response of an API."""
        super().__init__(message)
        self.failure, self.error = failure, error


class BodyDecoder:
    """Push-style: `feed` the chunks of one body, then take `result`. Nothing of it outlives the exchange (B27)."""

    def __init__(self, options: ChatOptions) -> None:
        """`options` say what the server is known for."""
        self._answer = _Answer(options)
        self._done_required = options.dialect.done_required
        self._parser = sse.Parser()
        self._json: bytearray | None = None
        self._start = b""  # white space before the first byte that tells what the body is
        self._told = False
        self.head = b""  # the first bytes, for an error message
        self.done = False  # nothing that follows can change the answer
        self.progressed = False  # whether the last chunk fed held content

    def feed(self, chunk: bytes) -> Iterator[str]:
        """Yield the text that `chunk` adds. Raises Undecodable."""
        self.progressed = False
        if len(self.head) < 1024:
            self.head += chunk[:1024]
        if not self._told:
            self._start += chunk
            chunk = self._start if self._tell() else b""
        if self._json is not None:
            self._json += chunk
            self.progressed = True
            if len(self._json) > JSON_BODY_BYTES_MAX:
                raise Undecodable(f"the body is longer than {JSON_BODY_BYTES_MAX} bytes", failure=FailureClass.MALFORMED_OUTPUT)
            return
        yield from self._events(chunk)

    def result(self) -> Decoded:
        """The answer. Raises Undecodable if the body ended without one."""
        if self._json is not None:
            return self._whole()
        if not self.done and not (self._answer.finish and not self._done_required):
            if not _looks_like_events(self.head):
                raise Undecodable("the body is no stream of events")
            missing = "finish_reason" if not self._answer.finish else "[DONE]"
            raise Undecodable(f"the stream ended without {missing}", failure=FailureClass.INTERRUPTED)
        return self._answer.decoded()

    def _tell(self) -> bool:
        """Find out what the body is; False if all so far is white space."""
        start = self._start.removeprefix(b"\xef\xbb\xbf").lstrip(b" \t\r\n")
        if not start:
            return False
        self._told = True
        if start[:1] in b'{[<"' or start[:4] == b"null":
            self._json = bytearray()
        return True

    def _events(self, chunk: bytes) -> Iterator[str]:
        try:
            for event in self._parser.feed(chunk):
                if self.done:
                    return
                yield from self._event(event)
        except sse.EventTooLarge as error:
            raise Undecodable(str(error), failure=FailureClass.MALFORMED_OUTPUT) from None

    def _event(self, event: sse.Event) -> Iterator[str]:
        data = event.data.strip()
        if data == "[DONE]":
            if not self._answer.finish:
                raise Undecodable("the stream ended without finish_reason", failure=FailureClass.INTERRUPTED)
            self.done = True
            return
        if not data:
            return
        chunk = None if event.damaged else _parsed(data)
        if chunk is None:
            raise Undecodable("the stream holds an event that is not JSON", failure=FailureClass.INTERRUPTED)
        if event.type == "error" and isinstance(chunk, dict) and "error" not in chunk:
            chunk = {"error": chunk}
        if text := self._answer.take(chunk, "delta"):
            yield text
        self.progressed = self.progressed or self._answer.progressed

    def _whole(self) -> Decoded:
        """A body that is one JSON document: an error, or an answer from a server that does not stream."""
        body = _parsed((self._json or b"").decode(errors="replace"))
        if not isinstance(body, dict):
            raise Undecodable("the body is not an API response")
        self._answer.take(body, "message")
        if not self._answer.finish:
            raise Undecodable("the body holds no finished choice")
        return self._answer.decoded()


class _Answer:
    """What the chunks of one answer add up to."""

    def __init__(self, options: ChatOptions) -> None:
        self._options = options
        self._text: list[str] = []
        self._refused = False
        self._carry = ""  # a high surrogate whose other half may come with the next delta (B19)
        self._calls, self._reasoning = CallAssembler(), Reasoning()
        self._usage: dict[str, JSON] | None = None
        self.finish = ""
        self.progressed = False

    def take(self, chunk: JSON, member: str) -> str:
        """Add one chunk, whose choice holds its content under `member`; returns the text to show."""
        self.progressed = False
        if not isinstance(chunk, dict):
            return ""
        if (error := read_error(chunk)) is not None:
            raise Undecodable(error.message, error=error)
        self._count(chunk.get("usage"))
        choice = _first_choice(chunk.get("choices"))
        if choice is None:
            return ""
        if (error := read_error(choice)) is not None:
            raise Undecodable(error.message, error=error)
        self._count(choice.get("usage"))
        content = choice.get(member)
        shown = self._add(content) if isinstance(content, dict) else ""
        reason = choice.get("finish_reason")
        if isinstance(reason, str) and reason:
            self._finish(reason)
        return shown

    def decoded(self) -> Decoded:
        """The whole answer, its text cleaned once all of it is joined."""
        blocks = self._reasoning.blocks()
        if text := clean_text("".join(self._text)):
            blocks.append(Text(text=text))
        blocks.extend(self._calls.blocks())
        stop = _STOPS.get(self.finish, Stop.OTHER)
        if stop in (Stop.END_TURN, Stop.TOOL_USE):
            stop = Stop.TOOL_USE if len(self._calls) else Stop.REFUSAL if self._refused else Stop.END_TURN
        usage = usage_of(self._usage, self._options)
        return Decoded(blocks=tuple(blocks), stop=stop, usage=usage, raw_stop=printable(self.finish, limit=100))

    def _add(self, content: dict[str, JSON]) -> str:
        piece, refusal = _content_text(content.get("content")), content.get("refusal")
        if isinstance(refusal, str) and refusal:
            self._refused = True
            piece += refusal
        if piece:
            self._text.append(piece)
        calls = content.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            self._calls.add(call)
        reasoned = self._reasoning.add(content)
        self.progressed = bool(piece or calls or reasoned)
        return self._shown(piece)

    def _shown(self, piece: str) -> str:
        piece = self._carry + piece
        self._carry = ""
        if piece and "\ud800" <= piece[-1] <= "\udbff":
            piece, self._carry = piece[:-1], piece[-1]
        return clean_text(piece)

    def _count(self, usage: JSON) -> None:
        if isinstance(usage, dict):
            self._usage = usage

    def _finish(self, reason: str) -> None:
        self.progressed = True
        if (failure := class_of_finish(reason)) is not None:
            raise Undecodable(f"the server ended the answer with finish_reason {reason!r}", failure=failure)
        self.finish = reason


def _looks_like_events(head: bytes) -> bool:
    """Whether the start of a body, however short, can be that of a stream of events."""
    line = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    return any(line.startswith(field) or field.startswith(line) for field in _FIELDS)


def _first_choice(choices: JSON) -> dict[str, JSON] | None:
    """Choice 0; it is the only one asked for."""
    for choice in choices if isinstance(choices, list) else ():
        if isinstance(choice, dict) and choice.get("index") in (None, 0):
            return choice
    return None


def _content_text(content: JSON) -> str:
    """The text of a `content`, which some servers send as a list of parts."""
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict) and part.get("type") == "text"]
        return "".join(part for part in parts if isinstance(part, str))
    return content if isinstance(content, str) else ""


def _parsed(text: str) -> JSON:
    """The JSON value of a text, None if it is none. `json` and not msgspec: it lets half a surrogate pair through (B19)."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
