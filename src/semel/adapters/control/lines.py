"""Lines of the protocol: one JSON object each, bounded, and how a refusal crosses (docs/socket.md)."""

from collections.abc import Iterator

import msgspec

from semel.core.values import Frozen, printable
from semel.errors import SemelError, UsageError
from semel.ports.control import PROTOCOL, Item, Request

REQUEST_BYTES_MOST = 4 * 1024 * 1024
ANSWER_BYTES_MOST = 160 * 1024 * 1024  # a record of 64 MiB may grow where it is escaped
NOT_HELD, LEAVING = "not_held", "leaving"
_MESSAGE_CHARS_MOST = 4000


class Bounds(Frozen, frozen=True, kw_only=True):
    """What a process bears from its clients, and from whoever answers it.

    `idle_seconds` is how long a client may take to ask for something, `stall_seconds` how long it may leave unread what it was
    sent, `answer_seconds` how long an answer may take.
    """

    connections: int = 64
    request_bytes: int = REQUEST_BYTES_MOST
    idle_seconds: float = 30.0
    stall_seconds: float = 30.0
    answer_seconds: float = 10.0


class Refusal(Frozen, frozen=True, kw_only=True):
    """Why a request was refused: the code of the error, its message, which says what to do, and the exit code it stands for."""

    code: str
    message: str
    exit: int


class Reply(Frozen, frozen=True, kw_only=True):
    """One line of an answer: an item of a stream, or the end, which is an object or a refusal."""

    id: str
    item: Item | None = None
    ok: Item | None = None
    error: Refusal | None = None


def encode_line(message: Request | Reply) -> bytes:
    """A message as its line."""
    return msgspec.json.encode(message) + b"\n"


def decode_request(line: bytes) -> Request:
    """A request. Raises UsageError, which says what is wrong with it."""
    try:
        request = msgspec.json.decode(line, type=Request)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"this is no request: {printable(str(error), limit=200)}. See docs/socket.md.") from None
    if request.v != PROTOCOL:
        raise UsageError(f"this process speaks version {PROTOCOL} of the protocol, not {request.v}. Use the same semel for both.")
    return request


def decode_reply(line: bytes) -> Reply | None:
    """A line of an answer; None where it is none."""
    try:
        return msgspec.json.decode(line, type=Reply)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def refusal_of(error: SemelError) -> Refusal:
    """An error as it crosses."""
    return Refusal(code=error.code, message=str(error)[:_MESSAGE_CHARS_MOST], exit=error.exit)


def error_of(refusal: Refusal) -> SemelError:
    """The error that a refusal stands for: of its class, or of a newer build's with the same code and exit."""
    kind = next((kind for kind in _kinds(SemelError) if kind.code == refusal.code), None)
    if kind is None:
        kind = type("SemelError", (SemelError,), {"code": refusal.code, "exit": refusal.exit})
    error = kind.__new__(kind)
    Exception.__init__(error, refusal.message)  # the message is there already; a class may build its own from other facts
    return error


def _kinds(base: type[SemelError]) -> Iterator[type[SemelError]]:
    yield base
    for kind in base.__subclasses__():
        yield from _kinds(kind)
