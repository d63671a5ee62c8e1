"""Histories as the Responses API of OpenAI has them: a request body, or its list of input items."""

from collections.abc import Mapping
from typing import Any

from semel.core.values import Block, Text, ToolCall, ToolSpec
from semel.errors import BadHistory
from semel.faces.histories.openai_chat import result_of, text_of
from semel.faces.histories.reading import (
    NO_INSTRUCTIONS,
    NO_REASONING,
    Collected,
    Foreign,
    Object,
    decode_document,
    digest_of,
    items_of,
    object_at,
    offered_of,
    refused,
    text_at,
    tool_specs,
    word_of,
)

_INSTRUCTING = frozenset({"system", "developer"})
_ELSEWHERE = ("previous_response_id", "conversation")


def read(raw: bytes) -> Foreign:
    """The history of a file. Raises BadHistory for what no session can start from, with its place."""
    document = decode_document(raw)
    if isinstance(document, dict) and isinstance(document.get("input"), str):
        document = {**document, "input": [{"role": "user", "content": document["input"]}]}
    elsewhere = [name for name in _ELSEWHERE if isinstance(document, dict) and document.get(name)]
    if elsewhere:
        raise BadHistory(f"the file goes on from what the server keeps (`{elsewhere[0]}`); give the whole list of items")
    collected, answer = Collected(), _Answer()
    if isinstance(document, dict) and document.get("instructions"):
        collected.remark(NO_INSTRUCTIONS)
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
    return word_of(item, "type") in ("function_call", "reasoning") or word_of(item, "role") == "assistant"


def _take(collected: Collected, answer: _Answer, item: Object, where: str) -> None:
    kind, role = word_of(item, "type") or "message", word_of(item, "role")
    if kind == "reasoning":
        collected.remark(NO_REASONING)
    elif kind == "function_call":
        name, arguments = text_at(item.get("name"), where), text_at(item.get("arguments"), where)
        answer.blocks.append(ToolCall(id=text_at(item.get("call_id"), where), name=name, arguments=arguments))
    elif kind == "function_call_output":
        result_of(collected, text_at(item.get("call_id"), where), text_of(item.get("output"), where))
    elif kind == "message" and role == "assistant":
        answer.blocks.append(Text(text=text_of(item.get("content"), where)))
    elif kind == "message" and role == "user":
        collected.user(text_of(item.get("content"), where))
    elif kind == "message" and role in _INSTRUCTING and not collected.messages:
        collected.remark(NO_INSTRUCTIONS)
    else:
        raise refused(where, f"an item of the type {kind!r} and the role {role!r} cannot be imported here")


def _tools(document: Any) -> Mapping[str, ToolSpec] | None:
    functions = [tool for tool in offered_of(document) if tool.get("type") == "function"]
    return tool_specs((function.get("name"), function.get("parameters")) for function in functions) if functions else None
