"""B25: a stream that stalls is given up in time and asked for again, one that lives is not; a cancel works at any moment."""

import asyncio
import json
from collections.abc import Iterable

import pytest
from models_support import VirtualClock, ask, in_virtual_time, outcome
from played import PlayedConnector, at_rest
from virtual_runs import BACKOFF_SECONDS, played

from semel import Agent, Cancelled, Completed, Runtime
from semel.adapters.memory.store import MemoryStore
from semel.adapters.models.catalog import ModelOptions, build_model
from semel.adapters.models.script_steps import End, Head, Pause, Send, Silence, Step
from semel.adapters.system import SystemIds
from semel.core.features import KNOWN
from semel.core.values import UserMessage
from semel.engine.resume import Ground
from semel.ports.model import Answer, FailureClass
from tests.cases.serve import recorded
from tests.core.said import said_in

pytestmark = pytest.mark.anyio
FAMILY = "anthropic_messages"
URL = f"{FAMILY}:m@http://127.0.0.1:9/v1"
STALL = recorded("B25-stall.anthropic.sse")
PING = b'event: ping\ndata: {"type":"ping"}\n\n'
MORE = b'data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"."}}\n\n'
THE_END = (
    b'data: {"type":"content_block_stop","index":0}\n\n'
    b'data: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":9}}\n\n'
    b'data: {"type":"message_stop"}\n\n'
)
HEAD = Head(status=200, headers={"content-type": "text/event-stream"})
SCHEDULES: dict[str, list[Step]] = {
    "silent": [HEAD, Send(body=STALL), Silence()],
    "ping-only": [HEAD, Send(body=STALL), Silence(ping_ms=10_000, ping=PING)],
    "headers-only": [HEAD, Silence()],
    "slow-but-alive": [HEAD, Send(body=STALL), *[Pause(ms=40_000), Send(body=MORE)] * 15, Send(body=THE_END), End()],
    "drip": [HEAD, *[step for byte in STALL * 40 for step in (Pause(ms=5_000), Send(body=bytes([byte])))], Silence()],
}  # fmt: skip
# By schedule: the limit that ends it, and after how many seconds; None for one that is to live.
LIMIT = {
    "silent": ("idle_ms", 120),
    "ping-only": ("progress_ms", 300),
    "headers-only": ("idle_ms", 120),
    "slow-but-alive": None,
    "drip": ("first_content_ms", 300),
}


def test_b25_the_schedules_are_those_of_the_case():
    assert [variant["name"] for variant in json.loads(recorded("B25-schedule.json"))["variants"]] == list(SCHEDULES)
    assert len(SCHEDULES) == len(LIMIT) == 5


@pytest.mark.parametrize("name", SCHEDULES)
async def test_b25_an_exchange_is_given_up_by_its_limit_and_one_that_lives_is_not(name: str):
    clock = VirtualClock()
    connector = PlayedConnector(clock, lambda _body: SCHEDULES[name])
    _, end = await in_virtual_time(clock, outcome(build_model(URL, clock=clock, environ={}, connector=connector), ask()))
    assert len(connector.requests) == 1
    limit = LIMIT[name]
    if limit is None:
        assert isinstance(end, Answer)
        assert clock.monotonic() == pytest.approx(600, abs=0.1)
    else:
        assert (end.failure, end.retryable) == (FailureClass.TIMEOUT, True), end
        assert limit[0] in str(end)
        assert limit[1] < clock.monotonic() < limit[1] + 0.01


@pytest.mark.parametrize("name", [name for name in SCHEDULES if LIMIT[name] is not None])
async def test_b25_a_run_asks_again_and_keeps_nothing_of_what_stalled(name: str):
    ran = await played(FAMILY, lambda _family: SCHEDULES[name], 1, options=ModelOptions())
    assert (ran.end, ran.asked, len(ran.answers)) == ("completed", 2, 1)
    assert "Let me look at" not in ran.answers[0]
    assert ran.waits == pytest.approx([LIMIT[name][1] + BACKOFF_SECONDS[0]], abs=0.1)


async def test_b25_a_run_gives_up_in_the_end_and_is_not_bothered_by_a_slow_model():
    ran = await played(FAMILY, lambda _family: SCHEDULES["silent"], None, options=ModelOptions())
    assert (ran.end, ran.asked, ran.answers) == ("timeout", 6, [])
    ran = await played(FAMILY, lambda _family: SCHEDULES["slow-but-alive"], 1, options=ModelOptions())
    assert (ran.end, ran.asked, ran.answers) == ("completed", 1, ["Let me look at" + "." * 15])


@pytest.mark.parametrize("name", SCHEDULES)
async def test_b25_a_cancel_works_at_once_and_what_was_queued_survives(name: str):
    clock, asked = VirtualClock(), 0

    def reply(_body: bytes) -> Iterable[Step]:
        nonlocal asked
        asked += 1
        return SCHEDULES[name] if asked == 1 else [HEAD, Send(body=STALL + THE_END), End()]

    model = build_model(URL, clock=clock, environ={}, connector=PlayedConnector(clock, reply))
    agent, store = Agent("a", model=model), MemoryStore(clock, known=KNOWN)

    async def cancelled_in_the_middle() -> float:
        async with Runtime(agents=[agent], ground=Ground(store=store, clock=clock, ids=SystemIds())) as runtime:
            session = runtime.session("s", agent=agent)
            first = await session.send("go")
            await clock.sleep(47)
            second = await session.send("something else", delivery="queue", key="2")
            before = clock.monotonic()
            await session.cancel()
            assert isinstance(await first.result(), Cancelled)
            took = clock.monotonic() - before
            assert isinstance(await second.result(), Completed)
        return took

    assert await in_virtual_time(clock, cancelled_in_the_middle()) < 1
    assert asked == 2
    assert [message.text for message in said_in(store, "s") if isinstance(message, UserMessage)] == ["go", "something else"]


async def test_b25_a_stream_without_limits_is_waited_for_and_caught_here():
    """Negative control: nothing but the limits ends a stream that stalls."""
    from semel.adapters.models.deadline import Limits

    clock = VirtualClock()
    endless = ModelOptions(limits=Limits(idle_ms=None, first_content_ms=None, progress_ms=None, total_ms=None))
    connector = PlayedConnector(clock, lambda _body: SCHEDULES["silent"])
    waiting = asyncio.ensure_future(
        outcome(build_model(URL, clock=clock, environ={}, options=endless, connector=connector), ask())
    )
    for _ in range(10):
        await at_rest()
        clock.jump(3600)
    assert not waiting.done()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
