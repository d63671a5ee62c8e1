"""B29: the events of a stream are the same however the network cuts its bytes and whatever ends its lines."""

import json
import random

import pytest
from models_support import pieces
from t26_kinds import head
from virtual_runs import Hurried, carried

from semel.adapters.models.catalog import build_model
from semel.adapters.models.script_steps import End, Send
from semel.adapters.models.sse import Event, Parser
from semel.testing.model_server import ModelServer
from tests.cases.serve import recorded

FRAMING = recorded("B29-framing.responses.sse")
TABLE = json.loads(recorded("B29-chunks.json"))
OFFSETS = next(mode["cut_offsets"] for mode in TABLE["feed_modes"] if isinstance(mode, dict))
TEXT = "line\u2028sep \u0085nel café 😀 end"


def parse(chunks) -> list[Event]:
    parser = Parser()
    return [event for chunk in chunks for event in parser.feed(chunk)]


def split(data: bytes, offsets: list[int]) -> list[bytes]:
    return [data[a:b] for a, b in zip([0, *offsets], [*offsets, len(data)], strict=True)]


def test_b29_the_events_of_a_stream_do_not_depend_on_where_it_is_cut():
    reference = parse([FRAMING])
    cuts = [list(pieces(FRAMING, 1)), list(pieces(FRAMING, 7)), split(FRAMING, OFFSETS), split(FRAMING, [1, 2])]
    cuts += [split(FRAMING, sorted(random.Random(seed).sample(range(1, len(FRAMING)), 40))) for seed in range(500)]
    assert all(parse(chunks) == reference for chunks in cuts)
    assert len(cuts) == 504
    assert [event.type for event in reference][:2] == ["response.created", "response.in_progress"]
    assert reference[-1].type == "response.completed"
    delta = next(json.loads(event.data) for event in reference if event.type == "response.output_text.delta")
    assert delta["delta"] == TEXT
    assert json.loads(reference[-1].data)["response"]["status"] == "completed"


@pytest.mark.parametrize("line_end", [b"\n", b"\r"])
def test_b29_a_stream_means_the_same_with_other_line_ends(line_end):
    assert b"\r\n" in FRAMING
    other = FRAMING.replace(b"\r\n", b"\n").replace(b"\n", line_end)
    assert parse(pieces(other, 1)) == parse([FRAMING])


def test_b29_a_last_event_without_its_blank_line_is_dropped():
    assert parse([FRAMING.rstrip(b"\r\n") + b"\r\n"]) == parse([FRAMING])[:-1]


def test_b29_a_parser_that_splits_as_strings_do_is_caught():
    """Negative control: the separators within the text are line ends to `str.splitlines`, and the event is lost."""
    lines = [line for line in FRAMING.decode().splitlines() if "output_text.delta" in line and line.startswith("data")]
    with pytest.raises(ValueError):
        json.loads(lines[0].removeprefix("data:"))


@pytest.mark.anyio
@pytest.mark.parametrize("cuts", [[], OFFSETS, list(range(1, len(FRAMING)))], ids=["whole", "at the offsets", "bytewise"])
async def test_b29_a_run_has_one_answer_with_the_whole_text_over_real_sockets(cuts):
    clock = Hurried()
    steps = [head("openai_responses"), *(Send(body=part) for part in split(FRAMING, cuts)), End()]
    async with ModelServer(lambda _body: steps) as server:
        model = build_model(f"openai_responses:m@{server.url}", clock=clock, environ={})
        done = await carried(model, clock)
        await model.close()
        assert (done.end, done.answers, len(server.requests)) == ("completed", [TEXT], 1)
