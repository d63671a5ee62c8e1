"""T26, one exchange: 22 kinds of faulty provider and two more, 50 places of a reset, and TLS that ends without a goodbye.

A stream is sent once whatever happens (MODEL-4): redelivery is decided above and recorded, and `test_t26_redelivery.py` counts
it. What breaks is a failure with its class, never an answer; what is only odd is the answer all the same.
"""

from contextlib import asynccontextmanager

import pytest
from breaking_tls import broken_off, contexts
from models_support import HandClock, VirtualClock, ask, in_virtual_time, outcome
from played import PlayedConnector
from t26_kinds import BESIDE, LIMITS, PLAYED, head, kind_of, refusal, sent, whole
from wire_support import WIRES

from semel.adapters.models.catalog import build_model
from semel.adapters.models.script_steps import End, Send, Step
from semel.core.values import Stop, Text, ToolCall
from semel.ports.model import Answer, FailureClass, ModelFailed
from semel.testing.model_server import ModelServer

pytestmark = pytest.mark.anyio
F = FailureClass
every_family = pytest.mark.parametrize("family", sorted(WIRES))


@every_family
async def test_every_kind_of_fault_has_its_outcome_and_is_sent_once(family):
    checked = 0
    for name in (*PLAYED, *BESIDE):
        kind = kind_of(name, family)
        clock = VirtualClock()
        connector = PlayedConnector(clock, lambda _body, kind=kind: kind.make(family))
        url = f"{family}:m@http://127.0.0.1:9/v1"
        model = build_model(url, clock=clock, environ={}, options=LIMITS, connector=connector)
        shown, end = await in_virtual_time(clock, outcome(model, ask()))
        assert len(connector.requests) == 1, name
        if isinstance(kind.end, FailureClass):
            assert isinstance(end, ModelFailed), (name, end)
            assert (end.failure, end.retryable) == (kind.end, kind.asked > 1 or name.startswith("429")), (name, end)
        elif isinstance(kind.end, Stop):
            assert end.stop is kind.end, (name, end)
        else:
            assert isinstance(end, Answer), (name, end)
            assert [b.text for b in end.blocks if isinstance(b, Text)] == [kind.end], name
            assert "".join(shown) == kind.end
        if name == "duplicated call ids":
            assert len([b for b in end.blocks if isinstance(b, ToolCall)]) == 2
        if name.startswith("429"):
            assert end.retry_after_ms == 10**12  # never shortened; whether to wait is decided where the budget is known
        checked += 1
    print(f"{checked} kinds in {family}")
    assert checked == 24


async def test_asking_again_is_a_send_of_its_own_and_nobody_else_does_it():
    for family in sorted(WIRES):
        clock = VirtualClock()
        connector = PlayedConnector(clock, lambda _body, family=family: refusal(family, 500))
        model = build_model(f"{family}:m@http://127.0.0.1:9/v1", clock=clock, environ={}, connector=connector)
        request = model.render(ask())
        for times in range(1, 7):
            _, end = await in_virtual_time(clock, outcome(model, request))
            assert (end.failure, end.retryable, len(connector.requests)) == (F.SERVER_ERROR, True, times)
        assert len(set(connector.requests)) == 1  # the same bytes each time


@asynccontextmanager
async def cut_at(family: str, offsets: list[int], how: str):
    """A real server that ends each answer at the next offset."""
    body, left = whole(family), list(offsets)

    def reply(_body: bytes) -> list[Step]:
        return [head(family), Send(body=body[: left.pop(0)]), End(how=how)]

    async with ModelServer(reply) as server:
        yield server


@every_family
async def test_a_reset_at_50_places_over_real_sockets_is_never_an_answer(family):
    size = len(whole(family))
    offsets = sorted({round(size * n / 50) for n in range(50)})
    assert len(offsets) == 50
    assert max(offsets) < size
    taken = 0
    for how in ("reset", "no_last_chunk"):
        async with cut_at(family, offsets, how) as server:
            model = build_model(f"{family}:m@{server.url}", clock=HandClock(), environ={})
            for at in offsets:
                _, end = await outcome(model, ask())
                assert isinstance(end, ModelFailed), (how, at)
                assert end.failure is F.INTERRUPTED, (how, at, end)
                taken += 1
            await model.close()
            assert len(server.requests) == 50
    print(f"{taken} cuts of {family}, none taken for an answer")
    assert taken == 100


@every_family
@pytest.mark.parametrize("breaks", [True, False])
async def test_tls_that_ends_without_a_goodbye_is_interrupted_and_the_same_with_one_is_an_answer(family, breaks, tmp_path):
    serving, trust = contexts(tmp_path)
    body = whole(family)
    async with broken_off(family, body, breaks=lambda _n: breaks, serving=serving, trust=trust) as (url, connector, requests):
        model = build_model(f"{family}:m@{url}", clock=HandClock(), environ={}, connector=connector)
        _, end = await outcome(model, ask())
        await model.close()
    assert len(requests) == 1
    assert isinstance(end, Answer) is not breaks, end
    if breaks:
        assert end.failure is F.INTERRUPTED


async def test_an_event_or_frame_beyond_the_cap_is_refused_unread():
    for family, body in (
        ("gemini", b"data: " + b"x" * (17 * 1024 * 1024)),
        ("bedrock_converse", b"\x01\x90\x00\x00" + b"\x00" * 20),
    ):
        clock = VirtualClock()
        connector = PlayedConnector(clock, lambda _body, family=family, body=body: sent(family, body))
        model = build_model(f"{family}:m@http://127.0.0.1:9/v1", clock=clock, environ={}, connector=connector)
        _, end = await in_virtual_time(clock, outcome(model, ask()))
        assert end.failure in (F.MALFORMED_OUTPUT, F.INTERRUPTED)
        assert len(connector.requests) == 1
