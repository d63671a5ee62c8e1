"""Prompt -> request body of a chat completion: deterministic, and each message is rendered once (P4, P10, wire 0.3).

Two rules keep every request valid for its server (P5, B14). Arguments that are not the text of one JSON object are sent back as
`{}`: servers parse what they are sent, and the call's own result tells the model what was wrong. A tool name that no server
takes (the model may have invented it) is sent with the odd characters replaced.

Opaque blocks are echoed under the name they came with. The prompt holds only those of this bundle's own endpoint and model
(wire 0.2): whoever builds the prompt drops the others; formats of other families are ignored here.
"""

import hashlib
import json
import re
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

from semel.adapters.models.arguments import is_json_object
from semel.adapters.models.openai_chat.options import CALL_EXTRA_FORMAT, REASONING_FORMATS, ChatOptions
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
    clean_text,
)
from semel.ports.model import Request

KEPT_BYTES = 64 * 1024 * 1024
_NAME = re.compile(r"[A-Za-z0-9_.:/-]{1,128}")


@dataclass
class _Kept:
    """The rendered start of one conversation: everything up to and including `last`, and its running digest."""

    first: Message
    last: Message
    head: bytes
    count: int
    body: bytearray
    digest: "hashlib._Hash" = field(repr=False)


class ChatRenderer:
    """Renders for one bundle. Keeps what it rendered of the conversations it saw last, within KEPT_BYTES."""

    def __init__(self, bundle: Bundle, options: ChatOptions) -> None:
        """`options` are the decoded options of `bundle`."""
        self._bundle, self._options = bundle, options
        self._kept: OrderedDict[int, _Kept] = OrderedDict()  # by the identity of the first message, which the value keeps alive
        self._kept_bytes = 0
        self._tools: tuple[tuple[ToolSpec, ...], bytes] = ((), b"")

    def render(self, prompt: Prompt) -> Request:
        """One request body. The cost beyond copying it is that of the messages not rendered before."""
        kept = self._grown(prompt)
        tail = self._tail(prompt.tools)
        digest = kept.digest.copy()
        digest.update(tail)
        return Request(body=b"".join((kept.body, tail)), sha256=digest.hexdigest())

    def _grown(self, prompt: Prompt) -> _Kept:
        messages, head = prompt.messages, self._head(prompt.instructions)
        if not messages:
            return _Kept(UserMessage(text=""), UserMessage(text=""), head, 0, bytearray(head), hashlib.sha256(head))
        kept = self._kept.pop(id(messages[0]), None)
        if kept is not None:
            self._kept_bytes -= len(kept.body)
        if kept is None or kept.head != head or len(messages) < kept.count or messages[kept.count - 1] is not kept.last:
            kept = _Kept(messages[0], messages[0], head, 0, bytearray(head), hashlib.sha256(head))
        self._extend(kept, messages)
        self._kept[id(messages[0])] = kept
        self._kept_bytes += len(kept.body)
        while self._kept_bytes > KEPT_BYTES and len(self._kept) > 1:
            self._kept_bytes -= len(self._kept.popitem(last=False)[1].body)
        return kept

    def _extend(self, kept: _Kept, messages: Sequence[Message]) -> None:
        for index in range(kept.count, len(messages)):
            comma = b"" if kept.body.endswith(b"[") else b","
            more = comma + _dump(message_json(messages[index], self._options))
            kept.body += more
            kept.digest.update(more)
        kept.count, kept.last = len(messages), messages[-1]

    def _head(self, instructions: str) -> bytes:
        head = b'{"model":' + _dump(self._bundle.model) + b',"messages":['
        if instructions:
            head += _dump({"role": self._options.dialect.system_role, "content": instructions})
        return head

    def _tail(self, tools: tuple[ToolSpec, ...]) -> bytes:
        if self._tools[0] != tools or not self._tools[1]:
            self._tools = (tools, self._render_tail(tools))
        return self._tools[1]

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
        refused = () if tools else ("tool_choice", "parallel_tool_calls")  # by servers, where no tool is offered
        members.update({name: value for name, value in self._options.body.items() if name not in refused})
        return b"]," + _dump(members)[1:]


def message_json(message: Message, options: ChatOptions) -> dict[str, JSON]:
    """One message as the wire has it, members in their fixed order."""
    if isinstance(message, UserMessage):
        return {"role": "user", "content": message.text}
    if isinstance(message, ToolMessage):
        text = f"error: {message.text}" if message.is_error else message.text  # the wire has no flag for it
        return {"role": "tool", "tool_call_id": message.tool_call_id, "content": text}
    return _assistant_json(message, options)


def _assistant_json(message: AssistantMessage, options: ChatOptions) -> dict[str, JSON]:
    result: dict[str, JSON] = {"role": "assistant"}
    calls = _calls_json(message.blocks)
    text = "".join(block.text for block in message.blocks if isinstance(block, Text))
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


def _calls_json(blocks: Sequence[Block]) -> list[dict[str, JSON]]:
    calls: list[dict[str, JSON]] = []
    for block in blocks:
        if isinstance(block, ToolCall):
            arguments = block.arguments if is_json_object(block.arguments) else "{}"
            function = {"name": _wire_name(block.name), "arguments": arguments}
            calls.append({"id": block.id, "type": "function", "function": function})
        elif isinstance(block, Opaque) and block.format == CALL_EXTRA_FORMAT and calls:
            calls[-1].update(json.loads(block.data))
    return calls


def _tool_json(tool: ToolSpec) -> dict[str, JSON]:
    function: dict[str, JSON] = {"name": tool.name}
    if tool.description:
        function["description"] = tool.description
    function["parameters"] = json.loads(tool.parameters)
    return {"type": "function", "function": function}


def _wire_name(name: str) -> str:
    if _NAME.fullmatch(name):
        return name
    return re.sub(r"[^A-Za-z0-9_.:/-]", "_", name)[:128] or "unnamed"


def _dump(value: JSON) -> bytes:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    try:
        return text.encode()
    except UnicodeEncodeError:  # half a surrogate pair, from a log of a writer that did not clean what entered (B19)
        return clean_text(text).encode()
