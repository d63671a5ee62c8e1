"""Prompt -> request body of ConverseStream (P4, wire 0.3, wire 5). The model's name is in the path, the signature in a header."""

import json
import re
from collections.abc import Sequence

from semel.adapters.models.arguments import sendable
from semel.adapters.models.bedrock_converse.options import ConverseOptions
from semel.adapters.models.controls import LONG_TTL, NamedTool, Reasoning, ToolChoice
from semel.adapters.models.json_text import dump, member, to_bytes
from semel.adapters.models.media import DOCUMENTS, Shown, parts_of
from semel.adapters.models.rendering import Place
from semel.adapters.models.turns import USER, Turns
from semel.adapters.models.wire_text import EMPTY_MESSAGE, NO_OUTPUT, result_text, visible, wire_id, wire_name
from semel.core.values import (
    JSON,
    AssistantMessage,
    Block,
    Bundle,
    Message,
    Opaque,
    Part,
    Prompt,
    Text,
    ToolCall,
    ToolMessage,
    ToolSpec,
    UserMessage,
)

REASONING = "bedrock.reasoning"
_ID = re.compile(r"[A-Za-z0-9_.:-]{1,64}")
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_NO_DOCUMENT_NAME = re.compile(r"[^A-Za-z0-9()\[\] -]")
_DOCUMENT_NAME_CHARS_MOST = 180
_ANY_OBJECT = {"type": "object"}


class ConverseForm:
    """ConverseStream. Implements rendering.Form."""

    def __init__(self, bundle: Bundle, options: ConverseOptions) -> None:
        """`options` are the decoded options of `bundle`."""
        self._bundle, self._options = bundle, options
        self._turns = Turns(member="content", text=_text)
        self._tools: tuple[object, bytes] = (None, b"")
        self._system_point, self._end_point = _points(options)

    def head(self, instructions: str, place: Place) -> bytes:
        """Up to the first message."""
        del place
        said = b""
        if instructions.strip():
            said = b'"system":[' + _text(instructions) + self._system_point + b"],"
        return b"{" + said + b'"messages":['

    def message(self, message: Message, place: Place) -> bytes:
        """The blocks of one message."""
        if isinstance(message, UserMessage):
            shown = map(dump, _parts(message.parts, place))
            return self._turns.add(USER, [*shown, _text(visible(message.text, EMPTY_MESSAGE))], place)
        if isinstance(message, ToolMessage):
            return self._turns.add(USER, [_result(message, place)], place)
        return self._turns.add("assistant", self._answer(message, place), place)

    def tail(self, prompt: Prompt, place: Place) -> bytes:
        """From the end of the messages."""
        called = () if prompt.tools else tuple(place.tools)
        if self._tools[0] != (prompt.tools, called):
            members = dump(self._members(prompt.tools, called))[1:]
            self._tools = ((prompt.tools, called), members if members == b"}" else b"," + members)
        return self._turns.close(place, beside=self._end_point) + self._tools[1]

    def _answer(self, message: AssistantMessage, place: Place) -> list[bytes]:
        sent = [(block, data) for block in message.blocks if (data := self._block(block, place))]
        blocks = [data for _, data in sent]
        if all(isinstance(block, Opaque) for block, _ in sent):
            blocks.append(_text(NO_OUTPUT))  # an answer may not end with its thinking, nor be empty
        return blocks

    def _block(self, block: Block, place: Place) -> bytes:
        if isinstance(block, Text):
            return _text(block.text) if block.text.strip() else b""
        if isinstance(block, ToolCall):
            name = wire_name(block.name, _NAME, longest=64)
            place.tools[name] = None
            start = dump({"toolUseId": wire_id(block.id, _ID), "name": name})[:-1]
            return b'{"toolUse":' + start + b',"input":' + to_bytes(sendable(block.arguments)) + b"}}"
        return to_bytes(block.data) if block.format == REASONING and self._echoes(block) else b""

    def _echoes(self, block: Opaque) -> bool:
        if not self._options.dialect.reasoning:
            return False
        content = member(json.loads(block.data), "reasoningContent")
        signed = member(content, "redactedContent") or member(content, "reasoningText", "signature")
        return bool(signed) or self._options.dialect.unsigned_reasoning

    def _members(self, tools: tuple[ToolSpec, ...], called: tuple[str, ...]) -> dict[str, JSON]:
        controls, body = self._options.controls, self._options.body
        members: dict[str, JSON] = {}
        inference = {} if self._bundle.max_output_tokens is None else {"maxTokens": self._bundle.max_output_tokens}
        members["inferenceConfig"] = {**inference, **_object(body.get("inferenceConfig"))}
        specs = [_tool(tool) for tool in tools] or [_spec(name, {}, _ANY_OBJECT) for name in called]
        config: dict[str, JSON] = {"tools": specs}
        if tools and controls.tool_choice is not None:
            config["toolChoice"] = _choice(controls.tool_choice)
        members["toolConfig"] = {**(config if specs else {}), **_object(body.get("toolConfig"))}
        more, output = _reasoning(controls.reasoning) if controls.reasoning is not None else ({}, {})
        members["additionalModelRequestFields"] = {**more, **_object(body.get("additionalModelRequestFields"))}
        if controls.output_schema is not None:
            schema = {"schema": dump(controls.output_schema).decode(), "name": "output"}
            output = {"textFormat": {"type": "json_schema", "structure": {"jsonSchema": schema}}, **output}
        members["outputConfig"] = {**output, **_object(body.get("outputConfig"))}
        members.update({name: value for name, value in body.items() if name not in members})
        return {name: value for name, value in members.items() if value != {}}


def _text(text: str) -> bytes:
    return dump({"text": text})


def _points(options: ConverseOptions) -> tuple[bytes, bytes]:
    """The cache points behind the system text and behind the last block of the conversation."""
    asked, usual = options.controls.cache, options.dialect.cache
    if asked == "off" or (asked is None and usual == "off"):
        return b"", b""
    lifetime = {"ttl": LONG_TTL} if asked == "long" else {}
    point = b',{"cachePoint":' + dump({"type": "default", **lifetime}) + b"}"
    return point, point if asked is not None or usual == "conversation" else b""


def _result(message: ToolMessage, place: Place) -> bytes:
    text = result_text(message)
    result: dict[str, JSON] = {
        "toolUseId": wire_id(message.tool_call_id, _ID),
        "content": [*([{"text": text}] if text else []), *_parts(message.parts, place)],
    }
    if message.is_error:
        result["status"] = "error"
    return dump({"toolResult": result})


def _parts(parts: Sequence[Part], place: Place) -> list[JSON]:
    def shown(item: Shown) -> JSON:
        source = {"bytes": item.data}
        if item.is_image:
            return {"image": {"format": item.media_type.partition("/")[2], "source": source}}
        name = _document_name(item.name or "", place.documents)
        return {"document": {"format": DOCUMENTS[item.media_type], "name": name, "source": source}}

    return parts_of(parts, place.media, documents=frozenset(DOCUMENTS), text=lambda text: {"text": text}, shown=shown)


def _document_name(name: str, counts: dict[str, int]) -> str:
    """A name as the service takes it: of its characters, without two blanks in a row, and of no other document of the request.

    It depends on the documents before it alone, so that a message keeps its bytes when the conversation grows (P4).
    """
    flat = " ".join(_NO_DOCUMENT_NAME.sub("-", name)[:_DOCUMENT_NAME_CHARS_MOST].split()) or "unnamed"
    count = counts.get(flat, 0) + 1
    while (unique := flat if count == 1 else f"{flat} {count}") in counts:
        count += 1
    counts[unique] = 1
    counts[flat] = count
    return unique


def _tool(tool: ToolSpec) -> dict[str, JSON]:
    described = {"description": tool.description} if tool.description.strip() else {}
    return _spec(tool.name, described, json.loads(tool.parameters))


def _spec(name: str, described: dict[str, JSON], schema: JSON) -> dict[str, JSON]:
    return {"toolSpec": {"name": name, **described, "inputSchema": {"json": schema}}}


def _choice(choice: ToolChoice) -> dict[str, JSON]:
    if isinstance(choice, NamedTool):
        return {"tool": {"name": choice.tool}}
    return {"any": {}} if choice == "required" else {"auto": {}}


def _reasoning(reasoning: Reasoning) -> tuple[dict[str, JSON], dict[str, JSON]]:
    """Members of the request for the model itself, and of `outputConfig`."""
    if reasoning.effort == "none":
        return {"thinking": {"type": "disabled"}}, {}
    if reasoning.budget_tokens is not None:
        return {"thinking": {"type": "enabled", "budget_tokens": reasoning.budget_tokens}}, {}
    return {"thinking": {"type": "adaptive"}}, {} if reasoning.effort is None else {"effort": reasoning.effort}


def _object(value: JSON) -> dict[str, JSON]:
    return value if isinstance(value, dict) else {}
