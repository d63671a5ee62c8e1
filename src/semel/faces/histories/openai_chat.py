"""Histories as the Chat Completions API of OpenAI has them: a request body, or its list of messages."""

from typing import Any

from semel.core.arguments import parse_arguments
from semel.core.outcomes import Refusal
from semel.core.values import Block, Text, ToolCall
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
    collected = Collected()
    broken: set[str] = set()
    for at, item in enumerate(items_of(document, "messages"), 1):
        where = f"message {at}"
        message = object_at(item, where)
        role = message.get("role")
        if role in _INSTRUCTING and not collected.messages:
            collected.remark("the instructions of the file are not taken over; the agent of the next run gives its own")
        elif role == "user":
            collected.user(text_of(message.get("content"), where))
        elif role == "assistant":
            broken |= _assistant(collected, message, where)
        elif role == "tool":
            call_id = text_at(message.get("tool_call_id"), where)
            text = text_of(message.get("content"), where)
            is_error = text.startswith(_ERROR_MARK) or call_id in broken
            said = text.removeprefix(_ERROR_MARK) or ("(the tool failed and said nothing)" if is_error else "(no output)")
            collected.result(call_id, said, is_error=is_error)
        else:
            raise refused(where, f"a message of the role {role!r} cannot be imported here")
    return Foreign(messages=collected.done(), tools=_tools(document), notes=tuple(collected.notes), source_sha256=digest_of(raw))


def _assistant(collected: Collected, message: Object, where: str) -> set[str]:
    """Take an answer; returns the ids of calls whose arguments cannot be read, so that they cannot have been run."""
    if message.get("function_call"):
        raise refused(where, "a call in the old form `function_call` has no id; it cannot be imported")
    blocks: list[Block] = []
    content = message.get("content")
    if content:
        blocks.append(Text(text=text_of(content, where)))
    elif message.get("refusal"):
        blocks.append(Text(text=text_at(message.get("refusal"), where)))
    broken: set[str] = set()
    for at, item in enumerate(message.get("tool_calls") or (), 1):
        place = f"{where}, call {at}"
        call = object_at(item, place)
        function = object_at(call.get("function"), place)
        call_id, arguments = text_at(call.get("id"), place), text_at(function.get("arguments"), place)
        blocks.append(ToolCall(id=call_id, name=text_at(function.get("name"), place), arguments=arguments))
        if isinstance(parse_arguments(arguments), Refusal):
            broken.add(call_id)
    collected.answer(blocks)
    return broken


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
        if part.get("type") not in ("text", "input_text", "output_text"):
            raise refused(f"{where}, part {at}", f"a part of the type {part.get('type')!r} cannot be imported")
        texts.append(text_at(part.get("text"), f"{where}, part {at}"))
    return "\n".join(texts)


def _tools(document: Any) -> Any:
    offered = document.get("tools") if isinstance(document, dict) else None
    if not offered:
        return None
    functions = [object_at(tool, "tools").get("function") or {} for tool in offered]
    return tool_specs([(str(function.get("name")), function.get("parameters")) for function in functions])
