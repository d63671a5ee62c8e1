"""Recorded chat streams as a real HTTP server: reply i to request i, each with the ending it had."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from semel.adapters.models.script_steps import End, Head, Send, Step
from semel.core.values import JSON
from semel.testing.model_server import ModelServer

STREAMS = Path(__file__).parent / "streams"
_HEAD = Head(status=200, headers={"content-type": "text/event-stream"})


def recorded(name: str) -> bytes:
    """A recorded stream."""
    return (STREAMS / name).read_bytes()


def stream(*calls: tuple[str, JSON], text: str = "", ids: bool = True) -> bytes:
    """A whole chat stream with these calls, or with text."""
    delta: dict[str, JSON] = {"role": "assistant", "content": text or None}
    if calls:
        delta["tool_calls"] = [
            {
                "index": at,
                "id": f"call_{name}_{at}" if ids else "",
                "type": "function",
                "function": {"name": name, "arguments": json.dumps(arguments)},
            }
            for at, (name, arguments) in enumerate(calls)
        ]
    finish = "tool_calls" if calls else "stop"
    chunks: list[JSON] = [
        {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]},
    ]
    return b"".join(b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks) + b"data: [DONE]\n\n"


def replies(*bodies: bytes | tuple[bytes, str]) -> ModelServer:
    """A server that gives reply i to request i; a pair says how its connection ends (`reset`, `no_last_chunk`)."""
    pending = iter(bodies)

    def reply(_request: bytes) -> Iterable[Step]:
        return _steps(next(pending))

    return ModelServer(reply)


def _steps(body: bytes | tuple[bytes, str]) -> Iterator[Step]:
    raw, how = body if isinstance(body, tuple) else (body, "complete")
    yield _HEAD
    yield Send(body=raw)
    yield End(how=how)  # type: ignore[arg-type]  # one of the three words


def messages(server: ModelServer, at: int) -> list[dict[str, JSON]]:
    """The messages of request `at`."""
    found: list[dict[str, JSON]] = json.loads(server.requests[at].body)["messages"]
    return found


def paired(sent: list[dict[str, JSON]]) -> bool:
    """Whether each call is answered exactly once, directly behind its message and in its order (P5)."""
    at = 0
    while at < len(sent):
        calls = sent[at].get("tool_calls") or []
        ids = [call["id"] for call in calls]
        behind = sent[at + 1 : at + 1 + len(ids)]
        if [message.get("tool_call_id") for message in behind] != ids:
            return False
        at += 1 + len(ids)
        if at < len(sent) and sent[at]["role"] == "tool":
            return False
    return True
