"""One contract for every history, whatever door it comes through (V11-V13, T7-T12, B11, B22, B24)."""

from collections.abc import Sequence
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from semel.core.codec import decode, encode
from semel.core.decide import supply_history
from semel.core.fold import ahead
from semel.core.frame import Frame
from semel.core.outcomes import Completed, settle
from semel.core.pairing import RESULT_BYTES_MOST, Fault, Rule, check_history, fault_of
from semel.core.records import Entry, HistorySupplied
from semel.core.state import Session
from semel.core.values import (
    AssistantMessage,
    Effect,
    Media,
    Message,
    Opaque,
    Text,
    ToolCall,
    ToolMessage,
    ToolSpec,
    UserMessage,
)
from semel.errors import BadHistory, CorruptLog
from tests.core.machine import LINEAGE

SCHEMA = '{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}'
TOOLS = {"add": ToolSpec(name="add", description="adds", parameters=SCHEMA)}
STANDINGS = {"bound": ("add", '{"n":1}'), "unbound": ("gone", "{}"), "misfit": ("add", '{"n":"x"}'), "broken": ("add", '{"n":')}
PAIRINGS = ("paired", "missing", "second", "unissued", "behind the user")
TEXTS = {
    "good": "fine",
    "two lines": "no\n\tnot at all",
    "blank": " \n",
    "control": "a\x1b[0m",
    "nul": "a\x00",
    "half a character": "a\ud800",
    "endless": "x" * (RESULT_BYTES_MOST + 1),
}


class Case(NamedTuple):
    """One call and what stands for its result."""

    standing: str
    pairing: str
    is_error: bool
    text: str


def history(case: Case) -> list[Message]:
    name, arguments = STANDINGS[case.standing]
    call = AssistantMessage(blocks=(ToolCall(id="c1", name=name, arguments=arguments),))
    result = ToolMessage(tool_call_id="c1", text=TEXTS[case.text], is_error=case.is_error)
    behind = UserMessage(text="go on")
    said: dict[str, list[Message]] = {
        "paired": [call, result, behind],
        "missing": [call, behind],
        "second": [call, result, result, behind],
        "unissued": [call, result, ToolMessage(tool_call_id="c9", text="?", is_error=True), behind],
        "behind the user": [call, behind, result],
    }
    return [UserMessage(text="go"), *said[case.pairing]]


def expected(case: Case) -> bool:
    """What the contract says, told apart from its code: a paired result of the right kind and shape."""
    shape = case.text in ("good", "two lines") or (not case.is_error and case.text == "control")
    kind = case.is_error or case.standing == "bound"
    return case.pairing == "paired" and kind and shape


CASES = st.builds(Case, st.sampled_from(list(STANDINGS)), st.sampled_from(PAIRINGS), st.booleans(), st.sampled_from(list(TEXTS)))


@settings(max_examples=256, deadline=None)
@given(CASES)
def test_v11_every_result_is_admitted_by_one_contract_on_every_source(case: Case) -> None:
    said = history(case)
    fault = fault_of(said, tools=TOOLS)
    assert (fault is None) == expected(case), fault
    empty = Session(session="s", lineage=LINEAGE)
    if fault is None:
        check_history(said, tools=TOOLS)
        records = supply_history(empty, said, format="test", tools=TOOLS).records
        assert list(ahead(empty, records).transcript) == said
        payload, requires = encode(records[0])
        again = decode(_frame(payload, requires))
        assert again == records[0]
        assert list(ahead(empty, (again,)).transcript) == said
    else:
        for door in (lambda: check_history(said, tools=TOOLS), lambda: supply_history(empty, said, format="test", tools=TOOLS)):
            with pytest.raises(BadHistory, match=fault.rule) as caught:
                door()
            assert f"message {fault.at + 1}" in str(caught.value)


def _frame(payload: bytes, requires: tuple[str, ...]) -> Frame:
    return Frame(ver=3, seq=1, at_ms=0, fence=1, synced=0, left=0, requires=requires, digest="0" * 64, payload=payload, offset=0)


def test_v11_the_cases_are_all_there_and_some_of_each_kind_are_admitted() -> None:
    every = [Case(s, p, e, t) for s in STANDINGS for p in PAIRINGS for e in (False, True) for t in TEXTS]
    admitted = [case for case in every if expected(case)]
    assert len(every) == 280
    assert len(admitted) == 11
    for case in every:
        assert (fault_of(history(case), tools=TOOLS) is None) == expected(case), case


@pytest.mark.parametrize(
    ("tools", "takes"),
    [(None, "unbound"), ({"add": replace(TOOLS["add"], parameters='{"type":"object"}')}, "misfit")],
    ids=["tools that are not looked up", "arguments that are not checked"],
)
def test_v11_a_contract_that_asks_less_would_be_caught(tools: dict[str, ToolSpec] | None, takes: str) -> None:
    case = Case(takes, "paired", False, "good")
    assert fault_of(history(case), tools=TOOLS) is not None
    assert fault_of(history(case), tools=tools) is None
    assert not expected(case)


CALL = AssistantMessage(blocks=(Text(text="let me see"), ToolCall(id="c1", name="add", arguments='{"n":1}')))
TWO = AssistantMessage(
    blocks=(ToolCall(id="c1", name="add", arguments='{"n":1}'), ToolCall(id="c2", name="add", arguments='{"n":2}'))
)
GO, DONE = UserMessage(text="go"), AssistantMessage(blocks=(Text(text="done"),))


def fine(name: str = "c1") -> ToolMessage:
    return ToolMessage(tool_call_id=name, text="fine")


BROKEN: dict[str, tuple[Sequence[Message], Rule, int]] = {
    "it opens with an answer": ([DONE], Rule.OPENS_WITH_USER, 0),
    "it opens with a result": ([fine()], Rule.OPENS_WITH_USER, 0),
    "a blank message": ([GO, DONE, UserMessage(text=" \n")], Rule.BLANK_TEXT, 2),
    "a NUL in a message": ([UserMessage(text="a\x00")], Rule.UNCLEAN_TEXT, 0),
    "half a character in an answer": ([GO, AssistantMessage(blocks=(Text(text="\udc00"),))], Rule.UNCLEAN_TEXT, 1),
    "a blank text in an answer": ([GO, AssistantMessage(blocks=(Text(text=" "), *CALL.blocks))], Rule.BLANK_TEXT, 1),
    "an answer that says nothing": ([GO, AssistantMessage(blocks=())], Rule.EMPTY_ANSWER, 1),
    "an answer of opaque state alone": (
        [GO, AssistantMessage(blocks=(Opaque(format="f", data='"x"'),))],
        Rule.EMPTY_ANSWER,
        1,
    ),
    "an answer behind an answer": ([GO, DONE, DONE], Rule.ANSWER_AFTER_ANSWER, 2),
    "a call without an id": (
        [GO, AssistantMessage(blocks=(ToolCall(id="", name="add", arguments="{}"),))],
        Rule.CALL_WITHOUT_ID,
        1,
    ),
    "an id that comes again": ([GO, CALL, fine(), CALL, fine()], Rule.REPEATED_CALL_ID, 3),
    "a call that is never answered": ([GO, CALL], Rule.CALL_WITHOUT_RESULT, 2),
    "a message between a call and its result": ([GO, CALL, GO, fine()], Rule.CALL_WITHOUT_RESULT, 2),
    "one of two calls without a result": ([GO, TWO, fine("c1"), GO], Rule.CALL_WITHOUT_RESULT, 3),
    "a result of no call": ([GO, DONE, fine("c9")], Rule.RESULT_WITHOUT_CALL, 2),
    "a second result": ([GO, CALL, fine(), fine()], Rule.SECOND_RESULT, 3),
    "a late second result": ([GO, CALL, fine(), DONE, fine()], Rule.SECOND_RESULT, 4),
    "results in another order": ([GO, TWO, fine("c2"), fine("c1")], Rule.RESULT_OUT_OF_ORDER, 2),
    "a result of a call that could not be run": (
        [GO, AssistantMessage(blocks=(ToolCall(id="c1", name="add", arguments="[1]"),)), fine()],
        Rule.SUCCESS_OF_REFUSED_CALL,
        2,
    ),
    "an error without words": ([GO, CALL, ToolMessage(tool_call_id="c1", text="", is_error=True)], Rule.ERROR_SHAPE, 2),
    "an empty result": ([GO, CALL, ToolMessage(tool_call_id="c1", text="")], Rule.BLANK_TEXT, 2),
    "an endless result": (
        [GO, CALL, ToolMessage(tool_call_id="c1", text="x" * (RESULT_BYTES_MOST + 1))],
        Rule.RESULT_SHAPE,
        2,
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_v12_a_history_that_no_provider_takes_is_refused_by_its_place_and_its_rule(name: str) -> None:
    said, rule, at = BROKEN[name]
    fault = fault_of(said)
    assert fault is not None
    assert (fault.rule, fault.at) == (rule, at)
    with pytest.raises(BadHistory, match=f"message {at + 1}: {rule}"):
        check_history(said)
    record = HistorySupplied(format="test", entries=tuple(Entry(entry_id=str(i), content=m) for i, m in enumerate(said)))
    with pytest.raises(CorruptLog, match="tool_call_mismatch"):
        ahead(Session(session="s", lineage=LINEAGE), (record,))


def test_v12_every_rule_has_a_history_that_breaks_it_and_the_nearest_good_one_is_taken() -> None:
    assert {rule for _, rule, _ in BROKEN.values()} == set(Rule)
    media = UserMessage(text="", parts=(Media(media_type="image/png", sha256="a" * 64, size_bytes=1),))
    for said in (
        [GO],
        [GO, DONE],
        [GO, CALL, fine(), DONE],
        [GO, TWO, fine("c1"), fine("c2"), GO],
        [media, DONE],
        [GO, GO, DONE],
    ):
        assert fault_of(said) is None


def test_v12_a_checker_that_forgets_a_rule_would_be_caught() -> None:
    """The control: with any one rule left out, some history that breaks it passes."""
    for rule in Rule:
        passed = [name for name, (said, broken, _) in BROKEN.items() if broken is rule and _forgetful(said, rule) is None]
        assert passed, rule


def _forgetful(said: Sequence[Message], rule: Rule) -> Fault | None:
    fault = fault_of(said)
    return None if fault is not None and fault.rule is rule else fault


@settings(max_examples=100, deadline=None)
@given(st.lists(st.text(st.characters() | st.sampled_from("\x00\x1b\x07\ud800\n\t "), max_size=60), min_size=1, max_size=40))
def test_v13_inherited_errors_meet_the_contract_whatever_the_volume(words: list[str]) -> None:
    """Whatever tools failed with, what was kept of it is a history that every later request can inherit."""
    said: list[Message] = [GO]
    for at, word in enumerate(words):
        kept = settle(Effect.READ, Completed(text=word, is_error=True), after_crash=False)
        said.append(AssistantMessage(blocks=(ToolCall(id=f"c{at}", name="add", arguments='{"n":1}'),)))
        said.append(ToolMessage(tool_call_id=f"c{at}", text=kept.text, is_error=True))
    assert fault_of(said, tools=TOOLS) is None


@pytest.mark.parametrize("text", ["", "\x07", "x" * (RESULT_BYTES_MOST + 1)])
def test_v13_an_error_that_was_kept_as_it_came_would_be_caught(text: str) -> None:
    assert fault_of([GO, CALL, ToolMessage(tool_call_id="c1", text=text, is_error=True)]) is not None
