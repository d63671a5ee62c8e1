"""Response body -> text deltas and one answer: what every family's decoder shares (wire 0.1, B30).

An answer is complete only with the terminal event of its family. Whatever else ends the body is `interrupted`, however complete
it looks. What the first byte shows decides how the body is read: some servers send JSON or a web page under the content type of
a stream.
"""

from collections.abc import Iterator
from typing import Protocol

from semel.adapters.models import sse
from semel.adapters.models.json_text import parse
from semel.adapters.models.server_error import ServerError
from semel.core.values import JSON, Block, Frozen, Stop, Text, Usage, clean_text
from semel.ports.model import FailureClass

JSON_BODY_BYTES_MAX = 16 * 1024 * 1024
_HEAD_BYTES = 1024
_FIELDS = (b":", b"data", b"event", b"id", b"retry")


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


def reported(error: ServerError) -> Undecodable:
    """What the server itself said went wrong."""
    return Undecodable(error.message, error=error)


def interrupted(what: str) -> Undecodable:
    """The body broke off, or was damaged on its way."""
    return Undecodable(what, failure=FailureClass.INTERRUPTED)


class Decoder(Protocol):
    """Reads one body, push-style: `feed` its chunks, then take `result`. Nothing of it outlives the exchange (B27)."""

    @property
    def head(self) -> bytes:
        """The first bytes, for an error message."""

    @property
    def done(self) -> bool:
        """Whether nothing that follows can change the answer."""

    @property
    def progressed(self) -> bool:
        """Whether the last chunk fed held content."""

    def feed(self, chunk: bytes) -> Iterator[str]:
        """Yield the text that `chunk` adds. Raises Undecodable."""

    def trailer(self, rest: bytes) -> None:
        """Look at what came behind the terminal event. Raises Undecodable for an error of the server."""

    def result(self) -> Decoded:
        """The answer. Raises Undecodable if the body ended without one."""


class Answer(Protocol):
    """What the events of one answer add up to; a family's part of its decoder."""

    done: bool
    progressed: bool

    def event(self, event: sse.Event, value: JSON) -> str:
        """Take one event, whose data is `value`; returns the text to show. Raises Undecodable."""

    def document(self, value: JSON) -> None:
        """Take a body that is one JSON document, from a server that does not stream. Raises Undecodable."""

    def error_in(self, value: JSON) -> ServerError | None:
        """The error that an event tells of."""

    def decoded(self) -> Decoded:
        """The whole answer. Raises Undecodable if its terminal event is missing."""


class EventDecoder:
    """A Decoder for a body of server-sent events. Implements Decoder."""

    def __init__(self, answer: Answer) -> None:
        """`answer` is the family's part."""
        self._answer = answer
        self._parser = sse.Parser()
        self._json: bytearray | None = None
        self._start = b""  # what little has to be kept of white space before the first byte that tells what the body is
        self._told = False
        self.head = b""
        self.progressed = False

    @property
    def done(self) -> bool:
        """Whether the terminal event has come."""
        return self._answer.done

    def feed(self, chunk: bytes) -> Iterator[str]:
        """Yield the text that `chunk` adds."""
        self.progressed = False
        if len(self.head) < _HEAD_BYTES:
            self.head += chunk[:_HEAD_BYTES]
        if not self._told:
            self._start += chunk
            chunk = self._start if self._tell() else b""
        if self._json is not None:
            self._json += chunk
            self.progressed = True
            if len(self._json) > JSON_BODY_BYTES_MAX:
                raise Undecodable(f"the body is longer than {JSON_BODY_BYTES_MAX} bytes", failure=FailureClass.MALFORMED_OUTPUT)
            return
        for event in self._events(chunk):
            if self._answer.done:
                self._refuse_error(event)
            elif text := self._take(event):
                yield text

    def trailer(self, rest: bytes) -> None:
        """Some gateways end an answer in good order and then say that it failed (wire 1)."""
        for event in self._events(rest):
            self._refuse_error(event)

    def result(self) -> Decoded:
        """The answer."""
        if self._json is not None:
            body = parse(bytes(self._json))
            if not isinstance(body, (dict, list)):
                raise Undecodable("the body is not an API response")
            self._answer.document(body)
        elif not self._answer.done:
            if not _looks_like_events(self.head):
                raise Undecodable("the body is no stream of events")
            self._stray_error()
            self._refuse_half_event()
        return self._answer.decoded()

    def _tell(self) -> bool:
        """Find out what the body is; False if all so far is white space, which may come for as long as a server thinks."""
        bom = b"\xef\xbb\xbf" if self._start.startswith(b"\xef\xbb\xbf") else b""
        blank = self._start[len(bom) :]
        start = blank.lstrip(b" \t\r\n")
        if not start:
            ended = b"\n" if b"\n" in blank or b"\r" in blank else b""
            self._start = bom + ended + (b" " if blank[-1:] in (b" ", b"\t") else b"")
            return False
        self._told = True
        if start[:1] in b'{[<"' or start[:4] == b"null":
            self._json = bytearray()
        return True

    def _events(self, chunk: bytes) -> Iterator[sse.Event]:
        try:
            yield from self._parser.feed(chunk)
        except sse.EventTooLarge as error:
            raise Undecodable(str(error), failure=FailureClass.MALFORMED_OUTPUT) from None

    def _take(self, event: sse.Event) -> str:
        data = event.data.strip()
        if not data:
            return ""
        value = None if event.damaged or data == "[DONE]" else parse(data)
        if value is None and data != "[DONE]":
            raise interrupted("the stream holds an event that is not JSON")
        text = self._answer.event(event, value)
        self.progressed = self.progressed or self._answer.progressed
        return text

    def _refuse_error(self, event: sse.Event) -> None:
        error = self._answer.error_in(parse(event.data))
        if error is not None:
            raise reported(error)

    def _stray_error(self) -> None:
        """An error as bare JSON between the events, which are lines without a field name (wire 4)."""
        stray = self._parser.stray
        error = self._answer.error_in(parse(bytes(stray))) if stray else None
        if error is not None:
            raise reported(error)

    def _refuse_half_event(self) -> None:
        """Where the end of the body ends the answer, a part of an event before it shows that more was to come (wire 4)."""
        if self._parser.pending.strip() not in (b"", b"[DONE]", b"data: [DONE]", b"data:[DONE]"):
            raise interrupted("the stream ended within an event")


def _looks_like_events(head: bytes) -> bool:
    """Whether the start of a body, however short, can be that of a stream of events."""
    line = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    return any(line.startswith(field) or field.startswith(line) for field in _FIELDS)


class TextRun:
    """Text that comes in pieces. A high surrogate waits for its other half, which may come with the next piece (B19)."""

    def __init__(self) -> None:
        """Nothing yet."""
        self._pieces: list[str] = []
        self._carry = ""

    def add(self, piece: str) -> str:
        """Take a piece; returns what may be shown of it now."""
        if not piece:
            return ""
        self._pieces.append(piece)
        piece, self._carry = self._carry + piece, ""
        if "\ud800" <= piece[-1] <= "\udbff":
            piece, self._carry = piece[:-1], piece[-1]
        return clean_text(piece)

    @property
    def text(self) -> str:
        """All of it, cleaned once all is joined."""
        return clean_text("".join(self._pieces))

    def blocks(self) -> list[Block]:
        """It as a block; none if nothing came."""
        text = self.text
        return [Text(text=text)] if text else []
