"""Samples of any record, made from its type: with every field filled, or with the required ones alone."""

import types
import typing
from typing import Any

from msgspec import NODEFAULT
from msgspec.structs import fields

from semel.core.records import Content, Entry
from semel.core.values import AssistantMessage, Text, ToolCall, UserMessage

USER = UserMessage(text="hello")
ANSWER = AssistantMessage(blocks=(Text(text="so"), ToolCall(id="c0", name="read", arguments="{}")))


def sample(kind: Any, *, full: bool) -> Any:
    """An instance of a structure."""
    values = {
        field.name: _value(field.type, field.name, full=full)
        for field in fields(kind)
        if full or (field.default is NODEFAULT and field.default_factory is NODEFAULT)
    }
    return kind(**values)


def _value(kind: Any, name: str, *, full: bool) -> Any:
    simple: dict[Any, Any] = {str: f"{name}-1", int: 7, bool: True, Any: {"any": [1, None, "x"]}}
    if kind in simple:
        return simple[kind]
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind == Content:
        return ANSWER if name == "assistant_message" else USER
    if origin is tuple:
        return (_value(arguments[0], name, full=full),) if full else ()
    if origin is dict:
        return {"key": _value(arguments[1], name, full=full)} if full else {}
    if origin is typing.Literal:
        return arguments[0]
    if origin in (typing.Union, types.UnionType):
        present = [part for part in arguments if part is not type(None)]
        return _value(present[0], name, full=full) if full or len(present) == len(arguments) else None
    if hasattr(kind, "__members__"):
        return next(iter(kind))
    if kind is Entry and name == "assistant_message":
        return Entry(entry_id="e", content=ANSWER)
    return sample(kind, full=full)
