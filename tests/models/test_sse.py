"""The event parser against the standard's cases, whatever the cuts (wire 7; B29 is among the cases)."""

import json

import pytest
from models_support import FIXTURES, pieces

from semel.adapters.models.sse import Event, EventTooLarge, Parser

STANDARD = json.loads((FIXTURES / "sse_cases.json").read_text())


def parse(chunks) -> list[Event]:
    parser = Parser()
    return [event for chunk in chunks for event in parser.feed(chunk)]


def as_rows(events: list[Event]) -> list[list[str]]:
    return [[event.type, event.data, event.id] for event in events]


def test_all_28_cases_of_the_standard_hold_at_every_chunk_size():
    passed = 0
    for case in STANDARD:
        for size in (1, 7, None):
            assert as_rows(parse(pieces(bytes.fromhex(case["hex"]), size))) == case["expect"], (case["name"], size)
            passed += 1
    print(f"{passed} of {3 * len(STANDARD)}")
    assert passed == 84


def test_an_event_longer_than_the_cap_is_refused_before_it_is_complete():
    for stream in (b"data: " + b"x" * 200, b"data: x\n" * 200, b"event: " + b"x" * 200):
        with pytest.raises(EventTooLarge):
            feed_all(stream)


def feed_all(stream: bytes) -> None:
    parser = Parser(event_bytes_max=100)
    for part in pieces(stream, 7):
        list(parser.feed(part))


def test_many_small_events_pass_under_a_small_cap():
    parser = Parser(event_bytes_max=100)
    assert len(list(parser.feed(b"data: x\n\n" * 1000))) == 1000


def test_bytes_that_are_not_utf8_are_marked_and_a_real_replacement_character_is_not():
    assert [event.damaged for event in parse([b"data: a\xffb\n\n", "data: a\ufffdb\n\n".encode()])] == [True, False]


def test_a_parser_that_splits_lines_as_str_does_is_caught():
    """Negative control: the classic bug, and the case that shows it."""

    def naive(data: bytes) -> list[list[str]]:
        lines = data.decode().splitlines()
        return [["message", line.removeprefix("data: "), ""] for line in lines if line.startswith("data")]

    case = next(case for case in STANDARD if case["n"] == 22)
    assert naive(bytes.fromhex(case["hex"])) != case["expect"]
