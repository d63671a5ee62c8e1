"""A scripted answer as a server of the Messages API would send it."""

import json

from semel.adapters.models import script as source
from semel.adapters.models.json_text import items_of, member, parse, text_of
from semel.adapters.models.script import Asked, ScriptedAnswer
from semel.adapters.models.script_steps import Unreadable
from semel.core.values import JSON, Stop, ToolCall, Usage

_STOPS = {
    Stop.END_TURN: "end_turn",
    Stop.TOOL_USE: "tool_use",
    Stop.MAX_TOKENS: "max_tokens",
    Stop.CONTENT_FILTER: "refusal",
    Stop.REFUSAL: "refusal",
    Stop.OTHER: "pause_turn",
}
_ERRORS = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}


class MessagesFormat:
    """The Messages API. Implements script_steps.Format."""

    content_type = "text/event-stream"
    ping = b'event: ping\ndata: {"type":"ping"}\n\n'
    empty = ping

    def read(self, request: bytes) -> Asked:
        """Count the answers of a request."""
        body = parse(request)
        messages = member(body, "messages")
        if not isinstance(messages, list):
            raise Unreadable("not a request of the Messages API")
        return asked_of(items_of(messages), "assistant", text_of(member(body, "model")))

    def events(self, answer: ScriptedAnswer, index: int, model: str) -> list[bytes]:
        """The events of an answer, `message_stop` last."""
        usage = answer.usage or Usage()
        message: dict[str, JSON] = {
            "id": f"msg_scripted_{index}",
            "type": "message",
            "role": "assistant",
            "model": model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {**_input(usage), "output_tokens": 1},
        }
        events = [_event({"type": "message_start", "message": message}), self.ping]
        for at, block in enumerate(_blocks(answer, index)):
            events += _block(at, block, answer.chunk)
        stopped = {"stop_reason": _STOPS[source.stop_of(answer)], "stop_sequence": None}
        details = {} if usage.reasoning is None else {"output_tokens_details": {"thinking_tokens": usage.reasoning}}
        counted = {"output_tokens": usage.output or 0, **details}
        events.append(_event({"type": "message_delta", "delta": stopped, "usage": counted}))
        return [*events, _event({"type": "message_stop"})]

    def error_event(self, error: JSON) -> bytes:
        """An `error` event."""
        return _event({"type": "error", "error": error or {"type": "api_error", "message": "scripted failure"}})

    def refusal(self, status: int, code: str, message: str) -> tuple[dict[str, str], JSON]:
        """An error object."""
        details = {"details": {"error_code": code}} if code else {}
        error = {"type": _ERRORS.get(status, "api_error"), "message": message, **details}
        return {"request-id": "req_scripted"}, {"type": "error", "error": error}


def asked_of(messages: list[dict[str, JSON]], role: str, model: str) -> Asked:
    """What a request asks whose messages have roles, `role` being the model's."""
    roles = [message.get("role") for message in messages]
    newest = len(roles) - roles[::-1].index(role) if role in roles else 0
    return Asked(answers=roles.count(role), model=model, newest=lambda: messages[newest:])


def _blocks(answer: ScriptedAnswer, index: int) -> list[str | tuple[str, str] | ToolCall]:
    """Text as a string, a thought as a pair of its text and signature."""
    blocks: list[str | tuple[str, str] | ToolCall] = []
    if answer.thinking:
        blocks.append((answer.thinking, f"c2NyaXB0ZWQ{index}"))
    if answer.text:
        blocks.append(answer.text)
    return [*blocks, *source.calls_of(answer, index)]


def _block(at: int, block: str | tuple[str, str] | ToolCall, chunk: int) -> list[bytes]:
    if isinstance(block, ToolCall):
        start: dict[str, JSON] = {"type": "tool_use", "id": block.id, "name": block.name, "input": {}}
        deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in ["", *source.pieces(block.arguments, chunk)]]
    elif isinstance(block, tuple):
        start = {"type": "thinking", "thinking": "", "signature": ""}
        deltas = [{"type": "thinking_delta", "thinking": piece} for piece in source.pieces(block[0], chunk)]
        deltas.append({"type": "signature_delta", "signature": block[1]})
    else:
        start = {"type": "text", "text": ""}
        deltas = [{"type": "text_delta", "text": piece} for piece in source.pieces(block, chunk)]
    return [
        _event({"type": "content_block_start", "index": at, "content_block": start}),
        *(_event({"type": "content_block_delta", "index": at, "delta": delta}) for delta in deltas),
        _event({"type": "content_block_stop", "index": at}),
    ]


def _input(usage: Usage) -> dict[str, JSON]:
    cached = {"cache_read_input_tokens": usage.cache_read, "cache_creation_input_tokens": usage.cache_write}
    return {"input_tokens": usage.input or 0, **{name: count for name, count in cached.items() if count is not None}}


def _event(value: dict[str, JSON]) -> bytes:
    data = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    return f"event: {value['type']}\n".encode() + b"data: " + data + b"\n\n"
