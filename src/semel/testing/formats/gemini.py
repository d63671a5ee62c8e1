"""A scripted answer as a server of generateContent would send it."""

import json

from semel.adapters.models import script as source
from semel.adapters.models.json_text import items_of, member, parse
from semel.adapters.models.script import Asked, ScriptedAnswer
from semel.adapters.models.script_steps import Unreadable
from semel.core.values import JSON, Stop, ToolCall, Usage
from semel.testing.formats.messages import asked_of

_FINISHES = {
    Stop.END_TURN: "STOP",
    Stop.TOOL_USE: "STOP",
    Stop.MAX_TOKENS: "MAX_TOKENS",
    Stop.CONTENT_FILTER: "SAFETY",
    Stop.REFUSAL: "SAFETY",
    Stop.OTHER: "CONTINUATION",
}
_STATUSES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


class GeminiFormat:
    """generateContent, streamed with alt=sse. Implements script_steps.Format."""

    content_type = "text/event-stream"
    ping = b": ping\r\n\r\n"
    empty = b'data: {"candidates":[{"index":0,"content":{"parts":[{"text":""}],"role":"model"}}]}\r\n\r\n'

    def read(self, request: bytes) -> Asked:
        """Count the answers of a request."""
        contents = member(parse(request), "contents")
        if not isinstance(contents, list):
            raise Unreadable("not a generateContent request")
        return asked_of(items_of(contents), "model", "")

    def events(self, answer: ScriptedAnswer, index: int, model: str) -> list[bytes]:
        """The responses of an answer, the one with the finishReason last."""
        del model
        parts: list[dict[str, JSON]] = [
            {"text": piece, "thought": True} for piece in source.pieces(answer.thinking, answer.chunk)
        ]
        parts += [{"text": piece} for piece in source.pieces(answer.text, answer.chunk)]
        calls = [_call(call) for call in source.calls_of(answer, index)]
        signature = {"thoughtSignature": f"c2NyaXB0ZWQ{index}"} if answer.thinking else {}
        if calls and all(call is not None for call in calls):
            parts += [{**call, **(signature if at == 0 else {})} for at, call in enumerate(calls) if call is not None]
        elif signature:
            parts.append({"text": "", **signature})
        finish = "MALFORMED_FUNCTION_CALL" if None in calls else _FINISHES[source.stop_of(answer)]
        events = [_event({"candidates": [_candidate([part])]}, index) for part in parts]
        last = {"candidates": [{**_candidate([]), "finishReason": finish}], "usageMetadata": _usage(answer.usage or Usage())}
        return [*events, _event(last, index)]

    def error_event(self, error: JSON) -> bytes:
        """A response that is an error."""
        said = error or {"code": 500, "message": "scripted failure", "status": "INTERNAL"}
        return b"data: " + json.dumps({"error": said}, separators=(",", ":")).encode() + b"\r\n\r\n"

    def refusal(self, status: int, code: str, message: str) -> tuple[dict[str, str], JSON]:
        """A google.rpc.Status."""
        info = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": code}
        details = {"details": [info]} if code else {}
        return {}, {"error": {"code": status, "message": message, "status": _STATUSES.get(status, "UNKNOWN"), **details}}


def _call(call: ToolCall) -> dict[str, JSON] | None:
    """A call with its arguments as an object; None if they are none, which this wire cannot carry."""
    args = parse(call.arguments)
    return {"functionCall": {"id": call.id, "name": call.name, "args": args}} if isinstance(args, dict) else None


def _candidate(parts: list[dict[str, JSON]]) -> dict[str, JSON]:
    return {"index": 0, "content": {"parts": parts or [{"text": ""}], "role": "model"}}


def _usage(usage: Usage) -> dict[str, JSON]:
    prompt = (usage.input or 0) + (usage.cache_read or 0)
    thought = usage.reasoning or 0
    counts = {
        "promptTokenCount": prompt,
        "candidatesTokenCount": max(0, (usage.output or 0) - thought),
        "totalTokenCount": prompt + (usage.output or 0),
    }
    if usage.reasoning is not None:
        counts["thoughtsTokenCount"] = thought
    if usage.cache_read is not None:
        counts["cachedContentTokenCount"] = usage.cache_read
    return counts


def _event(value: dict[str, JSON], index: int) -> bytes:
    whole = {**value, "modelVersion": "scripted", "responseId": f"scripted-{index}"}
    return b"data: " + json.dumps(whole, ensure_ascii=False, separators=(",", ":")).encode() + b"\r\n\r\n"
