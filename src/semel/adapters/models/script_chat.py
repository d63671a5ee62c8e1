"""A scripted answer as a chat completions server would send it: the steps of one reply. Pure; performing them is elsewhere."""

import json
from collections.abc import Iterator
from typing import Literal

import msgspec

from semel.adapters.models import script as source
from semel.adapters.models.script import Fault, Script, ScriptedAnswer, ScriptRefused
from semel.core.values import JSON, Frozen, Stop, Usage

_CREATED = 1767225600
_FINISH = {
    Stop.END_TURN: "stop",
    Stop.TOOL_USE: "tool_calls",
    Stop.MAX_TOKENS: "length",
    Stop.CONTENT_FILTER: "content_filter",
    Stop.REFUSAL: "stop",
    Stop.OTHER: "other",
}
PING = b": ping\n\n"


class Head(Frozen, frozen=True, kw_only=True):
    """Status and headers; the first step of every reply."""

    status: int
    headers: dict[str, str]


class Send(Frozen, frozen=True, kw_only=True):
    """Bytes of the body."""

    body: bytes


class Pause(Frozen, frozen=True, kw_only=True):
    """Wait that long."""

    ms: int


class HoldHere(Frozen, frozen=True, kw_only=True):
    """Make the file `reached`, wait for the file `release`. Without file names, for whoever runs the server to say so."""

    reached: str | None
    release: str | None


class Silence(Frozen, frozen=True, kw_only=True):
    """Nothing more, the connection stays open; with `ping_ms`, a comment that often."""

    ping_ms: int | None = None


class End(Frozen, frozen=True, kw_only=True):
    """The end of the reply: complete, by a reset, or by closing a chunked body without its last chunk."""

    how: Literal["complete", "reset", "no_last_chunk"] = "complete"


Step = Head | Send | Pause | HoldHere | Silence | End
_STREAM = Head(status=200, headers={"content-type": "text/event-stream", "cache-control": "no-cache"})


class ChatScript:
    """A script as a chat completions server. Counts how often each answer was asked for, since a fault strikes that often."""

    def __init__(self, script: Script) -> None:
        """Nothing asked yet."""
        self._script = script
        self._asked: dict[int, int] = {}

    def reply(self, request: bytes) -> Iterator[Step]:
        """The steps of the reply to one request body."""
        try:
            asked = source.read_request(request)
            index = source.choose(self._script, asked, request)
        except ScriptRefused as refused:
            error = {"message": str(refused), "type": "invalid_request_error", "code": refused.code}
            return iter(_refusal(400, {}, {"error": error}))
        except msgspec.DecodeError:
            error = {"message": "not a chat completion request", "type": "invalid_request_error", "code": ""}
            return iter(_refusal(400, {}, {"error": error}))
        answer = self._script.answers[index]
        fault = source.strikes(answer, self._asked.get(index, 0))
        self._asked[index] = self._asked.get(index, 0) + 1
        return _steps(answer, fault, chat_events(answer, index, asked.model))


def _steps(answer: ScriptedAnswer, fault: Fault | None, events: list[bytes]) -> Iterator[Step]:
    if answer.delay_ms:
        yield Pause(ms=answer.delay_ms)
    if isinstance(fault, source.Status):
        yield from _refusal(fault.status, fault.headers, fault.body)
        return
    yield _STREAM
    if fault is None:
        yield from (Send(body=event) for event in events)
        yield End()
        return
    yield from _faulty(fault, events)


def _faulty(fault: Fault, events: list[bytes]) -> Iterator[Step]:
    whole = b"".join(events)
    if isinstance(fault, source.Trickle):
        for start in range(0, len(whole), max(1, fault.bytes)):
            yield Send(body=whole[start : start + max(1, fault.bytes)])
            yield Pause(ms=fault.every_ms)
        yield End()
        return
    assert not isinstance(fault, source.Status)
    at = len(whole) // 2 if fault.at is None else min(fault.at, len(whole))
    if isinstance(fault, source.StreamError):
        error = fault.error or {"message": "scripted failure", "type": "server_error", "code": None}
        kept = whole[:at].rpartition(b"\n\n")
        yield Send(body=kept[0] + kept[1] + _event({"error": error}))
        yield End()
        return
    if at:
        yield Send(body=whole[:at])
    if isinstance(fault, source.Cut):
        yield End(how=fault.how)
    elif isinstance(fault, source.Hold):
        yield HoldHere(reached=fault.reached, release=fault.release)
        yield Send(body=whole[at:])
        yield End()
    else:
        yield Silence(ping_ms=fault.every_ms if isinstance(fault, source.PingOnly) else None)


def _refusal(status: int, headers: dict[str, str], body: JSON) -> list[Step]:
    if body is None:
        body = {"error": {"message": f"scripted status {status}", "type": None, "code": None}}
    is_text = isinstance(body, str)
    content = body if is_text else json.dumps(body, ensure_ascii=False)
    kind = "text/plain; charset=utf-8" if is_text else "application/json"
    return [Head(status=status, headers={"content-type": kind, **headers}), Send(body=content.encode()), End()]


def chat_events(answer: ScriptedAnswer, index: int, model: str) -> list[bytes]:
    """The events of one streamed answer, `[DONE]` last."""
    stop = source.stop_of(answer)
    deltas: list[dict[str, JSON]] = [{"role": "assistant", "content": ""}]
    member = "refusal" if stop is Stop.REFUSAL else "content"
    deltas += [{member: piece} for piece in _pieces(answer.text, answer.chunk)]
    for ordinal, call in enumerate(source.calls_of(answer, index)):
        opening = {"index": ordinal, "id": call.id, "type": "function", "function": {"name": call.name, "arguments": ""}}
        deltas.append({"tool_calls": [opening]})
        for piece in _pieces(call.arguments, answer.chunk):
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


def _pieces(text: str, size: int) -> list[str]:
    return [text[start : start + size] for start in range(0, len(text), size)]


def _event(value: JSON) -> bytes:
    return b"data: " + json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"
