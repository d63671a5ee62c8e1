"""B22, the history's part: what a provider bound to its bytes goes back to the same model as it came, and to no other."""

import pytest
from msgspec.structs import replace

from semel.core.decide import send
from semel.core.pairing import fault_of
from semel.core.values import AssistantMessage, Block, Message, Opaque, Text, ToolCall, ToolMessage
from tests.core.cast import driver
from tests.core.driver import Driver
from tests.core.machine import BUNDLE, good, say
from tests.core.quiet import quiesce

SIGNED = Opaque(format="anthropic_thinking", data='{"thinking":"Need two files. Read both.","signature":"EqQB=="}')
EMPTY = Opaque(format="anthropic_thinking", data='{"thinking":"","signature":"==AAAA"}')
REDACTED = Opaque(format="anthropic_redacted", data='{"data":"EmwK"}')
THINKING: tuple[Block, ...] = (
    SIGNED,
    Text(text="Reading."),
    ToolCall(id="toolu_a", name="read", arguments='{"path":"a"}'),
    EMPTY,
    REDACTED,
    ToolCall(id="toolu_b", name="read", arguments='{"path":"b"}'),
)
GEMINI: tuple[Block, ...] = (
    Text(text="Two files."),
    Opaque(format="gemini.text", data='{"thoughtSignature":"c2ln"}'),
    ToolCall(id="g1", name="read", arguments="{}"),
    Text(text=" "),
    Opaque(format="gemini.text", data='{"thoughtSignature":"bGFzdA=="}'),
    Opaque(format="gemini.part", data='{"text":"","thoughtSignature":"ZW1wdHk="}'),
    ToolCall(id="g2", name="read", arguments="{}"),
)


def answered(blocks: tuple[Block, ...]) -> Driver:
    d = driver()
    d.send()
    d.answer(blocks)
    d.back(dict.fromkeys((0, 1), good("content")))
    return d


def answers(said: list[Message]) -> list[AssistantMessage]:
    return [message for message in said if isinstance(message, AssistantMessage)]


@pytest.mark.parametrize("blocks", [THINKING, GEMINI], ids=["anthropic", "gemini"])
def test_b22_blocks_go_back_in_order_and_in_one_message_after_results_and_after_a_restart(blocks: tuple[Block, ...]) -> None:
    d = answered(blocks)
    assert answers(d.sent[-1])[0].blocks == blocks
    d.die()
    d.resume()
    assert answers(d.sent[-1])[0].blocks == blocks
    quiesce(d)
    d.send("k2", "and?")
    assert answers(d.sent[-1])[0].blocks == blocks
    assert fault_of(d.sent[-1]) is None


@pytest.mark.parametrize("blocks", [THINKING, GEMINI], ids=["anthropic", "gemini"])
def test_b22_another_model_gets_the_text_and_the_calls_and_nothing_of_the_opaque_state(blocks: tuple[Block, ...]) -> None:
    d = answered(blocks)
    quiesce(d)
    command = d.command("k2", "another model")
    other = replace(command, config=replace(command.config, bundle=replace(BUNDLE, model="other")))
    d._do(send(d.state, other))
    first = answers(d.sent[-1])[0]
    assert not first.opaque
    assert [type(block) for block in first.blocks] == [Text, ToolCall, ToolCall]
    assert [call.id for call in first.calls] == [block.id for block in blocks if isinstance(block, ToolCall)]
    assert fault_of(d.sent[-1]) is None
    assert len([message for message in d.sent[-1] if isinstance(message, ToolMessage)]) == 2
    quiesce(d)
    d.send("k3", "and back")
    assert not any(answer.opaque for answer in answers(d.sent[-1])[:1]), "what was dropped stays dropped"


def test_b22_an_answer_of_thinking_alone_is_kept_in_the_log_and_takes_no_place_in_a_request() -> None:
    d = driver()
    d.send()
    d.answer([SIGNED, REDACTED])
    assert d.state.run is None
    d.send("k2", "go on")
    assert not answers(d.sent[-1])
    assert fault_of(d.sent[-1]) is None
    d.answer(say("so"))
