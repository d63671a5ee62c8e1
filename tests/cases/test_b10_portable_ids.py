"""B10: ids that earlier providers gave go to any other provider: valid, unique, the same for call and result, stable."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semel.core.prompt import call_ids_of
from semel.core.values import AssistantMessage, Prompt, ToolCall, ToolMessage, UserMessage
from semel.core.wire_ids import ANTHROPIC, BEDROCK, GEMINI, MISTRAL, OPENAI_CHAT, OPENAI_RESPONSES, IdRule, wire_ids

HISTORY = json.loads((Path(__file__).parent / "histories" / "B10-history.json").read_text())
IDS = [call["id"] for call in HISTORY["calls"]]
LIMITS = {
    "openai_chat": (OPENAI_CHAT, r".{1,40}"),
    "openai_responses": (OPENAI_RESPONSES, r".{1,64}"),
    "anthropic": (ANTHROPIC, r"[a-zA-Z0-9_-]+"),
    "bedrock": (BEDROCK, r"[a-zA-Z0-9_-]{1,64}"),
    "gemini": (GEMINI, r".{1,64}"),
    "mistral": (MISTRAL, r"[a-zA-Z0-9]{9}"),
}


@pytest.mark.parametrize("target", LIMITS)
def test_b10_every_id_of_the_history_is_valid_for_the_target_unique_and_untouched_where_it_can_be(target: str) -> None:
    rule, limit = LIMITS[target]
    sent = wire_ids(IDS, rule)
    assert list(sent) == IDS
    assert all(re.fullmatch(limit, name) for name in sent.values())
    assert len(set(sent.values())) == len(IDS) == 7
    assert all(sent[name] == name for name in IDS if rule.takes(name))
    assert wire_ids(IDS, rule) == sent


@pytest.mark.parametrize("target", LIMITS)
def test_b10_a_conversation_that_goes_on_keeps_the_ids_that_it_sent(target: str) -> None:
    rule, _ = LIMITS[target]
    whole = wire_ids(IDS, rule)
    for size in range(len(IDS) + 1):
        assert wire_ids(IDS[:size], rule) == dict(list(whole.items())[:size])


def test_b10_call_and_result_have_one_id_and_the_conversation_itself_is_not_changed() -> None:
    calls = tuple(ToolCall(id=name, name="t", arguments="{}") for name in IDS)
    messages = [
        UserMessage(text="go"),
        AssistantMessage(blocks=calls),
        *(ToolMessage(tool_call_id=name, text="ok") for name in IDS),
    ]
    sent = call_ids_of(Prompt(instructions="", tools=(), messages=messages), ANTHROPIC)
    assert [sent[call.id] for call in calls] == [sent[m.tool_call_id] for m in messages if isinstance(m, ToolMessage)]
    assert [call.id for call in calls] == IDS


@settings(max_examples=200, deadline=None)
@given(st.lists(st.text(max_size=12), max_size=20), st.sampled_from([rule for rule, _ in LIMITS.values()]))
def test_b10_no_two_ids_ever_become_one(ids: list[str], rule: IdRule) -> None:
    sent = wire_ids(ids, rule)
    assert len(set(sent.values())) == len(sent) == len(set(ids))
    assert all(rule.takes(name) for name in sent.values())


def test_b10_an_id_that_another_one_was_replaced_by_is_replaced_itself() -> None:
    derived = wire_ids(["a|b"], ANTHROPIC)["a|b"]
    assert ANTHROPIC.takes(derived)
    sent = wire_ids(["a|b", derived], ANTHROPIC)
    assert sent["a|b"] == derived
    assert sent[derived] != derived


def test_b10_cutting_ids_to_their_limit_would_make_two_of_them_equal() -> None:
    """The control: what other projects did."""
    assert len({name[:33] for name in IDS}) < len(IDS)
    assert len({name.partition("|")[0] for name in IDS}) < len(IDS)
