"""Functions that cannot be tools are refused when they are registered, by name and with what to change."""

import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from semel.adapters.tools.function import tool
from semel.errors import BadAgent


def positional(a: int, /) -> None: ...
def unannotated(a) -> None: ...  # type: ignore[no-untyped-def]  # the mistake under test
def many(*names: str) -> None: ...
def named(**names: str) -> None: ...
def unknown_type(lock: threading.Event) -> None: ...
def plain_object(thing: object) -> None: ...
def missing(a: "NotThere") -> None: ...  # type: ignore[name-defined]  # noqa: F821 - the mistake under test
def generator(a: int) -> Any:
    yield a


async def async_generator(a: int) -> AsyncIterator[int]:
    yield a


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (positional, "by name"),
        (unannotated, "no annotation"),
        (many, "by name"),
        (named, "by name"),
        (unknown_type, "no JSON Schema"),
        (plain_object, "no JSON Schema"),
        (missing, "cannot be read"),
        (generator, "single result"),
        (async_generator, "single result"),
    ],
)
def test_a_function_that_no_model_can_call_is_refused_when_it_is_registered(function: Callable[..., Any], said: str) -> None:
    with pytest.raises(BadAgent, match=said):
        tool(function)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"name": "has space"}, "tool name"),
        ({"name": "x" * 65}, "tool name"),
        ({"effect": "twice"}, "effect is"),
        ({"timeout": 0}, "timeout"),
        ({"timeout": float("nan")}, "timeout"),
        ({"timeout": "soon"}, "timeout"),
    ],
)
def test_a_wrong_option_is_refused_when_the_tool_is_registered(options: dict[str, Any], said: str) -> None:
    with pytest.raises(BadAgent, match=said):
        tool(**options)(look_up_nothing)


def look_up_nothing() -> None: ...
