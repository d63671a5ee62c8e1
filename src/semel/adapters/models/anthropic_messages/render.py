"""Prompt -> request body of the Messages API (P4, wire 0.3, wire 1).

Thinking is sent back whole, in the place where it came (B22). Arguments are spliced in as the model wrote them, since reading and
writing them again would change their bytes. The end of the conversation may carry a mark for the cache; the mark is written
behind what is kept, so that it moves without a message being rendered again.
"""

import json
import re

from semel.adapters.models.anthropic_messages.options import ANTHROPIC_MESSAGES, MessagesOptions
from semel.adapters.models.arguments import sendable
from semel.adapters.models.controls import LONG_TTL, Controls, NamedTool, Reasoning
from semel.adapters.models.json_text import dump, to_bytes
from semel.adapters.models.media import FileForm, Shown, Written
from semel.adapters.models.rendering import Place
from semel.adapters.models.turns import USER, Turns
from semel.adapters.models.wire_text import EMPTY_MESSAGE, NO_OUTPUT, result_text, visible, wire_id, wire_name
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

OPAQUE_PREFIX = "anthropic."
THINKING = frozenset({"anthropic.thinking", "anthropic.redacted_thinking"})
_ID = re.compile(r"[A-Za-z0-9_-]{1,128}")
_NAME = re.compile(r"[A-Za-z0-9_-]{1,128}")


class MessagesForm:
    """The Messages API. Implements rendering.Form."""

    def __init__(self, bundle: Bundle, options: MessagesOptions) -> None:
        """`options` are the decoded options of `bundle`."""
        self._bundle, self._options = bundle, options
        self._turns = Turns(member="content", text=_text)
        self._tools: tuple[tuple[ToolSpec, ...], bytes] = ((), b"")
        self._system_mark, self._end_mark = _marks(options)
        written = _written if bundle.renderer > 1 else None
        takes = ANTHROPIC_MESSAGES.takes(options.dialect)
        self._files = FileForm(takes=takes, text=_text_part, shown=_shown, written=written)

    def head(self, instructions: str, place: Place) -> bytes:
        """Up to the first message."""
        del place
        limit = self._bundle.max_output_tokens or self._options.dialect.max_tokens
        head = b'{"model":' + dump(self._bundle.model) + b',"max_tokens":' + dump(limit)
        if instructions.strip():
            head += b',"system":[' + _text(instructions)[:-1] + self._system_mark + b"}]"
        return head + b',"messages":['

    def message(self, message: Message, place: Place) -> bytes:
        """The blocks of one message."""
        if isinstance(message, UserMessage):
            shown = map(dump, self._files.parts(message.parts, place.media, place.counted))
            return self._turns.add(USER, [*shown, _text(visible(message.text, EMPTY_MESSAGE))], place)
        if isinstance(message, ToolMessage):
            return self._turns.add(USER, [self._result(message, place)], place)
        return self._turns.add("assistant", self._answer(message), place)

    def tail(self, prompt: Prompt, place: Place) -> bytes:
        """From the end of the messages."""
        if self._tools[0] != prompt.tools or not self._tools[1]:
            self._tools = (prompt.tools, b"," + dump(self._members(prompt.tools))[1:])
        return self._turns.close(place, mark=self._end_mark) + self._tools[1]

    def _result(self, message: ToolMessage, place: Place) -> bytes:
        text = result_text(message)
        said = [_text_part(text)] if text else []
        shown = self._files.parts(message.parts, place.media, place.counted)
        result: dict[str, JSON] = {
            "type": "tool_result",
            "tool_use_id": wire_id(message.tool_call_id, _ID),
            "content": [*said, *shown] if message.parts else text,
        }
        if message.is_error:
            result["is_error"] = True
        return dump(result)

    def _answer(self, message: AssistantMessage) -> list[bytes]:
        sent = [(block, data) for block in message.blocks if (data := self._block(block))]
        blocks = [data for _, data in sent]
        if all(isinstance(block, Opaque) and block.format in THINKING for block, _ in sent):
            blocks.append(_text(NO_OUTPUT))  # an answer may not end with its thinking, nor be empty
        return blocks

    def _block(self, block: Block) -> bytes:
        if isinstance(block, Text):
            return _text(block.text) if block.text.strip() else b""
        if isinstance(block, ToolCall):
            name = wire_name(block.name, _NAME, longest=128)
            start = {"type": "tool_use", "id": wire_id(block.id, _ID), "name": name}
            return dump(start)[:-1] + b',"input":' + to_bytes(sendable(block.arguments)) + b"}"
        echoed = isinstance(block, Opaque) and block.format.startswith(OPAQUE_PREFIX) and self._options.dialect.echo_thinking
        return to_bytes(block.data) if echoed else b""

    def _members(self, tools: tuple[ToolSpec, ...]) -> dict[str, JSON]:
        controls = self._options.controls
        members: dict[str, JSON] = {"stream": True}
        if controls.reasoning is not None:
            members.update(_reasoning(controls.reasoning))
        if controls.output_schema is not None:
            format_ = {"type": "json_schema", "schema": controls.output_schema}
            members["output_config"] = {**members.get("output_config", {}), "format": format_}
        if tools:
            members["tools"] = [_tool(tool) for tool in tools]
            if (choice := _choice(controls)) is not None:
                members["tool_choice"] = choice
        members.update(self._options.body)
        return members


def _text(text: str) -> bytes:
    return dump(_text_part(text))


def _marks(options: MessagesOptions) -> tuple[bytes, bytes]:
    """The members that mark the end of a cached prefix: for the system block, and for the last block of the conversation."""
    asked, usual = options.controls.cache, options.dialect.cache
    if asked == "off" or (asked is None and usual == "off"):
        return b"", b""
    lifetime = {"ttl": LONG_TTL} if asked == "long" else {}
    mark = b',"cache_control":' + dump({"type": "ephemeral", **lifetime})
    return mark, mark if asked is not None or usual == "conversation" else b""


def _text_part(text: str) -> JSON:
    return {"type": "text", "text": text}


def _shown(item: Shown) -> JSON:
    source = {"type": "base64", "media_type": item.media_type, "data": item.data}
    return {"type": "image", "source": source} if item.is_image else {"type": "document", "source": source, **_title(item)}


def _written(item: Written, _counted: dict[str, int]) -> JSON:
    return {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": item.text}, **_title(item)}


def _title(item: Media) -> dict[str, JSON]:
    return {"title": item.name} if item.name and item.name.strip() else {}


def _tool(tool: ToolSpec) -> dict[str, JSON]:
    described = {"description": tool.description} if tool.description.strip() else {}
    return {"name": tool.name, **described, "input_schema": json.loads(tool.parameters)}


def _choice(controls: Controls) -> dict[str, JSON] | None:
    choice = controls.tool_choice
    if choice is None and controls.parallel_calls is None:
        return None
    if choice == "none":
        return {"type": "none"}
    if isinstance(choice, NamedTool):
        result: dict[str, JSON] = {"type": "tool", "name": choice.tool}
    else:
        result = {"type": "any" if choice == "required" else "auto"}
    if controls.parallel_calls is not None:
        result["disable_parallel_tool_use"] = not controls.parallel_calls
    return result


def _reasoning(reasoning: Reasoning) -> dict[str, JSON]:
    if reasoning.effort == "none":
        return {"thinking": {"type": "disabled"}}
    if reasoning.budget_tokens is not None:
        thinking: dict[str, JSON] = {"type": "enabled", "budget_tokens": reasoning.budget_tokens}
    else:
        thinking = {"type": "adaptive"}
    if reasoning.show is not None:
        thinking["display"] = "summarized" if reasoning.show else "omitted"
    effort = {} if reasoning.effort is None else {"output_config": {"effort": reasoning.effort}}
    return {"thinking": thinking, **effort}
