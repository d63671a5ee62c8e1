"""The event parser against the standard's cases, whatever the cuts (wire 7, B29)."""

import json
import random

import pytest
from models_support import CASES, FIXTURES, pieces

from semel.adapters.models.sse import Event, EventTooLarge, Parser

STANDARD = json.loads((FIXTURES / "sse_cases.json").read_text())
FRAMING = (CASES / "B29-framing.responses.sse").read_bytes()


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


def test_the_events_of_a_stream_do_not_depend_on_where_it_is_cut():
    table = json.loads((CASES / "B29-chunks.json").read_text())
    offsets = next(mode["cut_offsets"] for mode in table["feed_modes"] if isinstance(mode, dict))
    reference = parse([FRAMING])
    cuts = [list(pieces(FRAMING, 1)), list(pieces(FRAMING, 7)), split(FRAMING, offsets), split(FRAMING, [1, 2])]
    cuts += [split(FRAMING, sorted(random.Random(seed).sample(range(1, len(FRAMING)), 40))) for seed in range(500)]
    assert all(parse(chunks) == reference for chunks in cuts)
    assert len(cuts) == 504
    assert [event.type for event in reference][:2] == ["response.created", "response.in_progress"]
    assert reference[-1].type == "response.completed"
    delta = next(json.loads(event.data) for event in reference if event.type == "response.output_text.delta")
    assert delta["delta"] == "line\u2028sep \u0085nel café 😀 end"
    assert json.loads(reference[-1].data)["response"]["status"] == "completed"


def split(data: bytes, offsets: list[int]) -> list[bytes]:
    return [data[a:b] for a, b in zip([0, *offsets], [*offsets, len(data)], strict=True)]


@pytest.mark.parametrize("line_end", [b"\n", b"\r"])
def test_a_stream_means_the_same_with_other_line_ends(line_end):
    assert b"\r\n" in FRAMING
    other = FRAMING.replace(b"\r\n", b"\n").replace(b"\n", line_end)
    assert parse(pieces(other, 1)) == parse([FRAMING])


def test_a_last_event_without_its_blank_line_is_dropped():
    assert parse([FRAMING.rstrip(b"\r\n") + b"\r\n"]) == parse([FRAMING])[:-1]


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
