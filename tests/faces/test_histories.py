"""Conversations in the formats of three providers: what a session starts from, and what is refused with its place and rule."""

import asyncio
import json
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from semel.adapters.memory.store import Medium
from semel.core.pairing import fault_of
from semel.core.values import JSON, AssistantMessage, Message, Text, ToolCall, ToolMessage, UserMessage
from semel.errors import BadHistory
from semel.faces.histories import anthropic, openai_chat, openai_responses
from semel.faces.histories.supplying import FORMATS, supply_session
from tests.core.quiet import quiesce
from tests.core.said import said_in
from tests.core.scripts import SCRIPTS
from tests.core.test_prefixes import played, prefixes, revived
from tests.engine.fakes import ground
from tests.faces.support import open_shop

HISTORIES = Path(__file__).parents[1] / "cases" / "histories"


def to_anthropic(said: Sequence[Message]) -> JSON:
    """A renderer of our own, apart from the reader: results in one message, in front of the text behind them."""
    out: list[dict[str, Any]] = []
    for message in said:
        if isinstance(message, AssistantMessage):
            blocks = [
                {"type": "text", "text": block.text}
                if isinstance(block, Text)
                else {"type": "tool_use", "id": block.id, "name": block.name, "input": json.loads(block.arguments)}
                for block in message.blocks
                if isinstance(block, Text | ToolCall)
            ]
            out.append({"role": "assistant", "content": blocks})
            continue
        if isinstance(message, UserMessage):
            block = {"type": "text", "text": message.text}
        else:
            block = {
                "type": "tool_result",
                "tool_use_id": message.tool_call_id,
                "content": message.text,
                "is_error": message.is_error,
            }
        if isinstance(message, ToolMessage) and out and out[-1]["role"] == "user":
            out[-1]["content"].append(block)
        else:
            out.append({"role": "user", "content": [block]})
    return {"system": "be good", "messages": out}


def marked(message: ToolMessage) -> str:
    return f"error: {message.text}" if message.is_error else message.text


def to_chat(said: Sequence[Message]) -> JSON:
    out: list[dict[str, Any]] = [{"role": "system", "content": "be good"}]
    for message in said:
        if isinstance(message, UserMessage):
            out.append({"role": "user", "content": message.text})
        elif isinstance(message, ToolMessage):
            out.append({"role": "tool", "tool_call_id": message.tool_call_id, "content": marked(message)})
        else:
            calls = [
                {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
                for call in message.calls
            ]
            out.append({"role": "assistant", "content": message.text or None, **({"tool_calls": calls} if calls else {})})
    return {"messages": out}


def to_responses(said: Sequence[Message]) -> JSON:
    out: list[dict[str, Any]] = []
    for message in said:
        if isinstance(message, UserMessage):
            out.append({"role": "user", "content": message.text})
        elif isinstance(message, ToolMessage):
            out.append({"type": "function_call_output", "call_id": message.tool_call_id, "output": marked(message)})
        else:
            if message.text:
                content = [{"type": "output_text", "text": message.text}]
                out.append({"type": "message", "role": "assistant", "content": content})
            out += [
                {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": call.arguments}
                for call in message.calls
            ]
    return {"instructions": "be good", "input": out}


ROUND: dict[str, tuple[Callable[[Sequence[Message]], JSON], Any]] = {
    "anthropic": (to_anthropic, anthropic.read),
    "openai_chat": (to_chat, openai_chat.read),
    "openai_responses": (to_responses, openai_responses.read),
}


@cache
def requests() -> list[list[Message]]:
    """Every request that the scripts of the core send, and those that each of their prefixes goes on with."""
    out: list[list[Message]] = []
    for name, play in SCRIPTS.items():
        if name in ("gated", "opaque_voided"):
            continue  # it has media, which no import takes
        out += play().sent
        for writes in prefixes(played(name).writes):
            driver = revived(name, writes)
            driver.resume()
            quiesce(driver)
            driver.send("behind", "are you there?")
            out += driver.sent
    return out


def joined(said: Sequence[Message]) -> list[Message]:
    """Messages of the user one behind the other are one to a reader; text of an answer stands in front of its calls."""
    return [
        AssistantMessage(blocks=(Text(text=message.text), *message.calls))
        if isinstance(message, AssistantMessage) and message.text and message.calls
        else message
        for message in said
    ]


@pytest.mark.parametrize("format_", FORMATS)
def test_t29_every_request_of_every_script_is_valid_in_the_format_and_comes_back_from_it(format_: str) -> None:
    render, read = ROUND[format_]
    every = requests()
    for said in every:
        document = json.dumps(render(said)).encode()
        foreign = read(document)
        assert fault_of(foreign.messages) is None
        assert list(foreign.messages) == joined(said)
    print(f"{format_}: {len(every)} requests")
    assert len(every) >= 1_150


def test_results_in_any_order_are_put_into_the_order_of_their_calls() -> None:
    said = [
        {"role": "user", "content": "go"},
        {
            "role": "assistant",
            "content": [
                {"type": "tool_use", "id": "a", "name": "t", "input": {}},
                {"type": "tool_use", "id": "b", "name": "t", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "b", "content": "two"},
                {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text", "text": "one"}]},
                {"type": "text", "text": "go on"},
            ],
        },
    ]
    foreign = anthropic.read(json.dumps(said).encode())
    assert [message.text for message in foreign.messages[2:]] == ["one", "two", "go on"]
    assert fault_of(foreign.messages) is None


def test_b08_ids_that_come_again_are_named_anew_by_their_place_and_so_are_their_results() -> None:
    turn = [
        {
            "role": "assistant",
            "tool_calls": [{"id": "read:0", "type": "function", "function": {"name": "read", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "read:0", "content": "x"},
    ]
    foreign = openai_chat.read(json.dumps([{"role": "user", "content": "go"}, *turn, *turn, *turn]).encode())
    ids = [call.id for message in foreign.messages if isinstance(message, AssistantMessage) for call in message.calls]
    assert len(set(ids)) == 3
    assert [message.tool_call_id for message in foreign.messages if isinstance(message, ToolMessage)] == ids
    assert fault_of(foreign.messages) is None


GO = {"role": "user", "content": "go"}
USE = {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "t", "input": {}}]}
CALL = {"role": "assistant", "tool_calls": [{"id": "a", "type": "function", "function": {"name": "t", "arguments": "{}"}}]}
ITEM = {"type": "function_call", "call_id": "a", "name": "t", "arguments": "{}"}

REFUSED: dict[str, tuple[str, JSON, str]] = {
    "anthropic: a call without a result": ("anthropic", [GO, USE, GO], "message 3: call_without_result"),
    "anthropic: a result of no call": (
        "anthropic",
        [GO, {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "z"}]}],
        "result_without_call",
    ),
    "anthropic: two results": (
        "anthropic",
        [GO, USE, {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a"}] * 2}],
        "message 4: second_result",
    ),
    "anthropic: text in front of a result": (
        "anthropic",
        [GO, USE, {"role": "user", "content": [{"type": "text", "text": "x"}, {"type": "tool_result", "tool_use_id": "a"}]}],
        "message 3, block 2: call_without_result",
    ),
    "anthropic: a picture": ("anthropic", [{"role": "user", "content": [{"type": "image"}]}], "message 1, block 1"),
    "anthropic: it opens with an answer": ("anthropic", [{"role": "assistant", "content": "hi"}], "opens_with_user"),
    "anthropic: a blank text": (
        "anthropic",
        [GO, {"role": "assistant", "content": [{"type": "text", "text": " "}]}],
        "empty_answer",
    ),
    "anthropic: no list": ("anthropic", {"model": "x"}, "has no list of messages"),
    "anthropic: a result of a call that does not fit the tool": (
        "anthropic",
        {
            "tools": [{"name": "t", "input_schema": {"type": "object", "required": ["n"]}}],
            "messages": [GO, USE, {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "x"}]}],
        },
        "success_of_refused_call",
    ),
    "openai_chat: a call without a result": ("openai_chat", [GO, CALL, GO], "message 3: call_without_result"),
    "openai_chat: a second result": (
        "openai_chat",
        [GO, CALL, *[{"role": "tool", "tool_call_id": "a", "content": "x"}] * 2],
        "message 4: second_result",
    ),
    "openai_chat: instructions in the middle": ("openai_chat", [GO, {"role": "system", "content": "x"}], "message 2: a message"),
    "openai_chat: a call without an id": (
        "openai_chat",
        [GO, {"role": "assistant", "function_call": {"name": "t"}}],
        "message 2: a call in the old form",
    ),
    "openai_chat: a tool that is not offered": (
        "openai_chat",
        {
            "tools": [{"type": "function", "function": {"name": "other", "parameters": {"type": "object"}}}],
            "messages": [GO, CALL, {"role": "tool", "tool_call_id": "a", "content": "x"}],
        },
        "success_of_refused_call",
    ),
    "openai_responses: a call without a result": ("openai_responses", [GO, ITEM, GO], "call_without_result"),
    "openai_responses: a result of no call": (
        "openai_responses",
        [GO, {"type": "function_call_output", "call_id": "z", "output": "x"}],
        "result_without_call",
    ),
    "openai_responses: a search": ("openai_responses", [GO, {"type": "web_search_call"}], "item 2: an item of the type"),
}


def start(format_: str, document: JSON, medium: Medium) -> int:
    read = ROUND[format_][1]
    return asyncio.run(supply_session(ground(medium), "box", read(json.dumps(document).encode()), format_))


@pytest.mark.parametrize("name", REFUSED)
def test_a_history_that_breaks_a_rule_is_refused_with_its_place_and_nothing_is_written(name: str) -> None:
    format_, document, why = REFUSED[name]
    medium = Medium()
    with pytest.raises(BadHistory, match=why):
        start(format_, document, medium)
    assert not medium.logs, "not even a place for it is made"


def test_a_session_starts_from_a_history_and_a_second_one_is_refused() -> None:
    medium = Medium()
    said = [GO, {"role": "assistant", "content": "hello"}]
    assert start("openai_chat", said, medium) == 1
    assert [message.text for message in said_in(ground(medium).store, "box")] == ["go", "hello"]
    with pytest.raises(BadHistory, match="has a conversation already"):
        start("openai_chat", said, medium)


def test_what_is_not_json_is_refused() -> None:
    for raw in (b"", b"{", b"\xff", b"[" * 100_000):
        with pytest.raises(BadHistory):
            openai_chat.read(raw)


def test_the_command_imports_a_file_and_a_send_goes_on_from_there(tmp_path: Path) -> None:
    shop = open_shop(tmp_path)
    (tmp_path / "said.json").write_text(json.dumps([GO, {"role": "assistant", "content": "hello"}]))
    done = shop.semel("import", "--format", "openai_chat", "--session", "box", "said.json", "--json")
    assert (done.exit, done.json["session"], done.json["messages"]) == (0, "box", 2)
    assert shop.semel("ls", "--json").lines[0]["session"] == "box"
    again = shop.semel("import", "--format", "openai_chat", "--session", "box", "said.json")
    assert again.exit == 2
    assert "has a conversation already" in again.refusal()
    sent = shop.semel("send", "--session", "box", "--agent", "agent.toml", "Pay 17")
    assert sent.exit == 0
    gone = shop.semel("import", "--format", "anthropic", "gone.json")
    assert gone.refusal().endswith("cannot be read: No such file or directory")
