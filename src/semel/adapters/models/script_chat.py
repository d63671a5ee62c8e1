"""A scripted answer as a chat completions server would send it."""

import json

import msgspec

from semel.adapters.models import script as source
from semel.adapters.models.script import Asked, ScriptedAnswer
from semel.adapters.models.script_steps import Unreadable
from semel.core.values import JSON, Stop, Usage

_CREATED = 1767225600
_FINISH = {
    Stop.END_TURN: "stop",
    Stop.TOOL_USE: "tool_calls",
    Stop.MAX_TOKENS: "length",
    Stop.CONTENT_FILTER: "content_filter",
    Stop.REFUSAL: "stop",
    Stop.OTHER: "other",
}


class _Role(msgspec.Struct):
    role: str = ""


class _Request(msgspec.Struct):
    """Of each message its role only, which costs little however long the conversation is."""

    messages: list[_Role]
    model: str = ""


class ChatFormat:
    """Chat completions. Implements script_steps.Format."""

    content_type = "text/event-stream"
    ping = b": ping\n\n"
    empty = b'data: {"id":"chatcmpl-scripted","object":"chat.completion.chunk","created":1767225600,"model":"","choices":[]}\n\n'

    def read(self, request: bytes) -> Asked:
        """Count the answers of a request."""
        try:
            asked = msgspec.json.decode(request, type=_Request)
        except msgspec.DecodeError:
            raise Unreadable("not a chat completion request") from None
        roles = [message.role for message in asked.messages]
        newest = len(roles) - roles[::-1].index("assistant") if "assistant" in roles else 0
        return Asked(answers=roles.count("assistant"), model=asked.model, newest=lambda: json.loads(request)["messages"][newest:])

    def events(self, answer: ScriptedAnswer, index: int, model: str) -> list[bytes]:
        """The chunks of an answer, `[DONE]` last."""
        return chat_events(answer, index, model)

    def error_event(self, error: JSON) -> bytes:
        """A chunk that holds an error."""
        return _event({"error": error or {"message": "scripted failure", "type": "server_error", "code": None}})

    def refusal(self, status: int, code: str, message: str) -> tuple[dict[str, str], JSON]:
        """An error object."""
        kind = "invalid_request_error" if status == 400 else None
        return {}, {"error": {"message": message, "type": kind, "code": code or None}}


def chat_events(answer: ScriptedAnswer, index: int, model: str) -> list[bytes]:
    """The events of one streamed answer, `[DONE]` last."""
    stop = source.stop_of(answer)
    deltas: list[dict[str, JSON]] = [{"role": "assistant", "content": ""}]
    deltas += [{"reasoning_content": piece} for piece in source.pieces(answer.thinking, answer.chunk)]
    member = "refusal" if stop is Stop.REFUSAL else "content"
    deltas += [{member: piece} for piece in source.pieces(answer.text, answer.chunk)]
    for ordinal, call in enumerate(source.calls_of(answer, index)):
        opening = {"index": ordinal, "id": call.id, "type": "function", "function": {"name": call.name, "arguments": ""}}
        deltas.append({"tool_calls": [opening]})
        for piece in source.pieces(call.arguments, answer.chunk):
            deltas.append({"tool_calls": [{"index": ordinal, "function": {"arguments": piece}}]})
    events = [_event(_chunk(index, model, delta, None)) for delta in deltas]
    events.append(_event(_chunk(index, model, {}, _FINISH[stop])))
    if answer.usage is not None:
        events.append(_event({**_chunk(index, model, {}, None), "choices": [], "usage": _usage(answer.usage)}))
    events.append(b"data: [DONE]\n\n")
    return events


def _chunk(index: int, model: str, delta: dict[str, JSON], finish: str | None) -> dict[str, JSON]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {
        "id": f"chatcmpl-scripted-{index}",
        "object": "chat.completion.chunk",
        "created": _CREATED,
        "model": model,
        "choices": [choice],
    }


def _usage(usage: Usage) -> dict[str, JSON]:
    prompt = (usage.input or 0) + (usage.cache_read or 0) + (usage.cache_write or 0)
    result: dict[str, JSON] = {
        "prompt_tokens": prompt,
        "completion_tokens": usage.output or 0,
        "total_tokens": prompt + (usage.output or 0),
    }
    details = {"cached_tokens": usage.cache_read, "cache_write_tokens": usage.cache_write}
    if reported := {name: count for name, count in details.items() if count is not None}:
        result["prompt_tokens_details"] = reported
    if usage.reasoning is not None:
        result["completion_tokens_details"] = {"reasoning_tokens": usage.reasoning}
    return result


def _event(value: JSON) -> bytes:
    return b"data: " + json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"
