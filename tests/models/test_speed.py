"""How fast streams are read and requests rendered, and that a turn costs what it did at the start (P10)."""

import gc
import json
import time

import pytest
from conversations import called, prompt, result
from wire_support import WIRES, bundle_of, renderer

from semel.adapters.models.script import parse_script
from semel.core.persistent import Chain
from semel.core.values import UserMessage
from semel.testing.formats import FORMATS

every_family = pytest.mark.parametrize("family", sorted(WIRES))
EVENTS = 20_000
TURNS = 2_000
EVENTS_LEAST, GROWTH_MOST = 20_000, 1.2
"""Events per second that a decoder reads at least; and what turn 2,000 costs at most, in what turn 10 costs."""


@pytest.mark.prove
@every_family
def test_events_per_second_of_a_decoder(family):
    script = parse_script(json.dumps({"answers": [{"text": "word " * EVENTS, "chunk": 5}]}), "s")
    events = FORMATS[family].format.events(script.answers[0], 0, "m")
    chunks = [b"".join(events[i : i + 4]) for i in range(0, len(events), 4)]  # as they come off a socket
    best = 0.0
    for _ in range(3):
        wire = WIRES[family]
        decoder = wire.decoder(wire.options())
        started = time.perf_counter()
        shown = sum(len(text) for chunk in chunks for text in decoder.feed(chunk))
        answer = decoder.result()
        best = max(best, len(events) / (time.perf_counter() - started))
    print(f"{family}: {len(events)} events, {best:,.0f} events/s")
    assert shown == len(answer.blocks[0].text) == 5 * EVENTS
    assert best >= EVENTS_LEAST


def turn(n: int) -> list:
    """The work of one turn: 600 bytes of text, three calls with 200 bytes of arguments, three results of 1 KiB."""
    calls = [(f"c{n}_{i}", "noop", json.dumps({"a": "x" * 190})) for i in range(3)]
    return [called(*calls, text="t" * 600), *(result(call[0], "r" * 1024) for call in calls)]


@pytest.mark.prove
@every_family
def test_the_cost_of_a_turn_does_not_grow_with_the_turns_before_it(family):
    """CPU of rendering one turn at turn 10 and at turn 2,000, apart from the one copy that makes the body."""
    grown, chain = renderer(bundle_of(family)), Chain([UserMessage(text="go")])
    spent: dict[int, list[float]] = {10: [], TURNS: []}
    size = {}
    gc.disable()
    try:
        for n in range(1, TURNS + 30):
            chain = chain.plus(*turn(n))
            given = prompt(chain, tools=())
            started = time.perf_counter()
            kept = grown._grown(given)
            tail = grown._form.tail(given, kept.place)
            kept.digest.copy().update(tail)
            took = time.perf_counter() - started
            near = next((at for at in spent if at <= n < at + 20), None)
            if near is not None:
                spent[near].append(took)
                size[near] = len(kept.body) + len(tail)
    finally:
        gc.enable()
    early, late = (sorted(spent[at])[len(spent[at]) // 2] * 1e6 for at in (10, TURNS))
    sizes = f"{size[10]:,} and {size[TURNS]:,} bytes"
    print(f"{family}: turn 10 {early:.0f} us, turn {TURNS} {late:.0f} us, ratio {late / early:.2f} apart from copying {sizes}")
    assert size[TURNS] > 50 * size[10]
    assert late / early <= GROWTH_MOST
