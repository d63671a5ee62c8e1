"""What the readers of all formats share: the document, where in it one is, and what becomes of calls, results and instructions.

A reader translates and refuses; it never mends. What it takes is then held against the one contract of `core.pairing`. Some
things are not faults. Providers repeat call ids from answer to answer, so calls are named anew by their place where they do
(B08). They take the results of one answer in any order, so they are put into the order of its calls. Models write blank text
beside their calls, which no provider takes back (B24). What came back for a call whose arguments nobody can read was an error.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from semel.core.arguments import parse_arguments, schema_problem
from semel.core.outcomes import Refusal
from semel.core.persistent import Table
from semel.core.plan import identified
from semel.core.values import (
    JSON,
    AssistantMessage,
    Block,
    Message,
    Text,
    ToolCall,
    ToolMessage,
    ToolSpec,
    UserMessage,
    clean_json,
    clean_text,
)
from semel.errors import BadHistory

Object = Mapping[str, Any]
ANY_OBJECT = '{"type":"object"}'
NO_INSTRUCTIONS = "the instructions of the file are not taken over; the agent of the next run gives its own"
NO_REASONING = "reasoning is not taken over: only the model that wrote it understands it"


@dataclass(frozen=True, kw_only=True)
class Foreign:
    """A conversation from elsewhere. `tools` are those that its document offers, None if it says nothing of tools.

    `notes` say what was left out: instructions, which the agent of the next run gives, and opaque state, which only its author
    understands.
    """

    messages: tuple[Message, ...]
    tools: Mapping[str, ToolSpec] | None
    notes: tuple[str, ...]
    source_sha256: str


@dataclass
class Collected:
    """A history as it is read, message by message."""

    messages: list[Message] = field(default_factory=list)
    notes: dict[str, None] = field(default_factory=dict)
    _taken: Table[bool] = field(default_factory=Table)
    _answers: int = 0
    _open: dict[str, list[str]] = field(default_factory=dict)
    _unreadable: set[str] = field(default_factory=set)
    _results: list[ToolMessage] = field(default_factory=list)
    _order: list[str] = field(default_factory=list)

    def remark(self, what: str) -> None:
        """Say once that something was left out."""
        self.notes[what] = None

    def user(self, text: str) -> None:
        """A message of the user."""
        self._flush()
        self.messages.append(UserMessage(text=clean_text(text)))

    def answer(self, blocks: Sequence[Block]) -> None:
        """An answer of the model. Its calls are named anew where their ids came before, and blank text beside others left out."""
        self._flush()
        self._answers += 1
        said = [block for block in blocks if not isinstance(block, Text) or block.text.strip()]
        named = identified(said or blocks, self._taken, self._answers)
        self._open = {}
        for old, new in zip(_calls(blocks), _calls(named), strict=True):
            self._open.setdefault(old.id, []).append(new.id)
            if isinstance(parse_arguments(new.arguments), Refusal):
                self._unreadable.add(new.id)
            self._taken = self._taken.plus(new.id, True)  # noqa: FBT003 - a set is a table of True
        self._order = [call.id for call in _calls(named)]
        self.messages.append(AssistantMessage(blocks=named))

    def result(self, tool_call_id: str, text: str, *, is_error: bool) -> None:
        """The result of a call of the last answer; under its own id where there is none, which the contract then refuses.

        Formats take results without text, so words stand for one (B24).
        """
        names = self._open.get(tool_call_id, [])
        name = names.pop(0) if len(names) > 1 else names[0] if names else tool_call_id
        is_error = is_error or name in self._unreadable
        said = clean_text(text) or ("(the tool failed and said nothing)" if is_error else "(no output)")
        self._results.append(ToolMessage(tool_call_id=name, text=said, is_error=is_error))

    def done(self) -> tuple[Message, ...]:
        """The whole history."""
        self._flush()
        return tuple(self.messages)

    def _flush(self) -> None:
        place = {name: at for at, name in enumerate(self._order)}
        known = sorted((one for one in self._results if one.tool_call_id in place), key=lambda one: place[one.tool_call_id])
        self.messages += [*known, *(one for one in self._results if one.tool_call_id not in place)]
        self._results = []


def _calls(blocks: Sequence[Block]) -> list[ToolCall]:
    return [block for block in blocks if isinstance(block, ToolCall)]


def decode_document(raw: bytes) -> Any:
    """The JSON of a file. Raises BadHistory."""
    try:
        return clean_json(msgspec.json.decode(raw))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadHistory(f"the file is not JSON: {error}") from None


def digest_of(raw: bytes) -> str:
    """The sha256 of the file, as the record of the import names it."""
    return hashlib.sha256(raw).hexdigest()


def items_of(document: Any, member: str) -> list[Any]:
    """The list of messages: the document itself, or its member of that name. Raises BadHistory."""
    found = document.get(member) if isinstance(document, dict) else document
    if not isinstance(found, list):
        raise BadHistory(f"the file has no list of messages; it is one, or has one as {member!r}")
    return found


def offered_of(document: Any) -> list[Object]:
    """The tools that a document offers; none where it says nothing of tools. Raises BadHistory."""
    offered = document.get("tools") if isinstance(document, dict) else None
    if not offered:
        return []
    if not isinstance(offered, list):
        raise BadHistory("the file's tools are no list")
    return [object_at(tool, f"tool {at}") for at, tool in enumerate(offered, 1)]


def object_at(value: Any, where: str) -> Object:
    """A value that has to be an object. Raises BadHistory."""
    if not isinstance(value, dict):
        raise BadHistory(f"{where}: it is no object")
    return value


def word_of(item: Object, member: str) -> str | None:
    """A word that says what an object is; None where it says nothing, and what is no word as it is written."""
    value = item.get(member)
    return value if value is None or isinstance(value, str) else repr(value)


def text_at(value: Any, where: str) -> str:
    """A value that has to be text. Raises BadHistory."""
    if not isinstance(value, str):
        raise BadHistory(f"{where}: it is no text")
    return value


def refused(where: str, what: str) -> BadHistory:
    """The error for something that no history of a session can hold."""
    return BadHistory(f"{where}: {what}")


def tool_specs(found: Iterable[tuple[JSON, JSON]]) -> dict[str, ToolSpec]:
    """Offered tools by name. A schema that cannot be used, or is not there, binds nothing but the name."""
    specs: dict[str, ToolSpec] = {}
    for name, schema in found:
        parameters = msgspec.json.encode(schema).decode() if isinstance(schema, dict) else ANY_OBJECT
        usable = schema_problem(parameters) is None
        specs[str(name)] = ToolSpec(name=str(name), description=str(name), parameters=parameters if usable else ANY_OBJECT)
    return specs


def arguments_text(value: JSON) -> str:
    """Arguments that a format keeps as an object, as text."""
    return msgspec.json.encode(value).decode()
