"""Histories as the Chat Completions API of OpenAI has them: a request body, or its list of messages."""

from collections.abc import Mapping
from typing import Any

from semel.core.values import Block, Text, ToolCall, ToolSpec
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
_TEXTS = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}
_ERROR_MARK = "error: "  # the format has no flag for a failed call; semel's own requests mark it like this


def read(raw: bytes) -> Foreign:
    """The history of a file. Raises BadHistory for what no session can start from, with its place."""
    document = decode_document(raw)
    collected = Collected()
    for at, item in enumerate(items_of(document, "messages"), 1):
        where = f"message {at}"
        message = object_at(item, where)
        role = word_of(message, "role")
        if role in _INSTRUCTING and not collected.messages:
            collected.remark(NO_INSTRUCTIONS)
        elif role == "user":
            collected.user(text_of(message.get("content"), where))
        elif role == "assistant":
            _assistant(collected, message, where)
        elif role == "tool":
            call_id = text_at(message.get("tool_call_id"), where)
            result_of(collected, call_id, text_of(message.get("content"), where))
        else:
            raise refused(where, f"a message of the role {role!r} cannot be imported here")
    return Foreign(messages=collected.done(), tools=_tools(document), notes=tuple(collected.notes), source_sha256=digest_of(raw))


def result_of(collected: Collected, call_id: str, text: str) -> None:
    """Take the result of a call, whose text says whether it is an error."""
    is_error = text.startswith(_ERROR_MARK)
    collected.result(call_id, text.removeprefix(_ERROR_MARK), is_error=is_error)


def _assistant(collected: Collected, message: Object, where: str) -> None:
    if message.get("function_call"):
        raise refused(where, "a call in the old form `function_call` has no id; it cannot be imported")
    if message.get("reasoning_content") or message.get("reasoning") or message.get("reasoning_details"):
        collected.remark(NO_REASONING)
    blocks: list[Block] = []
    content = message.get("content")
    if content:
        blocks.append(Text(text=text_of(content, where)))
    elif message.get("refusal"):
        blocks.append(Text(text=text_at(message.get("refusal"), where)))
    calls = message.get("tool_calls") or ()
    if not isinstance(calls, list | tuple):
        raise refused(where, "its tool_calls are no list")
    for at, item in enumerate(calls, 1):
        place = f"{where}, call {at}"
        call = object_at(item, place)
        kind = word_of(call, "type")
        if kind not in (None, "function"):
            raise refused(place, f"a call of the type {kind!r} cannot be imported")
        function = object_at(call.get("function"), place)
        call_id, arguments = text_at(call.get("id"), place), text_at(function.get("arguments"), place)
        blocks.append(ToolCall(id=call_id, name=text_at(function.get("name"), place), arguments=arguments))
    collected.answer(blocks)


def text_of(content: Any, where: str) -> str:
    """The text of a content, whole or in parts."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise refused(where, "it has no content")
    texts = []
    for at, item in enumerate(content, 1):
        part = object_at(item, f"{where}, part {at}")
        kind = word_of(part, "type")
        if kind is None or kind not in _TEXTS:
            raise refused(f"{where}, part {at}", f"a part of the type {kind!r} cannot be imported")
        texts.append(text_at(part.get(_TEXTS[kind]), f"{where}, part {at}"))
    return "\n".join(texts)


def _tools(document: Any) -> Mapping[str, ToolSpec] | None:
    functions = [object_at(tool.get("function", {}), f"tool {at}") for at, tool in enumerate(offered_of(document), 1)]
    return tool_specs((function.get("name"), function.get("parameters")) for function in functions) if functions else None
