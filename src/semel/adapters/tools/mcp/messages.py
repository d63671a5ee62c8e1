"""JSON-RPC messages of MCP, one a line: what arrives is told apart here, and what is sent is written here. Pure.

Source of the rules: JSON-RPC 2.0 and the Model Context Protocol, revision 2025-11-25.
"""

import re
from typing import Any

import msgspec

from semel.core.values import JSON

PROTOCOL_VERSION = "2025-11-25"
KNOWN_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", PROTOCOL_VERSION)
METHOD_NOT_FOUND = -32601
ID_BYTES_MAX = 200  # of an id that the server chose

# Half of a surrogate pair, as an escape: JSON allows it, UTF-8 cannot carry it. Pairs and escaped backslashes are passed over.
_SURROGATES = re.compile(
    rb"\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(?P<lone>\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
)


class Message(msgspec.Struct, frozen=True):
    """Whatever arrives. Its parts stay text until somebody needs them, so that a hostile one costs no more than its bytes."""

    id: msgspec.Raw = msgspec.Raw()
    method: str | None = None
    params: msgspec.Raw = msgspec.Raw()
    result: msgspec.Raw = msgspec.Raw()
    error: msgspec.Raw = msgspec.Raw()

    @property
    def key(self) -> bytes:
        """The id as it is written; empty where there is none."""
        return b"" if bytes(self.id) == b"null" else bytes(self.id)

    @property
    def is_reply(self) -> bool:
        """Whether it answers a request of ours."""
        return self.method is None and bool(self.result or self.error)


class RpcError(msgspec.Struct, frozen=True):
    """The error of a reply."""

    code: int = 0
    message: str = ""


_messages = msgspec.json.Decoder(Message)


def parse(line: bytes) -> Message | None:
    """The message that a line holds; None if it holds none. What is not UTF-8, or half of a surrogate pair, is U+FFFD (B19)."""
    text = line if line.isascii() else line.decode("utf-8", "replace").encode()
    found = _decoded(text)
    if found is None and b"\\u" in text:
        return _decoded(_SURROGATES.sub(lambda half: rb"\ufffd" if half["lone"] else half[0], text))
    return found


def _decoded(text: bytes) -> Message | None:
    try:
        return _messages.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        return None


def rpc_error(error: msgspec.Raw) -> RpcError:
    """The error of a reply, however little of it makes sense."""
    try:
        return msgspec.json.decode(error, type=RpcError)
    except (msgspec.MsgspecError, RecursionError):
        return RpcError(message="an error that is none of JSON-RPC's")


def request(key: int, method: str, params: JSON) -> bytes:
    """A request as a line."""
    return _line({"jsonrpc": "2.0", "id": key, "method": method, "params": params})


def notification(method: str, params: JSON = None) -> bytes:
    """A notification as a line."""
    return _line({"jsonrpc": "2.0", "method": method} | ({} if params is None else {"params": params}))


def answer(message: Message) -> bytes:
    """The reply to a request of the server: a ping is answered, nothing else is offered to servers."""
    told = {"jsonrpc": "2.0", "id": message.id}
    if message.method == "ping":
        return _line(told | {"result": {}})
    return _line(told | {"error": {"code": METHOD_NOT_FOUND, "message": "this client does not offer that"}})


def _line(message: dict[str, Any]) -> bytes:
    return msgspec.json.encode(message) + b"\n"
