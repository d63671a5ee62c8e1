"""Conversations as programs keep them, with all that stands in a real request: what a session makes of them, and goes on with."""

import json
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semel.core.pairing import check_history
from semel.core.values import AssistantMessage, ToolMessage, UserMessage
from semel.errors import BadHistory
from semel.faces.histories import anthropic, openai_chat, openai_responses
from semel.faces.histories.supplying import FORMATS, read_history
from semel.testing.model_server import serve_in_thread
from tests.cases.serve import paired
from tests.faces.support import open_shop

HOME = Path(__file__).parent / "histories"
READERS = {"anthropic": anthropic.read, "openai_chat": openai_chat.read, "openai_responses": openai_responses.read}
LOOKED_UP = [("find_order", "17", False), ("find_order", "18", True)]
REFUNDS = {
    "anthropic": [("refund", "17", False)],
    "openai_chat": [("refund", "17", False), ("refund", "18", True)],
    "openai_responses": [("refund", "17", False), ("refund", "18", True)],
}


def document(format_: str) -> Any:
    return json.loads((HOME / f"{format_}.json").read_text())


@pytest.mark.parametrize("format_", FORMATS)
def test_a_real_request_is_taken_whole_and_in_order(format_: str) -> None:
    foreign = read_history(HOME / f"{format_}.json", format_)
    check_history(foreign.messages, tools=foreign.tools)
    calls = [call for message in foreign.messages if isinstance(message, AssistantMessage) for call in message.calls]
    results = {message.tool_call_id: message for message in foreign.messages if isinstance(message, ToolMessage)}
    told = [(call.name, "17" if "17" in call.arguments else "18", results[call.id].is_error) for call in calls]
    assert told == LOOKED_UP + REFUNDS[format_]
    assert [results[call.id].text for call in calls][:3] == ['{"total": 125}', "no such order", "(no output)"]
    assert [message.text for message in foreign.messages if isinstance(message, UserMessage)] == [
        "Refund orders 17 and 18.\nThey came broken.",
        "And tell me when it is done.",
    ]
    assert foreign.messages[-1].text == "Order 17 is refunded. I found no order 18."
    assert len(foreign.notes) == 2
    assert "instructions" in foreign.notes[0]
    assert "reasoning" in foreign.notes[1]


@pytest.mark.parametrize("format_", FORMATS)
def test_a_session_goes_on_from_a_real_request_to_one_that_a_server_takes(format_: str, tmp_path: Path) -> None:
    journal = tmp_path / "journal.jsonl"
    with serve_in_thread({"answers": [{"text": "no"}] * 4}, journal=journal) as server:
        shop = open_shop(tmp_path, model=f"openai_chat:m@{server.url}")
        done = shop.semel("import", "--format", format_, "--session", "box", str(HOME / f"{format_}.json"), "--json")
        assert done.exit == 0, done.err
        sent = shop.semel("send", "--session", "box", "--agent", "agent.toml", "Where were we?")
        assert sent.exit == 0, sent.err
        shown = shop.semel("show", "box")
    (body,) = [json.loads(json.loads(line)["body"]) for line in journal.read_text().splitlines()]
    assert paired(body["messages"])
    assert body["messages"][-1]["content"] == "Where were we?"
    assert sum(message["role"] == "tool" for message in body["messages"]) == done.json["messages"] - 5
    assert f"messages from elsewhere, in the format {format_}" in shown.out


IMAGE = {
    "anthropic": {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}},
    "openai_chat": {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}},
    "openai_responses": {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo="},
}


@pytest.mark.parametrize("format_", FORMATS)
def test_an_image_is_refused_by_its_place_and_its_type(format_: str) -> None:
    said = [{"role": "user", "content": [IMAGE[format_]]}]
    with pytest.raises(BadHistory, match=rf"(message|item) 1, (block|part) 1: .*'{IMAGE[format_]['type']}' cannot be imported"):
        READERS[format_](json.dumps(said).encode())


MORE_REFUSED: dict[str, tuple[str, Any, str]] = {
    "responses: what the server keeps": (
        "openai_responses",
        {"previous_response_id": "resp_1", "input": "go on"},
        "goes on from what the server keeps .`previous_response_id`.",
    ),
    "chat: a call of another type": (
        "openai_chat",
        [{"role": "user", "content": "go"}, {"role": "assistant", "tool_calls": [{"id": "a", "type": "custom", "custom": {}}]}],
        "message 2, call 1: a call of the type 'custom'",
    ),
    "chat: tools that are no list": ("openai_chat", {"tools": {"a": 1}, "messages": []}, "tools are no list"),
    "anthropic: a tool that is no object": ("anthropic", {"tools": ["x"], "messages": []}, "tool 1: it is no object"),
    "anthropic: a search by the server": (
        "anthropic",
        [{"role": "user", "content": "go"}, {"role": "assistant", "content": [{"type": "server_tool_use", "id": "s"}]}],
        "message 2, block 1: a block of the type 'server_tool_use'",
    ),
}


@pytest.mark.parametrize("name", MORE_REFUSED)
def test_what_cannot_be_taken_over_is_refused_by_its_place(name: str) -> None:
    format_, said, why = MORE_REFUSED[name]
    with pytest.raises(BadHistory, match=why):
        READERS[format_](json.dumps(said).encode())


ODD: list[Any] = [None, True, 7, 2**70, -1.5, "", "\u0000", "x", [], {}, [[]], [None], ["x"], {"x": {"y": 1}}]
ODD += [{"type": []}, {"role": {}}]


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place within a document."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, item in inner for place in places(item, (*path, key)))]


@pytest.mark.parametrize("format_", FORMATS)
@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_whatever_stands_in_a_document_it_is_taken_or_refused_and_nothing_else_happens(format_: str, data: st.DataObject) -> None:
    found = document(format_)
    for _ in range(data.draw(st.integers(1, 3))):
        path = data.draw(st.sampled_from(places(found)[1:]))
        holder = found
        for key in path[:-1]:
            holder = holder[key]
        holder[path[-1]] = deepcopy(data.draw(st.sampled_from(ODD)))
    with suppress(BadHistory):
        foreign = READERS[format_](json.dumps(found).encode())
        check_history(foreign.messages, tools=foreign.tools)
