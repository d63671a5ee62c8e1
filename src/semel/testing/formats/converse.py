"""A scripted answer as Bedrock's ConverseStream would send it, in frames with their checksums."""

import json

from semel.adapters.models import script as source
from semel.adapters.models.bedrock_converse.frames import frame
from semel.adapters.models.json_text import items_of, member, parse, text_of
from semel.adapters.models.script import Asked, ScriptedAnswer
from semel.adapters.models.script_steps import Unreadable
from semel.core.values import JSON, Stop, Usage
from semel.testing.formats.messages import asked_of

_STOPS = {
    Stop.END_TURN: "end_turn",
    Stop.TOOL_USE: "tool_use",
    Stop.MAX_TOKENS: "max_tokens",
    Stop.CONTENT_FILTER: "content_filtered",
    Stop.REFUSAL: "content_filtered",
    Stop.OTHER: "something_new",
}
_ERRORS = {
    400: "ValidationException",
    403: "AccessDeniedException",
    404: "ResourceNotFoundException",
    408: "ModelTimeoutException",
    424: "ModelErrorException",
    429: "ThrottlingException",
    503: "ServiceUnavailableException",
}


def event(kind: str, payload: dict[str, JSON]) -> bytes:
    """One event of the stream."""
    headers = {":event-type": kind, ":content-type": "application/json", ":message-type": "event"}
    return frame(headers, json.dumps({**payload, "p": "abc"}, ensure_ascii=False, separators=(",", ":")).encode())


class ConverseFormat:
    """ConverseStream. Implements script_steps.Format."""

    content_type = "application/vnd.amazon.eventstream"
    ping = event("somethingNew", {})
    empty = ping

    def read(self, request: bytes) -> Asked:
        """Count the answers of a request."""
        messages = member(parse(request), "messages")
        if not isinstance(messages, list):
            raise Unreadable("not a Converse request")
        return asked_of(items_of(messages), "assistant", "")

    def events(self, answer: ScriptedAnswer, index: int, model: str) -> list[bytes]:
        """The frames of an answer, `metadata` last."""
        del model
        events, at = [event("messageStart", {"role": "assistant"})], 0
        if answer.thinking:
            deltas: list[JSON] = [{"reasoningContent": {"text": piece}} for piece in source.pieces(answer.thinking, answer.chunk)]
            deltas.append({"reasoningContent": {"signature": f"c2NyaXB0ZWQ{index}"}})
            events += _block(at, deltas)
            at += 1
        if answer.text:
            events += _block(at, [{"text": piece} for piece in source.pieces(answer.text, answer.chunk)])
            at += 1
        for call in source.calls_of(answer, index):
            start = {"toolUse": {"toolUseId": call.id, "name": call.name}}
            events.append(event("contentBlockStart", {"contentBlockIndex": at, "start": start}))
            events += _block(at, [{"toolUse": {"input": piece}} for piece in source.pieces(call.arguments, answer.chunk)])
            at += 1
        events.append(event("messageStop", {"stopReason": _STOPS[source.stop_of(answer)]}))
        metadata = {"usage": _usage(answer.usage or Usage()), "metrics": {"latencyMs": 1}}
        return [*events, event("metadata", metadata)]

    def error_event(self, error: JSON) -> bytes:
        """An exception frame; `error` has its name as `type`."""
        kind = text_of(member(error, "type")) or "internalServerException"
        headers = {":exception-type": kind, ":content-type": "application/json", ":message-type": "exception"}
        said = {name: value for name, value in error.items() if name != "type"} if isinstance(error, dict) else {}
        return frame(headers, json.dumps({"message": "scripted failure", **said}).encode())

    def refusal(self, status: int, code: str, message: str) -> tuple[dict[str, str], JSON]:
        """An exception by name."""
        return {"x-amzn-errortype": code or _ERRORS.get(status, "InternalServerException")}, {"message": message}


def _block(at: int, deltas: list[JSON]) -> list[bytes]:
    events = [event("contentBlockDelta", {"contentBlockIndex": at, "delta": delta}) for delta in deltas]
    return [*events, event("contentBlockStop", {"contentBlockIndex": at})]


def _usage(usage: Usage) -> dict[str, JSON]:
    counts = {
        "inputTokens": usage.input or 0,
        "outputTokens": usage.output or 0,
        "totalTokens": usage.total,
        "cacheReadInputTokens": usage.cache_read,
        "cacheWriteInputTokens": usage.cache_write,
    }
    return {name: count for name, count in counts.items() if count is not None}
