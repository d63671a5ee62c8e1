"""A scripted answer as a server of the Responses API would send it."""

import json

from semel.adapters.models import script as source
from semel.adapters.models.json_text import items_of, member, parse, text_of
from semel.adapters.models.script import Asked, ScriptedAnswer
from semel.adapters.models.script_steps import Unreadable
from semel.core.values import JSON, Stop, Usage

_CREATED = 1767225600
_OURS = frozenset({"reasoning", "function_call", "compaction"})
_INCOMPLETE = {Stop.MAX_TOKENS: "max_output_tokens", Stop.CONTENT_FILTER: "content_filter", Stop.OTHER: "steered"}


class ResponsesFormat:
    """The Responses API. Implements script_steps.Format."""

    content_type = "text/event-stream"
    ping = b": ping\n\n"
    empty = b'event: response.subscription_usage\ndata: {"type":"response.subscription_usage","sequence_number":0}\n\n'

    def read(self, request: bytes) -> Asked:
        """Count the answers of a request: each run of items that the model made is one."""
        body = parse(request)
        items = member(body, "input")
        if not isinstance(items, list):
            raise Unreadable("not a request of the Responses API")
        made = [item.get("type") in _OURS or item.get("role") == "assistant" for item in items_of(items)]
        answers = sum(mine and not before for mine, before in zip(made, [False, *made], strict=False))
        newest = len(made) - made[::-1].index(True) if any(made) else 0
        return Asked(answers=answers, model=text_of(member(body, "model")), newest=lambda: items[newest:])

    def events(self, answer: ScriptedAnswer, index: int, model: str) -> list[bytes]:
        """The events of an answer, `response.completed` or `response.incomplete` last."""
        writer = _Writer(index, model)
        writer.add("response.created", response=writer.response("in_progress", []))
        writer.add("response.in_progress", response=writer.response("in_progress", []))
        items: list[dict[str, JSON]] = []
        if answer.thinking:
            items.append(_reasoned(writer, len(items), answer))
        if answer.text:
            items.append(_said(writer, len(items), answer))
        for call in source.calls_of(answer, index):
            at = len(items)
            started = {"id": f"fc_{index}_{at}", "type": "function_call", "status": "in_progress"}
            named = {"call_id": call.id, "name": call.name}
            writer.add("response.output_item.added", output_index=at, item={**started, **named, "arguments": ""})
            where = {"item_id": started["id"], "output_index": at}
            for piece in source.pieces(call.arguments, answer.chunk):
                writer.add("response.function_call_arguments.delta", **where, delta=piece)
            writer.add("response.function_call_arguments.done", **where, name=call.name, arguments=call.arguments)
            items.append({**started, "status": "completed", **named, "arguments": call.arguments})
            writer.add("response.output_item.done", output_index=at, item=items[-1])
        reason = _INCOMPLETE.get(source.stop_of(answer))
        status = "incomplete" if reason else "completed"
        ended = {**writer.response(status, items), "usage": _usage(answer.usage or Usage())}
        ended["incomplete_details"] = {"reason": reason} if reason else None
        writer.add(f"response.{status}", response=ended)
        return writer.events

    def error_event(self, error: JSON) -> bytes:
        """A nested error, as it is sent in practice."""
        said = error or {"type": "server_error", "code": "server_error", "message": "scripted failure", "param": None}
        return _event({"type": "error", "sequence_number": 0, "error": said})

    def refusal(self, status: int, code: str, message: str) -> tuple[dict[str, str], JSON]:
        """An error object."""
        kind = "invalid_request_error" if status == 400 else None
        return {"x-request-id": "req_scripted"}, {
            "error": {"message": message, "type": kind, "param": None, "code": code or None}
        }


class _Writer:
    """Numbers the events of one response."""

    def __init__(self, index: int, model: str) -> None:
        self._index, self._model = index, model
        self.events: list[bytes] = []

    def add(self, kind: str, **members: JSON) -> None:
        self.events.append(_event({"type": kind, "sequence_number": len(self.events), **members}))

    def response(self, status: str, items: list[dict[str, JSON]]) -> dict[str, JSON]:
        return {
            "id": f"resp_scripted_{self._index}",
            "object": "response",
            "created_at": _CREATED,
            "status": status,
            "error": None,
            "incomplete_details": None,
            "instructions": None,
            "metadata": {},
            "model": self._model,
            "output": items,
            "parallel_tool_calls": True,
            "temperature": 1.0,
            "tool_choice": "auto",
            "tools": [],
            "top_p": 1.0,
            "store": False,
            "usage": None,
        }

    @property
    def index(self) -> int:
        return self._index


def _reasoned(writer: _Writer, at: int, answer: ScriptedAnswer) -> dict[str, JSON]:
    item: dict[str, JSON] = {"id": f"rs_{writer.index}_{at}", "type": "reasoning", "summary": [], "encrypted_content": "part"}
    writer.add("response.output_item.added", output_index=at, item=item)
    where = {"item_id": item["id"], "output_index": at, "summary_index": 0}
    writer.add("response.reasoning_summary_part.added", **where, part={"type": "summary_text", "text": ""})
    for piece in source.pieces(answer.thinking, answer.chunk):
        writer.add("response.reasoning_summary_text.delta", **where, delta=piece)
    summary = {"type": "summary_text", "text": answer.thinking}
    writer.add("response.reasoning_summary_text.done", **where, text=answer.thinking)
    writer.add("response.reasoning_summary_part.done", **where, part=summary)
    whole = {**item, "summary": [summary], "encrypted_content": f"scripted-{writer.index}"}
    writer.add("response.output_item.done", output_index=at, item=whole)
    return whole


def _said(writer: _Writer, at: int, answer: ScriptedAnswer) -> dict[str, JSON]:
    name = f"msg_{writer.index}_{at}"
    phase = "commentary" if answer.calls else "final_answer"
    started = {"id": name, "type": "message", "role": "assistant", "status": "in_progress", "content": [], "phase": phase}
    writer.add("response.output_item.added", output_index=at, item=started)
    where = {"item_id": name, "output_index": at, "content_index": 0}
    if source.stop_of(answer) is Stop.REFUSAL:
        part: dict[str, JSON] = {"type": "refusal", "refusal": answer.text}
        writer.add("response.content_part.added", **where, part={**part, "refusal": ""})
        for piece in source.pieces(answer.text, answer.chunk):
            writer.add("response.refusal.delta", **where, delta=piece)
        writer.add("response.refusal.done", **where, refusal=answer.text)
    else:
        part = {"type": "output_text", "text": answer.text, "annotations": [], "logprobs": []}
        writer.add("response.content_part.added", **where, part={**part, "text": ""})
        for piece in source.pieces(answer.text, answer.chunk):
            writer.add("response.output_text.delta", **where, delta=piece, logprobs=[], obfuscation="x")
        writer.add("response.output_text.done", **where, text=answer.text, logprobs=[])
    writer.add("response.content_part.done", **where, part=part)
    whole = {**started, "status": "completed", "content": [part]}
    writer.add("response.output_item.done", output_index=at, item=whole)
    return whole


def _usage(usage: Usage) -> dict[str, JSON]:
    total = (usage.input or 0) + (usage.cache_read or 0) + (usage.cache_write or 0)
    cached = {"cached_tokens": usage.cache_read or 0}
    if usage.cache_write is not None:
        cached["cache_write_tokens"] = usage.cache_write
    return {
        "input_tokens": total,
        "input_tokens_details": cached,
        "output_tokens": usage.output or 0,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning or 0},
        "total_tokens": total + (usage.output or 0),
    }


def _event(value: dict[str, JSON]) -> bytes:
    data = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    return f"event: {value['type']}\n".encode() + b"data: " + data + b"\n\n"
