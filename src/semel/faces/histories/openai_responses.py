"""Histories as the Responses API of OpenAI has them: a request body, or its list of input items."""

from typing import Any

from semel.core.values import Block, Text, ToolCall
from semel.faces.histories.openai_chat import text_of
from semel.faces.histories.reading import (
    Collected,
    Foreign,
    Object,
    decode_document,
    digest_of,
    items_of,
    object_at,
    refused,
    text_at,
    tool_specs,
)

_INSTRUCTING = frozenset({"system", "developer"})
_ERROR_MARK = "error: "  # the format has no flag for a failed call; semel's own requests mark it like this


def read(raw: bytes) -> Foreign:
    """The history of a file. Raises BadHistory for what no session can start from, with its place."""
    document = decode_document(raw)
    if isinstance(document, dict) and isinstance(document.get("input"), str):
        document = {**document, "input": [{"role": "user", "content": document["input"]}]}
    collected, answer = Collected(), _Answer()
    if isinstance(document, dict) and document.get("instructions"):
        collected.remark("the instructions of the file are not taken over; the agent of the next run gives its own")
    for at, entry in enumerate(items_of(document, "input"), 1):
        where = f"item {at}"
        item = object_at(entry, where)
        if not _is_of_answer(item):
            answer.into(collected)
        _take(collected, answer, item, where)
    answer.into(collected)
    return Foreign(messages=collected.done(), tools=_tools(document), notes=tuple(collected.notes), source_sha256=digest_of(raw))


class _Answer:
    """The items of one answer: a model's turn is a message, calls and reasoning, one behind the other."""

    def __init__(self) -> None:
        self.blocks: list[Block] = []

    def into(self, collected: Collected) -> None:
        if self.blocks:
            collected.answer(self.blocks)
        self.blocks = []


def _is_of_answer(item: Object) -> bool:
    return item.get("type") in ("function_call", "reasoning") or item.get("role") == "assistant"


def _take(collected: Collected, answer: _Answer, item: Object, where: str) -> None:
    kind, role = item.get("type", "message"), item.get("role")
    if kind == "reasoning":
        collected.remark("reasoning is not taken over: only the model that wrote it understands it")
    elif kind == "function_call":
        name, arguments = text_at(item.get("name"), where), text_at(item.get("arguments"), where)
        answer.blocks.append(ToolCall(id=text_at(item.get("call_id"), where), name=name, arguments=arguments))
    elif kind == "function_call_output":
        text = text_of(item.get("output"), where)
        is_error = text.startswith(_ERROR_MARK)
        said = text.removeprefix(_ERROR_MARK) or ("(the tool failed and said nothing)" if is_error else "(no output)")
        collected.result(text_at(item.get("call_id"), where), said, is_error=is_error)
    elif kind == "message" and role == "assistant":
        answer.blocks.append(Text(text=text_of(item.get("content"), where)))
    elif kind == "message" and role == "user":
        collected.user(text_of(item.get("content"), where))
    elif kind == "message" and role in _INSTRUCTING and not collected.messages:
        collected.remark("the instructions of the file are not taken over; the agent of the next run gives its own")
    else:
        raise refused(where, f"an item of the type {kind!r} and the role {role!r} cannot be imported here")


def _tools(document: Any) -> Any:
    offered = document.get("tools") if isinstance(document, dict) else None
    if not offered:
        return None
    functions = [tool for tool in offered if isinstance(tool, dict) and tool.get("type") == "function"]
    return tool_specs([(str(function.get("name")), function.get("parameters")) for function in functions])
