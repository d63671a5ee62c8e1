"""Prompt -> request body of the Responses API (P4, wire 0.3, wire 3).

An item that the server itself made goes back as it came: reasoning whole, a message and a call with their ids and phase beside
what semel keeps of them. Reasoning goes only in front of the item that it led to; servers refuse it alone.
"""

import json
import re
from collections.abc import Sequence

from semel.adapters.models.arguments import sendable
from semel.adapters.models.controls import Controls, NamedTool, Reasoning
from semel.adapters.models.json_text import dump, to_bytes
from semel.adapters.models.media import FileForm, Shown, Written, data_url, named_text
from semel.adapters.models.opaque import state_behind
from semel.adapters.models.openai_responses.options import OPENAI_RESPONSES, ResponsesOptions
from semel.adapters.models.rendering import Place
from semel.adapters.models.wire_text import EMPTY_MESSAGE, NO_OUTPUT, result_text, visible, wire_id, wire_name
from semel.core.values import (
    JSON,
    AssistantMessage,
    Block,
    Bundle,
    Message,
    Opaque,
    Prompt,
    Text,
    ToolCall,
    ToolMessage,
    ToolSpec,
    UserMessage,
    derived_id,
)

ITEM = "responses.item"  # a whole item: reasoning, a compaction, a call that the server itself made
MESSAGE_STATE = "responses.message"  # of the message before it: id, status, phase
CALL_STATE = "responses.call"  # of the call before it: id, status
_ID = re.compile(r"[\x21-\x7e]{1,64}")
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


class ResponsesForm:
    """The Responses API. Implements rendering.Form."""

    def __init__(self, bundle: Bundle, options: ResponsesOptions) -> None:
        """`options` are the decoded options of `bundle`."""
        self._bundle, self._options = bundle, options
        self._tools: tuple[tuple[ToolSpec, ...], bytes] = ((), b"")
        takes = OPENAI_RESPONSES.takes(options.dialect)
        self._files = FileForm(takes=takes, text=_text, shown=_shown, written=_written if bundle.renderer > 1 else None)

    def head(self, instructions: str, place: Place) -> bytes:
        """Up to the first item."""
        del place
        said = b',"instructions":' + dump(instructions) if instructions.strip() else b""
        return b'{"model":' + dump(self._bundle.model) + said + b',"input":['

    def message(self, message: Message, place: Place) -> bytes:
        """The items of one message, and the comma before them."""
        comma = b"," if place.role else b""
        place.role = "any"
        return comma + b",".join(self._items(message, place))

    def tail(self, prompt: Prompt, place: Place) -> bytes:
        """From the end of the items."""
        del place
        if self._tools[0] != prompt.tools or not self._tools[1]:
            self._tools = (prompt.tools, b"]," + dump(self._members(prompt.tools))[1:])
        if not self._options.dialect.cache_key or "prompt_cache_key" in self._options.body:
            return self._tools[1]
        return self._tools[1][:-1] + b',"prompt_cache_key":' + dump(conversation_key(prompt)) + b"}"

    def _items(self, message: Message, place: Place) -> list[bytes]:
        if isinstance(message, UserMessage):
            said = _text(visible(message.text, EMPTY_MESSAGE))
            shown = self._files.parts(message.parts, place.media, place.counted)
            return [dump({"role": "user", "content": [*shown, said]})]
        if isinstance(message, ToolMessage):
            text = result_text(message)
            text = f"error: {text}" if message.is_error else text  # the wire has no flag for it
            shown = self._files.parts(message.parts, place.media, place.counted)
            output = [*([_text(text)] if text else []), *shown] if message.parts else text
            return [dump({"type": "function_call_output", "call_id": _call_id(message.tool_call_id), "output": output})]
        return self._answer(message)

    def _answer(self, message: AssistantMessage) -> list[bytes]:
        items: list[bytes] = []
        waiting: list[bytes] = []  # whole items, until one follows that they belong to
        for index, block in enumerate(message.blocks):
            if isinstance(block, Opaque):
                if block.format == ITEM and self._options.dialect.encrypted_reasoning:
                    waiting.append(to_bytes(block.data))
                continue
            if isinstance(block, ToolCall):
                item = _call(block, state_behind(message.blocks, index, CALL_STATE) or {})
            elif block.text.strip():
                item = _said(block, self._message_state(message.blocks, index))
            else:
                continue
            items += [*waiting, dump(item)]
            waiting = []
        items += [item for item in waiting if b'"type":"reasoning"' not in item]
        return items or [dump({"role": "assistant", "content": NO_OUTPUT})]

    def _message_state(self, blocks: Sequence[Block], index: int) -> dict[str, JSON]:
        return (state_behind(blocks, index, MESSAGE_STATE) or {}) if self._options.dialect.text_state else {}

    def _members(self, tools: tuple[ToolSpec, ...]) -> dict[str, JSON]:
        dialect, controls = self._options.dialect, self._options.controls
        members: dict[str, JSON] = {}
        if self._bundle.max_output_tokens is not None:
            members["max_output_tokens"] = self._bundle.max_output_tokens
        if dialect.store is not None:
            members["store"] = dialect.store
        if dialect.encrypted_reasoning:
            members["include"] = ["reasoning.encrypted_content"]
        if controls.parallel_calls is not None:
            members["parallel_tool_calls"] = controls.parallel_calls
        members.update(self._options.body)
        members["stream"] = True
        if tools:
            members["tools"] = [_tool(tool, strict=dialect.strict_tools) for tool in tools]
        asked = _controls(controls, offered=bool(tools))
        members.update({name: value for name, value in asked.items() if name not in self._options.body})
        return members


def conversation_key(prompt: Prompt) -> str:
    """The same for every request of a conversation, and made from how it starts: no id of a log enters a request (M22)."""
    first = prompt.messages[0] if len(prompt.messages) else None
    return f"semel-{derived_id('conversation', prompt.instructions, first.text if first is not None else '')}"


def _text(text: str) -> dict[str, JSON]:
    return {"type": "input_text", "text": text}


def _shown(item: Shown) -> JSON:
    if item.is_image:
        return {"type": "input_image", "image_url": data_url(item), "detail": "auto"}
    return {"type": "input_file", "filename": item.name or "document.pdf", "file_data": data_url(item)}


def _written(item: Written, _counted: dict[str, int]) -> JSON:
    """As text: of a table that comes as a file OpenAI's server shows the first rows only, and others may take no text files."""
    return _text(named_text(item))


def _said(block: Text, state: dict[str, JSON]) -> dict[str, JSON]:
    """A message of the assistant: the server's own item where it has an id, else a plain one, which may have a phase too."""
    beside = {name: value for name, value in state.items() if name not in ("id", "status")}
    if "id" not in state:
        return {"role": "assistant", "content": block.text, **beside}
    part = {"type": "output_text", "text": block.text, "annotations": [], "logprobs": []}
    status = state.get("status", "completed")
    return {"id": state["id"], "type": "message", "role": "assistant", "status": status, "content": [part], **beside}


def _call(block: ToolCall, state: dict[str, JSON]) -> dict[str, JSON]:
    item: dict[str, JSON] = {"id": state["id"]} if "id" in state else {}
    item["type"] = "function_call"
    item.update({name: value for name, value in state.items() if name != "id"})
    item["call_id"] = _call_id(block.id)
    item["name"] = wire_name(block.name, _NAME, longest=64)
    item["arguments"] = sendable(block.arguments)
    return item


def _call_id(name: str) -> str:
    return wire_id(name, _ID)


def _tool(tool: ToolSpec, *, strict: bool) -> dict[str, JSON]:
    described = {"description": tool.description} if tool.description.strip() else {}
    return {"type": "function", "name": tool.name, **described, "parameters": json.loads(tool.parameters), "strict": strict}


def _controls(controls: Controls, *, offered: bool) -> dict[str, JSON]:
    members: dict[str, JSON] = {}
    if offered and isinstance(controls.tool_choice, NamedTool):
        members["tool_choice"] = {"type": "function", "name": controls.tool_choice.tool}
    elif offered and controls.tool_choice is not None:
        members["tool_choice"] = controls.tool_choice
    if controls.reasoning is not None:
        members["reasoning"] = _reasoning(controls.reasoning)
    if controls.output_schema is not None:
        members["text"] = {"format": {"type": "json_schema", "name": "output", "schema": controls.output_schema}}
    return members


def _reasoning(reasoning: Reasoning) -> dict[str, JSON]:
    members: dict[str, JSON] = {} if reasoning.effort is None else {"effort": reasoning.effort}
    return {**members, "summary": "auto"} if reasoning.show else members
