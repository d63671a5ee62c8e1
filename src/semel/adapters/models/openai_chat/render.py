"""Prompt -> request body of a chat completion (P4, wire 0.3, wire 2).

Two rules keep every request valid for its server (P5, B14). Arguments that are not the text of one JSON object are sent back as
`{}`: servers parse what they are sent, and the call's own result tells the model what was wrong. A tool name that no server
takes (the model may have invented it) is sent with the odd characters replaced.

Opaque blocks are echoed under the name they came with. The prompt holds only those of this bundle's own endpoint and model
(wire 0.2): whoever builds the prompt drops the others; formats of other families are ignored here.
"""

import json
import re
from collections.abc import Sequence

from semel.adapters.models.arguments import is_json_object, sendable
from semel.adapters.models.controls import Controls, NamedTool, Reasoning
from semel.adapters.models.json_text import dump
from semel.adapters.models.media import FileForm, Shown, Written, data_url, named_text
from semel.adapters.models.openai_chat.options import CALL_EXTRA_FORMAT, OPENAI_CHAT, REASONING_FORMATS, ChatOptions
from semel.adapters.models.rendering import Place
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

_SEEN_BELOW = "(shown below)"
_NAME = re.compile(r"[A-Za-z0-9_.:/-]{1,128}")
_ID = re.compile(r"[\x21-\x7e]{1,64}")  # OpenAI bounds ids at 64; the odd characters of some servers are their own


class ChatForm:
    """Chat completions. Implements rendering.Form."""

    def __init__(self, bundle: Bundle, options: ChatOptions) -> None:
        """`options` are the decoded options of `bundle`."""
        self._bundle, self._options = bundle, options
        self._tools: tuple[tuple[ToolSpec, ...], bytes] = ((), b"")
        takes = OPENAI_CHAT.takes(options.dialect)
        self._files = FileForm(takes=takes, text=_text, shown=_shown, written=_written if bundle.renderer > 2 else None)

    def head(self, instructions: str, place: Place) -> bytes:
        """Up to the system message."""
        head = b'{"model":' + dump(self._bundle.model) + b',"messages":['
        if not instructions:
            return head
        place.role = self._options.dialect.system_role
        return head + dump({"role": place.role, "content": instructions})

    def message(self, message: Message, place: Place) -> bytes:
        """One message, and the comma before it."""
        words: list[str] = []
        parts: Sequence[Part] = () if isinstance(message, AssistantMessage) else message.parts
        if isinstance(message, ToolMessage) and self._bundle.renderer > 2:
            # What a tool says in words stays its own; only what a message of a tool cannot hold stands in one of the user.
            words, parts = self._files.words_first(parts, place.media)
        shown = self._files.parts(parts, place.media, place.counted)
        value = message_json(message, self._options, renderer=self._bundle.renderer, shown=shown, words=words)
        before = b""
        if isinstance(message, ToolMessage):
            place.shown += [_text(f"Shown by the tool call {message.tool_call_id}:"), *shown] if parts else []
        else:
            before, place.shown = _showing(place), []
        comma = b"," if place.role else b""
        place.role = str(value["role"])
        return before + comma + dump(value)

    def tail(self, prompt: Prompt, place: Place) -> bytes:
        """From the end of the messages."""
        if self._tools[0] != prompt.tools or not self._tools[1]:
            self._tools = (prompt.tools, self._render_tail(prompt.tools))
        return _showing(place) + self._tools[1]

    def _render_tail(self, tools: tuple[ToolSpec, ...]) -> bytes:
        dialect = self._options.dialect
        members: dict[str, JSON] = {}
        if self._bundle.max_output_tokens is not None:
            members[dialect.max_tokens_field] = self._bundle.max_output_tokens
        members["stream"] = True
        if dialect.include_usage:
            members["stream_options"] = {"include_usage": True}
        if dialect.store is not None:
            members["store"] = dialect.store
        if tools:
            members["tools"] = [_tool_json(tool) for tool in tools]
        members.update(_controls_json(self._options.controls, dialect.reasoning))
        members.update(self._options.body)
        refused = () if tools else ("tool_choice", "parallel_tool_calls")  # by servers, where no tool is offered
        return b"]," + dump({name: value for name, value in members.items() if name not in refused})[1:]


def message_json(
    message: Message, options: ChatOptions, *, renderer: int = 3, shown: Sequence[JSON] = (), words: Sequence[str] = ()
) -> dict[str, JSON]:
    """One message as the wire has it, members in their fixed order. `words` and `shown` are what its parts came to."""
    if isinstance(message, UserMessage):
        text = message.text if renderer == 1 else visible(message.text, EMPTY_MESSAGE)
        return {"role": "user", "content": [*shown, _text(text)] if message.parts else text}
    if isinstance(message, ToolMessage):
        alone = _SEEN_BELOW if shown or renderer < 3 else NO_OUTPUT
        text = message.text if renderer == 1 else result_text(message, alone)
        text = "\n".join(filter(str.strip, (message.text, *words))) if words else text
        text = f"error: {text}" if message.is_error else text  # the wire has no flag for it
        return {"role": "tool", "tool_call_id": _id(message.tool_call_id, renderer), "content": text}
    return _assistant_json(message, options, renderer)


def _text(text: str) -> dict[str, JSON]:
    return {"type": "text", "text": text}


def _shown(item: Shown) -> JSON:
    if item.is_image:
        return {"type": "image_url", "image_url": {"url": data_url(item)}}
    return {"type": "file", "file": {"filename": item.name or "document.pdf", "file_data": data_url(item)}}


def _written(item: Written, _counted: dict[str, int]) -> JSON:
    return _text(named_text(item))


def _showing(place: Place) -> bytes:
    """What the tools before here showed, as a message of the user: a message of a tool holds text only (wire 2)."""
    return b"," + dump({"role": "user", "content": place.shown}) if place.shown else b""


def _assistant_json(message: AssistantMessage, options: ChatOptions, renderer: int) -> dict[str, JSON]:
    result: dict[str, JSON] = {"role": "assistant"}
    calls = _calls_json(message.blocks, renderer)
    text = "".join(block.text for block in message.blocks if isinstance(block, Text))
    if renderer > 1:
        text = visible(text, "" if calls else NO_OUTPUT)
    if text or not calls or options.dialect.call_content == "empty":
        result["content"] = text
    elif options.dialect.call_content == "null":
        result["content"] = None
    if options.dialect.echo_reasoning:
        for block in message.blocks:
            if isinstance(block, Opaque) and block.format in REASONING_FORMATS:
                result[block.format] = json.loads(block.data)
    if calls:
        result["tool_calls"] = calls
    return result


def _calls_json(blocks: Sequence[Block], renderer: int) -> list[dict[str, JSON]]:
    calls: list[dict[str, JSON]] = []
    for block in blocks:
        if isinstance(block, ToolCall):
            function = {"name": _wire_name(block.name), "arguments": _arguments(block.arguments, renderer)}
            calls.append({"id": _id(block.id, renderer), "type": "function", "function": function})
        elif isinstance(block, Opaque) and block.format == CALL_EXTRA_FORMAT and calls:
            calls[-1].update(json.loads(block.data))
    return calls


def _arguments(text: str, renderer: int) -> str:
    if renderer == 1:
        return text if is_json_object(text) else "{}"
    return sendable(text)


def _id(name: str, renderer: int) -> str:
    return name if renderer == 1 else wire_id(name, _ID)


def _wire_name(name: str) -> str:
    return wire_name(name, _NAME, longest=128)


def _controls_json(controls: Controls, style: str) -> dict[str, JSON]:
    members: dict[str, JSON] = {}
    if isinstance(controls.tool_choice, NamedTool):
        members["tool_choice"] = {"type": "function", "function": {"name": controls.tool_choice.tool}}
    elif controls.tool_choice is not None:
        members["tool_choice"] = controls.tool_choice
    if controls.parallel_calls is not None:
        members["parallel_tool_calls"] = controls.parallel_calls
    if controls.reasoning is not None:
        members.update(_reasoning_json(controls.reasoning, style))
    if controls.output_schema is not None:
        named = {"name": "output", "schema": controls.output_schema}
        members["response_format"] = {"type": "json_schema", "json_schema": named}
    return members


def _reasoning_json(reasoning: Reasoning, style: str) -> dict[str, JSON]:
    if style == "object":
        given = {
            "effort": reasoning.effort,
            "max_tokens": reasoning.budget_tokens,
            "exclude": None if reasoning.show is None else not reasoning.show,
        }
        return {"reasoning": {name: value for name, value in given.items() if value is not None}}
    if style == "thinking" and reasoning.effort == "none":
        return {"thinking": {"type": "disabled"}}
    thinking: dict[str, JSON] = {"thinking": {"type": "enabled"}} if style == "thinking" else {}
    return thinking if reasoning.effort is None else {**thinking, "reasoning_effort": reasoning.effort}


def _tool_json(tool: ToolSpec) -> dict[str, JSON]:
    function: dict[str, JSON] = {"name": tool.name}
    if tool.description:
        function["description"] = tool.description
    function["parameters"] = json.loads(tool.parameters)
    return {"type": "function", "function": function}
