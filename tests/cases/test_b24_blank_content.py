"""B24, the history's part: no request holds a blank text, no call loses its result, and no request ends with an answer."""

import json
from pathlib import Path

import pytest

from semel.core.outcomes import completed, settle
from semel.core.pairing import fault_of
from semel.core.texts import NO_OUTPUT
from semel.core.values import AssistantMessage, Effect, Message, Opaque, Text, ToolCall, ToolMessage
from semel.errors import BlankMessage
from tests.core.cast import driver
from tests.core.driver import Driver
from tests.core.machine import call, good, say

RETURNS = json.loads((Path(__file__).parent / "histories" / "B24-tool-empty-result.json").read_text())["returns"]
CALL = ToolCall(id="toolu_01", name="read", arguments="{}")


def sendable(said: list[Message]) -> None:
    """What every provider takes: no blank text anywhere, pairs, and not an answer at the end."""
    assert fault_of(said) is None
    assert not isinstance(said[-1], AssistantMessage)
    for message in said:
        blocks = message.blocks if isinstance(message, AssistantMessage) else (Text(text=message.text),)
        assert all(block.text.strip() for block in blocks if isinstance(block, Text))


@pytest.mark.parametrize("blank", ["", " ", "\n\n", "\t \u00a0"])
def test_b24_blank_text_beside_a_call_is_not_sent_and_the_call_is(blank: str) -> None:
    d = driver()
    d.send()
    d.answer([Text(text=blank), CALL, Text(text=blank)])
    d.back({0: good()})
    sendable(d.sent[-1])
    assert d.sent[-1][1] == AssistantMessage(blocks=(CALL,))


@pytest.mark.parametrize("blocks", [(), (Text(text=" \n"),), (Text(text=""), Opaque(format="f", data='"x"'))])
def test_b24_an_answer_without_content_ends_its_run_cleanly_and_the_next_send_works(blocks: tuple[Text, ...]) -> None:
    d = driver()
    d.send()
    d.answer(blocks)
    ended = d.state.ended[d.state.newest or ""]
    assert (ended.reason, (ended.output or "").strip()) == ("completed", "")
    d.send("k2", "are you there?")
    sendable(d.sent[-1])
    assert [message.text for message in d.sent[-1]] == ["go", "are you there?"]


@pytest.mark.parametrize("value", RETURNS, ids=[json.dumps(value) for value in RETURNS])
def test_b24_an_empty_result_is_still_one_result_and_says_so(value: object) -> None:
    d = driver()
    d.send()
    d.answer([CALL])
    settled = settle(Effect.READ, completed(value), after_crash=False)
    d.back({0: settled})
    sendable(d.sent[-1])
    results = [message for message in d.sent[-1] if isinstance(message, ToolMessage)]
    assert len(results) == 1
    assert results[0].text == (settled.text if settled.text.strip() else NO_OUTPUT)


def test_b24_after_an_answer_that_was_given_up_the_request_ends_with_the_user() -> None:
    d = driver()
    d.send()
    d.answer(call("read"))
    d.back()
    d.cancel("now")
    d.seal()
    d.send("k2", "once more")
    sendable(d.sent[-1])
    assert d.sent[-1][-1].text == "once more"


@pytest.mark.parametrize("text", ["", " ", "\n\t"])
def test_b24_a_blank_message_is_refused_and_nothing_is_written(text: str) -> None:
    d = driver()
    with pytest.raises(BlankMessage):
        d.send("k1", text)
    d.send()
    head = d.state.head
    for delivery in ("steer", "follow_up", "queue", "interrupt"):
        with pytest.raises(BlankMessage):
            d.message("m1", text, delivery)
    assert d.state.head == head


def test_b24_a_blank_message_of_an_older_log_has_its_place_and_says_so() -> None:
    from semel.core.sendable import sendable as as_sent
    from semel.core.values import UserMessage

    said, _ = as_sent(UserMessage(text=" "))
    assert said == UserMessage(text="(empty message)")


def test_b24_a_session_of_blank_answers_alone_still_has_a_legal_request() -> None:
    d: Driver = driver()
    for at in range(5):
        d.send(f"k{at}", f"message {at}")
        d.answer(say(" "))
    d.send("last", "and now?")
    sendable(d.sent[-1])
