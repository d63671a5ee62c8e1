"""Prompt -> request body of ConverseStream (P4, wire 0.3, wire 5). The model's name is in the path, the signature in a header."""

import base64
import json
import re

from semel.adapters.models.arguments import sendable
from semel.adapters.models.bedrock_converse.options import BEDROCK_CONVERSE, ConverseOptions
from semel.adapters.models.controls import LONG_TTL, NamedTool, Reasoning, ToolChoice
from semel.adapters.models.file_limits import FileLimits, Takes, count
from semel.adapters.models.json_text import dump, member, to_bytes
from semel.adapters.models.media import DOCUMENTS, FileForm, Shown, Written, named_text
from semel.adapters.models.rendering import Place
from semel.adapters.models.turns import USER, Turns
from semel.adapters.models.wire_text import EMPTY_MESSAGE, NO_OUTPUT, result_text, visible, wire_id, wire_name
from semel.core.media import base_of
from semel.core.values import (
    JSON,
    AssistantMessage,
    Block,
    Bundle,
    Media,
    Message,
    Opaque,
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
            shown = map(dump, self._parts(message, place))
            return self._turns.add(USER, [*shown, _text(visible(message.text, EMPTY_MESSAGE))], place)
        if isinstance(message, ToolMessage):
            return self._turns.add(USER, [self._result(message, place)], place)
        return self._turns.add("assistant", self._answer(message, place), place)

    def tail(self, prompt: Prompt, place: Place) -> bytes:
        """From the end of the messages."""
        called = () if prompt.tools else tuple(place.tools)
        if self._tools[0] != (prompt.tools, called):
            members = dump(self._members(prompt.tools, called))[1:]
            self._tools = ((prompt.tools, called), members if members == b"}" else b"," + members)
        return self._turns.close(place, beside=self._end_point) + self._tools[1]

    def _parts(self, message: UserMessage | ToolMessage, place: Place) -> list[JSON]:
        """The files of a message. The names of documents are counted in `place`, so the form is bound to it."""
        limits = self._options.dialect

        def shown(item: Shown) -> JSON:
            if item.is_image:
                return {"image": {"format": item.media_type.partition("/")[2], "source": {"bytes": item.data}}}
            return _document(item, item.data, place.documents)

        def written(item: Written, counted: dict[str, int]) -> JSON:
            if limits.exceeded("documents", item.size_bytes, counted) is not None:
                return _text_part(named_text(item))  # text is never too much for a document: it is text all the same
            count(counted, "documents")
            return _document(item, base64.b64encode(item.text.encode()).decode(), place.documents)

        old = self._bundle.renderer == 1
        takes = Takes(documents=frozenset(DOCUMENTS), limits=FileLimits()) if old else BEDROCK_CONVERSE.takes(limits)
        form = FileForm(takes=takes, text=_text_part, shown=shown, written=None if old else written)
        return form.parts(message.parts, place.media, place.counted)

    def _result(self, message: ToolMessage, place: Place) -> bytes:
        text = result_text(message)
        result: dict[str, JSON] = {
            "toolUseId": wire_id(message.tool_call_id, _ID),
            "content": [*([_text_part(text)] if text else []), *self._parts(message, place)],
        }
        if message.is_error:
            result["status"] = "error"
        return dump({"toolResult": result})

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
    return dump(_text_part(text))


def _points(options: ConverseOptions) -> tuple[bytes, bytes]:
    """The cache points behind the system text and behind the last block of the conversation."""
    asked, usual = options.controls.cache, options.dialect.cache
    if asked == "off" or (asked is None and usual == "off"):
        return b"", b""
    lifetime = {"ttl": LONG_TTL} if asked == "long" else {}
    point = b',{"cachePoint":' + dump({"type": "default", **lifetime}) + b"}"
    return point, point if asked is not None or usual == "conversation" else b""


def _text_part(text: str) -> JSON:
    return {"text": text}


def _document(media: Media, data: str, names: dict[str, int]) -> JSON:
    name = _document_name(media.name or "", names)
    kind = DOCUMENTS.get(base_of(media.media_type), "txt")
    return {"document": {"format": kind, "name": name, "source": {"bytes": data}}}


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
