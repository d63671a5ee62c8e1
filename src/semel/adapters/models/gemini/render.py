"""Prompt -> request body of generateContent (P4, wire 0.3, wire 4).

A part that carries a signature goes back as the part it was: neither merged nor split, the empty ones too. A call goes back with
the id that the server gave it, or with none if it gave none; its result is found by name and place.
"""

import json
import re

from semel.adapters.models.arguments import sendable
from semel.adapters.models.controls import NamedTool, Reasoning, ToolChoice
from semel.adapters.models.file_limits import PDF, Takes
from semel.adapters.models.gemini.options import GEMINI, GeminiOptions
from semel.adapters.models.json_text import dump, member, text_of, to_bytes
from semel.adapters.models.media import FileForm, Shown, Written, named_text
from semel.adapters.models.opaque import state_behind
from semel.adapters.models.rendering import Place
from semel.adapters.models.turns import USER, Turns
from semel.adapters.models.wire_text import EMPTY_MESSAGE, NO_OUTPUT, result_text, visible, wire_name
from semel.core.values import (
    JSON,
    AssistantMessage,
    Bundle,
    Message,
    Prompt,
    Text,
    ToolCall,
    ToolMessage,
    ToolSpec,
    UserMessage,
)

PART = "gemini.part"  # a whole part: a thought, a signed text without text, what the server itself ran
TEXT_STATE = "gemini.text"  # of the text before it: its signature
CALL_STATE = "gemini.call"  # of the call before it: its signature and the id it was given; on every call that Gemini made
_NAME = re.compile(r"[A-Za-z0-9_.:-]{1,128}")
_OLD_DOCUMENTS = frozenset({PDF, "text/plain", "text/html", "text/csv", "text/markdown"})  # of version 1
_MODES = {"auto": "AUTO", "none": "NONE", "required": "ANY"}


class GeminiForm:
    """generateContent. Implements rendering.Form."""

    def __init__(self, bundle: Bundle, options: GeminiOptions) -> None:
        """`options` are the decoded options of `bundle`."""
        self._bundle, self._options = bundle, options
        self._turns = Turns(member="parts", text=_text)
        self._tools: tuple[tuple[ToolSpec, ...], bytes] = ((), b"")
        reads_text = bundle.renderer > 1
        takes = GEMINI.takes(options.dialect) if reads_text else Takes(documents=_OLD_DOCUMENTS, limits=options.dialect)
        self._files = FileForm(takes=takes, text=_text_part, shown=_shown, written=_written if reads_text else None)

    def head(self, instructions: str, place: Place) -> bytes:
        """Up to the first content."""
        del place
        said = b""
        if instructions.strip():
            said = b'"systemInstruction":{"parts":[' + _text(instructions) + b'],"role":"user"},'
        return b"{" + said + b'"contents":['

    def message(self, message: Message, place: Place) -> bytes:
        """The parts of one message."""
        if isinstance(message, UserMessage):
            shown = map(dump, self._files.parts(message.parts, place.media, place.counted))
            return self._turns.add(USER, [*shown, _text(visible(message.text, EMPTY_MESSAGE))], place)
        if isinstance(message, ToolMessage):
            return self._turns.add(USER, [self._result(message, place)], place)
        return self._turns.add("model", self._answer(message, place), place)

    def tail(self, prompt: Prompt, place: Place) -> bytes:
        """From the end of the contents."""
        if self._tools[0] != prompt.tools or not self._tools[1]:
            members = dump(self._members(prompt.tools))[1:]
            self._tools = (prompt.tools, members if members == b"}" else b"," + members)
        return self._turns.close(place) + self._tools[1]

    def _result(self, message: ToolMessage, place: Place) -> bytes:
        name = place.names.get(message.tool_call_id, "unnamed")
        given = place.wire_ids.get(message.tool_call_id)
        words, others = self._files.words_first(message.parts, place.media)
        said = "\n".join(filter(str.strip, [result_text(message), *words]))
        response: dict[str, JSON] = {"error" if message.is_error else "output": said} if said else {}
        sent = self._files.parts(others, place.media, place.counted)
        shown = [part for part in sent if "inlineData" in part]
        unseen = [part["text"] for part in sent if "text" in part]
        if unseen:
            response["notShown"] = unseen  # parts of a response hold data only
        parts = {"parts": shown} if shown else {}
        return dump({"functionResponse": {**({"id": given} if given else {}), "name": name, "response": response, **parts}})

    def _answer(self, message: AssistantMessage, place: Place) -> list[bytes]:
        parts: list[bytes] = []
        visible_parts, first = 0, True
        place.names.clear()
        place.wire_ids.clear()
        for index, block in enumerate(message.blocks):
            if isinstance(block, ToolCall):
                parts.append(self._call(block, state_behind(message.blocks, index, CALL_STATE), place, first=first))
                visible_parts, first = visible_parts + 1, False
            elif isinstance(block, Text):
                state = state_behind(message.blocks, index, TEXT_STATE) if self._options.dialect.text_state else None
                if block.text.strip() or state:
                    parts.append(dump({"text": block.text, **(state or {})}))
                    visible_parts += 1
            elif block.format == PART:
                parts.append(to_bytes(block.data))
        return parts if visible_parts else [*parts, _text(NO_OUTPUT)]

    def _call(self, call: ToolCall, state: dict[str, JSON] | None, place: Place, *, first: bool) -> bytes:
        """A call. One without any state was made by another model; the first of those may need a stand-in for its signature."""
        name = wire_name(call.name, _NAME, longest=128)
        place.names[call.id] = name
        given = text_of(member(state, "id"))
        if given:
            place.wire_ids[call.id] = given
        head = dump({**({"id": given} if given else {}), "name": name})[:-1]
        beside = {key: value for key, value in (state or {}).items() if key != "id"}
        if state is None and first and self._options.dialect.foreign_calls is not None:
            beside = {"thoughtSignature": self._options.dialect.foreign_calls}
        end = b"," + dump(beside)[1:] if beside else b"}"
        return b'{"functionCall":' + head + b',"args":' + to_bytes(sendable(call.arguments)) + b"}" + end

    def _members(self, tools: tuple[ToolSpec, ...]) -> dict[str, JSON]:
        controls, body = self._options.controls, self._options.body
        members: dict[str, JSON] = {}
        config = {**self._generation(), **_object(body.get("generationConfig"))}
        if config:
            members["generationConfig"] = config
        if tools:
            members["tools"] = [{"functionDeclarations": [_tool(tool) for tool in tools]}]
            if controls.tool_choice is not None:
                members["toolConfig"] = {"functionCallingConfig": _choice(controls.tool_choice)}
        members.update({name: value for name, value in body.items() if name != "generationConfig"})
        return members

    def _generation(self) -> dict[str, JSON]:
        config: dict[str, JSON] = {}
        controls = self._options.controls
        if self._bundle.max_output_tokens is not None:
            config["maxOutputTokens"] = self._bundle.max_output_tokens
        if controls.reasoning is not None:
            config["thinkingConfig"] = _thinking(controls.reasoning)
        if controls.output_schema is not None:
            config["responseMimeType"] = "application/json"
            config["responseJsonSchema"] = controls.output_schema
        return config


def _text(text: str) -> bytes:
    return dump(_text_part(text))


def _text_part(text: str) -> JSON:
    return {"text": text}


def _shown(item: Shown) -> JSON:
    return {"inlineData": {"mimeType": item.media_type, "data": item.data}}


def _written(item: Written, _counted: dict[str, int]) -> JSON:
    return _text_part(named_text(item))


def _tool(tool: ToolSpec) -> dict[str, JSON]:
    described = {"description": tool.description} if tool.description.strip() else {}
    return {"name": tool.name, **described, "parametersJsonSchema": json.loads(tool.parameters)}


def _choice(choice: ToolChoice) -> dict[str, JSON]:
    if isinstance(choice, NamedTool):
        return {"mode": "ANY", "allowedFunctionNames": [choice.tool]}
    return {"mode": _MODES[choice]}


def _thinking(reasoning: Reasoning) -> dict[str, JSON]:
    config: dict[str, JSON] = {} if reasoning.show is None else {"includeThoughts": reasoning.show}
    if reasoning.effort == "none":
        return {**config, "thinkingBudget": 0}
    if reasoning.budget_tokens is not None:
        return {**config, "thinkingBudget": reasoning.budget_tokens}
    return config if reasoning.effort is None else {**config, "thinkingLevel": reasoning.effort.upper()}


def _object(value: JSON) -> dict[str, JSON]:
    return value if isinstance(value, dict) else {}
