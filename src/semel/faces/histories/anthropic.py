"""Histories as the Messages API of Anthropic has them: a request body, or its list of messages."""

from typing import Any

from semel.core.values import Block, Text, ToolCall
from semel.faces.histories.reading import (
    NO_INSTRUCTIONS,
    NO_REASONING,
    Collected,
    Foreign,
    Object,
    arguments_text,
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

_OPAQUE = frozenset({"thinking", "redacted_thinking"})


def read(raw: bytes) -> Foreign:
    """The history of a file. Raises BadHistory for what no session can start from, with its place."""
    document = decode_document(raw)
    collected = Collected()
    if isinstance(document, dict) and document.get("system"):
        collected.remark(NO_INSTRUCTIONS)
    for at, item in enumerate(items_of(document, "messages"), 1):
        where = f"message {at}"
        message = object_at(item, where)
        match word_of(message, "role"):
            case "user":
                _user(collected, message.get("content"), where)
            case "assistant":
                _assistant(collected, message.get("content"), where)
            case role:
                raise refused(where, f"a message of the role {role!r} cannot be imported")
    offered = offered_of(document)
    specs = tool_specs((tool.get("name"), tool.get("input_schema")) for tool in offered) if offered else None
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
        match word_of(block, "type"):
            case "text":
                texts.append(text_at(block.get("text"), place))
            case "tool_result":
                if texts:
                    raise refused(place, "call_without_result: text stands between a call and its result")
                text = _result_text(block.get("content"), place)
                is_error = block.get("is_error") is True
                collected.result(text_at(block.get("tool_use_id"), place), text, is_error=is_error)
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
        kind = word_of(block, "type")
        if kind != "text":
            raise refused(where, f"a result with a block of the type {kind!r} cannot be imported")
        texts.append(text_at(block.get("text"), where))
    return "\n".join(texts)


def _assistant(collected: Collected, content: Any, where: str) -> None:
    blocks: list[Block] = []
    for at, block in enumerate(_blocks(content, where), 1):
        place = f"{where}, block {at}"
        kind = word_of(block, "type")
        if kind == "text":
            blocks.append(Text(text=text_at(block.get("text"), place)))
        elif kind == "tool_use":
            arguments = arguments_text(block.get("input"))
            name, call_id = text_at(block.get("name"), place), text_at(block.get("id"), place)
            blocks.append(ToolCall(id=call_id, name=name, arguments=arguments))
        elif kind in _OPAQUE:
            collected.remark(NO_REASONING)
        else:
            raise refused(place, f"a block of the type {kind!r} cannot be imported")
    collected.answer(blocks)
