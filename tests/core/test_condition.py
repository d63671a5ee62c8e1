"""Conditions of rules: each form, each way to be neither true nor false; every text and all arguments get an answer."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semel.core import condition
from semel.core.condition import BadCondition, CannotTell, holds, like, parse_condition
from semel.core.values import JSON

ARGUMENTS: dict[str, JSON] = {
    "cents": 6000,
    "ratio": 1.0,
    "one": 1,
    "currency": "EUR",
    "path": "/etc/passwd",
    "urgent": True,
    "tags": ["vip", 3],
    "to": {"name": "Ann", "country": {"code": "DE"}},
    "nothing": None,
}
TRUE_OR_FALSE = [
    ("cents > 5000", True),
    ("cents > 6000", False),
    ("cents >= 6000", True),
    ("cents < 6000.5", True),
    ("cents <= -1", False),
    ("cents == 6000", True),
    ("cents != 6000", False),
    ("ratio == one", True),
    ("one == true", False),
    ("urgent", True),
    ("not urgent", False),
    ("not not urgent", True),
    ("urgent == true", True),
    ("currency == 'EUR'", True),
    ('currency != "EUR"', False),
    ("currency < 'F'", True),
    ("currency in ['EUR', 'USD']", True),
    ("currency not in ['EUR']", False),
    ("'UR' in currency", True),
    ("'vip' in tags", True),
    ("true in tags", False),
    ("3 not in tags", False),
    ("1 in []", False),
    ("path like '/etc/*'", True),
    ("path not like '*.txt'", True),
    ("path like '/ETC/*'", False),
    ("to.name == 'Ann'", True),
    ("to.country.code == 'DE'", True),
    ("to.country.name == null", True),
    ("missing == null", True),
    ("missing.more == null", True),
    ("nothing == null", True),
    ("missing != null and missing > 3", False),
    ("cents > 5000 and currency == 'USD'", False),
    ("cents > 5000 or missing > 3", True),
    ("cents > 9 and cents < 99 or urgent", True),
    ("cents > 9 and (cents < 99 or urgent)", True),
    ("not (cents > 9 and cents < 99)", True),
    ("tags == ['vip', 3]", True),
    ("1e3 < cents", True),
    ("5000<cents", True),
]
NEITHER = [
    ("missing > 3", "missing is null, and 3 is neither below nor above it"),
    ("cents > '5'", "cents is 6000, and a text is neither below nor above it"),
    ("urgent > 0", "urgent is true, and 0 is neither below nor above it"),
    ("tags > 0", "tags is a list"),
    ("cents", "cents is 6000, which is neither true nor false"),
    ("currency", "currency is a text, which is neither true nor false"),
    ("missing and urgent", "missing is null, which is neither true nor false"),
    ("not missing", "missing is null"),
    ("missing like '*'", "missing is null, and `like` compares a text with a pattern"),
    ("cents in currency", "currency is a text, in which 6000 cannot be looked for"),
    ("cents in missing", "missing is null, in which 6000 cannot be looked for"),
    ("'Ann' in to", "to is an object"),
]
WRONG = [
    ("", "at character 1: it ends where there should be the name of an argument"),
    ("cents >", "at character 8: it ends where"),
    ("cents > 5000 5", "at character 14: '5' stands where there should be the end"),
    ("1 < cents < 5", "to compare more than two values, join the parts"),
    ("cents = 5", "at character 7: '= 5' is not understood"),
    ("cents > 5 && urgent", "at character 11: '&& urgent' is not understood"),
    ("(cents > 5", "it ends where there should be `)`"),
    ("cents > 5)", "')' stands where there should be the end"),
    ("currency in ['EUR' 'USD']", "where there should be `,`"),
    ("currency not 'EUR'", "where there should be `in` or `like`"),
    ("currency == 'EUR", "is not understood"),
    ("and > 5", "'and' stands where there should be the name of an argument"),
    ("to. > 5", "'>' stands where there should be the name of an argument"),
    ("len(tags) > 1", "'(' stands where there should be the end"),
    ("cents + 1 > 5", "'+ 1 > 5' is not understood"),
    ("cents > 5e", "is not understood"),
    ("__import__('os')", "'(' stands where there should be the end"),
    ("(" * 40 + "urgent" + ")" * 40, "nested deeper than 32 levels"),
    ("not " * 40 + "urgent", "nested deeper than 32 levels"),
    ("[" * 40, "nested deeper than 32 levels"),
    ("urgent or " * 300 + "urgent", "it has 3006 characters, the most is 2000"),
]


@pytest.mark.parametrize(("text", "found"), TRUE_OR_FALSE)
def test_a_condition_is_true_or_false_of_arguments(text: str, found: bool) -> None:
    assert holds(parse_condition(text), ARGUMENTS) is found


@pytest.mark.parametrize(("text", "why"), NEITHER)
def test_a_condition_that_is_neither_says_so_and_is_not_a_no(text: str, why: str) -> None:
    for condition_text in (text, f"({text})"):
        with pytest.raises(CannotTell, match=re.escape(why)):
            holds(parse_condition(condition_text), ARGUMENTS)


@pytest.mark.parametrize(("text", "why"), WRONG)
def test_a_text_that_is_no_condition_is_refused_with_the_place(text: str, why: str) -> None:
    with pytest.raises(BadCondition, match=re.escape(why)):
        parse_condition(text)


def test_a_comparison_that_takes_a_bool_for_a_number_would_be_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(condition, "_both", lambda left, right, kinds: isinstance(left, kinds) and isinstance(right, kinds))
    with pytest.raises(pytest.fail.Exception):
        test_a_condition_that_is_neither_says_so_and_is_not_a_no("urgent > 0", "urgent is true")


WORDS = st.sampled_from(
    [
        "cents",
        "to.name",
        "missing",
        "5",
        "-1.5",
        "'x'",
        "true",
        "null",
        "and",
        "or",
        "not",
        "in",
        "like",
        "==",
        "<",
        "(",
        ")",
        "[",
        "]",
    ]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["name", "x"]), inner, max_size=2),
    max_leaves=5,
)


TEXTS = st.lists(WORDS, max_size=12).map(" ".join) | st.text(max_size=30)


def answer(text: str, arguments: dict[str, JSON]) -> str:
    try:
        return {True: "true", False: "false"}[holds(parse_condition(text), arguments)]
    except (BadCondition, CannotTell) as error:
        return str(error)


@settings(max_examples=500, deadline=None)
@given(TEXTS, st.dictionaries(st.sampled_from(["cents", "to"]), VALUES))
def test_every_text_and_all_arguments_get_an_answer(text: str, arguments: dict[str, JSON]) -> None:
    assert answer(text, arguments).isprintable()


@settings(max_examples=300, deadline=None)
@given(st.text("ab*?", max_size=8), st.text("ab", max_size=8))
def test_a_pattern_means_what_it_means_as_a_regular_expression(pattern: str, text: str) -> None:
    expression = "".join({"*": ".*", "?": "."}.get(sign, re.escape(sign)) for sign in pattern)
    assert like(text, pattern) is (re.fullmatch(expression, text) is not None)


def test_a_pattern_of_many_stars_takes_bounded_steps() -> None:
    assert not like("a" * 5_000, "*a" * 100 + "b")
