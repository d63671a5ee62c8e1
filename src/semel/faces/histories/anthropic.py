"""Histories as the Messages API of Anthropic has them: a request body, or its list of messages."""

from typing import Any

from semel.core.values import Block, Text, ToolCall
from semel.faces.histories.reading import (
    Collected,
    Foreign,
    Object,
    arguments_text,
    decode_document,
    digest_of,
    items_of,
    object_at,
    refused,
    text_at,
    tool_specs,
)

_OPAQUE = frozenset({"thinking", "redacted_thinking"})


def read(raw: bytes) -> Foreign:
    """The history of a file. Raises BadHistory for what no session can start from, with its place."""
    document = decode_document(raw)
    collected = Collected()
    if isinstance(document, dict) and document.get("system"):
        collected.remark("the instructions of the file are not taken over; the agent of the next run gives its own")
    for at, item in enumerate(items_of(document, "messages"), 1):
        where = f"message {at}"
        message = object_at(item, where)
        match message.get("role"):
            case "user":
                _user(collected, message.get("content"), where)
            case "assistant":
                _assistant(collected, message.get("content"), where)
            case role:
                raise refused(where, f"a message of the role {role!r} cannot be imported")
    tools = document.get("tools") if isinstance(document, dict) else None
    specs = None if not tools else tool_specs([(str(tool.get("name")), tool.get("input_schema")) for tool in tools])
    return Foreign(messages=collected.done(), tools=specs, notes=tuple(collected.notes), source_sha256=digest_of(raw))


def _blocks(content: Any, where: str) -> list[Object]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if not isinstance(content, list):
        raise refused(where, "it has no content")
    return [object_at(block, f"{where}, block {at}") for at, block in enumerate(content, 1)]


def _user(collected: Collected, content: Any, where: str) -> None:
    texts: list[str] = []
    for at, block in enumerate(_blocks(content, where), 1):
        place = f"{where}, block {at}"
        match block.get("type"):
            case "text":
                texts.append(text_at(block.get("text"), place))
            case "tool_result":
                if texts:
                    raise refused(place, "call_without_result: text stands between a call and its result")
                text = _result_text(block.get("content"), place)
                is_error = block.get("is_error") is True
                collected.result(text_at(block.get("tool_use_id"), place), text or _blank(is_error), is_error=is_error)
            case kind:
                raise refused(place, f"a block of the type {kind!r} cannot be imported")
    if texts:
        collected.user("\n".join(texts))


def _result_text(content: Any, where: str) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    texts = []
    for block in _blocks(content, where):
        if block.get("type") != "text":
            raise refused(where, f"a result with a block of the type {block.get('type')!r} cannot be imported")
        texts.append(text_at(block.get("text"), where))
    return "\n".join(texts)


def _blank(is_error: bool) -> str:  # noqa: FBT001 - the one thing that it depends on
    """What stands for a result without text, which the Messages API takes (B24)."""
    return "(the tool failed and said nothing)" if is_error else "(no output)"


def _assistant(collected: Collected, content: Any, where: str) -> None:
    blocks: list[Block] = []
    for at, block in enumerate(_blocks(content, where), 1):
        place = f"{where}, block {at}"
        kind = block.get("type")
        if kind == "text":
            blocks.append(Text(text=text_at(block.get("text"), place)))
        elif kind == "tool_use":
            arguments = arguments_text(block.get("input"))
            name, call_id = text_at(block.get("name"), place), text_at(block.get("id"), place)
            blocks.append(ToolCall(id=call_id, name=name, arguments=arguments))
        elif kind in _OPAQUE:
            collected.remark("thinking is not taken over: only the model that wrote it understands its signature")
        else:
            raise refused(place, f"a block of the type {kind!r} cannot be imported")
    collected.answer(blocks)
