"""The model's arguments: read strictly, checked against the tool's own schema, refused with words that help."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semel.core.arguments import (
    ARGUMENT_CHARS_MAX,
    DEPTH_MAX,
    INTEGER_MAX,
    INTEGER_MIN,
    check_arguments,
    parse_arguments,
    schema_problem,
)
from semel.core.outcomes import MESSAGE_CHARS_MAX, Refusal, RefusalReason

SCHEMA = json.dumps(
    {
        "type": "object",
        "properties": {
            "order": {"type": "string"},
            "cents": {"type": "integer", "minimum": 1},
            "tags": {"items": {"enum": ["a"]}},
        },
        "required": ["order", "cents"],
        "additionalProperties": False,
    }
)

NOT_STRICT = {
    "cut inside a list": '{"commands":["ls","rm -rf x"',
    "cut inside a string": '{"path":"/tmp/a',
    "cut inside an escape": '{"path":"\\',
    "a list": "[1]",
    "a string": '"{}"',
    "null": "null",
    "two values": "{}{}",
    "text behind": '{"a":1} thanks',
    "a code fence": '```json\n{"a":1}\n```',
    "a byte order mark": "\ufeff{}",
    "single quotes": "{'a':1}",
    "a trailing comma": '{"a":1,}',
    "a comment": '{"a":1 /* one */}',
    "a raw newline in a string": '{"a":"x\ny"}',
    "a duplicate key": '{"cents":1,"cents":100000}',
    "a duplicate key inside": '{"a":[{"b":1,"b":2}]}',
    "a duplicate key in another spelling": '{"a":1,"\\u0061":2}',
    "keys that are equal once clean": '{"\\ud800":1,"\\udfff":2}',
    "NaN": '{"a":NaN}',
    "infinity": '{"a":-Infinity}',
    "a float beyond the range": '{"a":1e999}',
    "a 5,000 digit integer": '{"a":' + "9" * 5_000 + "}",
    "an integer of 65 bits": '{"a":18446744073709551616}',
    "a leading zero": '{"a":01}',
    "200,000 brackets": "[" * 200_000,
    "65 levels": '{"a":' * 64 + "{}" + "}" * 64,
}
LENIENT_READER_TAKES = 9  # of these, as dictionaries, by `json.loads`


@pytest.mark.parametrize("text", NOT_STRICT.values(), ids=NOT_STRICT.keys())
def test_arguments_that_are_not_one_strict_object_are_refused(text: str) -> None:
    refusal = parse_arguments(text)
    assert isinstance(refusal, Refusal)
    assert refusal.reason is RefusalReason.ARGUMENTS_INVALID
    assert refusal.message.startswith("Not run: the arguments are not one strict JSON object. ")
    assert refusal.message.isprintable()
    assert len(refusal.message) < MESSAGE_CHARS_MAX


def test_a_lenient_reader_would_take_some_of_them() -> None:
    def taken(text: str) -> bool:
        try:
            return isinstance(json.loads(text), dict)
        except (ValueError, RecursionError):
            return False

    found = [name for name, text in NOT_STRICT.items() if taken(text)]
    print(f"{len(NOT_STRICT)} texts refused, a lenient reader takes {found}")
    assert len(found) == LENIENT_READER_TAKES


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("", {}),
        (" \r\n\t", {}),
        ("{}", {}),
        (' {"a" : [1, 2.5, true, null, "x"]}\n', {"a": [1, 2.5, True, None, "x"]}),
        ('{"q":"\\ud604\\ud99c ok?\\u0000"}', {"q": "\ud604\ufffd ok?\ufffd"}),
        ('{"q":"\\ud83d\\ude00"}', {"q": "\U0001f600"}),
        ('{"a":"]]}}[[{{\\"["}', {"a": ']]}}[[{{"['}),
        (f'{{"a":{INTEGER_MAX},"b":{INTEGER_MIN}}}', {"a": INTEGER_MAX, "b": INTEGER_MIN}),
    ],
)
def test_strict_arguments_are_read(text: str, arguments: dict[str, Any]) -> None:
    assert parse_arguments(text) == arguments


def test_nesting_is_taken_up_to_its_limit() -> None:
    assert isinstance(parse_arguments('{"a":' * (DEPTH_MAX - 1) + "{}" + "}" * (DEPTH_MAX - 1)), dict)


def test_arguments_beyond_the_size_are_refused_before_they_are_read() -> None:
    refusal = parse_arguments('{"a":"' + "x" * ARGUMENT_CHARS_MAX)
    assert isinstance(refusal, Refusal)
    assert refusal.reason is RefusalReason.OVERSIZED


def test_a_text_made_to_be_slow_is_read_in_linear_time() -> None:
    """Each of these takes minutes if one scan of it is quadratic; the time limit of the test run is the judge."""
    for text in ('"' + '\\"' * 500_000, '"\\' * 350_000, '"' * 1_000_000, '{"a":"' + "\\" * 1_000_000, '{"a":' * 150_000):
        assert isinstance(parse_arguments(text[:ARGUMENT_CHARS_MAX]), Refusal)


JSON_OBJECTS = st.dictionaries(
    st.text(max_size=5),
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers(INTEGER_MIN, INTEGER_MAX)
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
        max_leaves=10,
    ),
    max_size=4,
)


@settings(max_examples=200, deadline=None)
@given(arguments=JSON_OBJECTS, ascii_only=st.booleans())
def test_what_a_strict_writer_writes_is_read_back(arguments: dict[str, Any], ascii_only: bool) -> None:
    text = json.dumps(arguments, ensure_ascii=ascii_only)
    if "\\u0000" not in text:
        assert parse_arguments(text) == arguments


@settings(max_examples=300, deadline=None)
@given(text=st.text(st.characters() | st.sampled_from('{}[]":,\\0123456789truefalsn '), max_size=80))
def test_any_text_is_read_or_refused_and_never_raises(text: str) -> None:
    found = parse_arguments(text)
    if isinstance(found, Refusal):
        assert found.message.isprintable()
    else:
        assert isinstance(found, dict)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"order": "17"}, '"cents" is a required property'),
        ({"order": 17, "cents": 1}, 'order: 17 is not of type "string"'),
        ({"order": "17", "cents": 0}, "cents: 0 is less than the minimum of 1"),
        ({"order": "17", "cents": 1, "all": True}, "'all' was unexpected"),
        ({"order": "17", "cents": 1, "tags": ["a", "b"]}, "tags/1: "),
        ({"order": "17", "cents": 1, "\x1b[31m": 1}, "' [31m' was unexpected"),
    ],
)
def test_arguments_that_do_not_fit_say_where_and_why(arguments: dict[str, Any], said: str) -> None:
    refusal = check_arguments(SCHEMA, arguments)
    assert refusal is not None
    assert refusal.reason is RefusalReason.SCHEMA_INVALID
    assert said in refusal.message
    assert refusal.message.isprintable()


def test_many_problems_are_told_within_bounds() -> None:
    schema = json.dumps({"type": "object", "additionalProperties": {"type": "integer"}})
    refusal = check_arguments(schema, {f"k{i}": "x" * 5_000 for i in range(50)})
    assert refusal is not None
    assert refusal.message.endswith("; and more.")
    assert len(refusal.message) < MESSAGE_CHARS_MAX + 100


def test_fitting_arguments_are_not_refused() -> None:
    assert check_arguments(SCHEMA, {"order": "17", "cents": 1900, "tags": ["a"]}) is None


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        (SCHEMA, None),
        ('{"type":"object","$defs":{"n":{"type":"object","properties":{"c":{"$ref":"#/$defs/n"}}}}}', None),
        ("{", "its schema is not valid: "),
        ("[]", 'its schema is not of "type": "object"'),
        ("{}", 'its schema is not of "type": "object"'),
        ('{"type":"object","properties":{"a":{"type":"text"}}}', "its schema is not valid: "),
        ('{"type":"object","properties":{"a":{"$ref":"#/$defs/gone"}}}', "its schema is not valid: "),
        ('{"type":"object","properties":{"a":{"$ref":"http://127.0.0.1:9/x"}}}', "its schema is not valid: "),
        ('{"type":"object","properties":{"a":{"$ref":"file:///etc/hostname"}}}', "its schema is not valid: "),
    ],
)
def test_a_schema_is_judged_when_its_tool_is_registered(schema: str, problem: str | None) -> None:
    found = schema_problem(schema)
    assert found is None if problem is None else found is not None and found.startswith(problem)
