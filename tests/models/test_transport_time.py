"""Time limits of an exchange, in virtual time: nobody waits, every instant is exact (X1 to X9; B25 is among the cases)."""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest
from models_support import (
    ScheduledConnector,
    VirtualClock,
    ask,
    in_virtual_time,
    outcome,
    virtual_model,
    whole,
)

from semel.adapters.models.catalog import ModelOptions, build_model
from semel.adapters.models.deadline import Ledger, Limits
from semel.adapters.models.exchange import HttpExchange
from semel.ports.model import Answer, FailureClass, ModelFailed

pytestmark = pytest.mark.anyio


def delta(text: str) -> bytes:
    return b"data: " + json.dumps({"choices": [{"index": 0, "delta": {"content": text}}]}).encode() + b"\n\n"


PARTIAL = b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}\n\n' + delta("Let me look at")
END = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
TWO_HOURS = 7200


async def silent(clock: VirtualClock) -> AsyncIterator[bytes]:
    yield PARTIAL
    await clock.sleep(TWO_HOURS)


async def ping_only(clock: VirtualClock) -> AsyncIterator[bytes]:
    yield PARTIAL
    for _ in range(TWO_HOURS // 10):
        await clock.sleep(10)
        yield b": ping\n\n"


async def empty_deltas_only(clock: VirtualClock) -> AsyncIterator[bytes]:
    yield PARTIAL
    for _ in range(TWO_HOURS // 10):
        await clock.sleep(10)
        yield delta("")


async def empty_chunks_only(clock: VirtualClock) -> AsyncIterator[bytes]:
    yield PARTIAL
    for _ in range(TWO_HOURS // 10):
        await clock.sleep(10)
        yield b""


async def headers_only(clock: VirtualClock) -> AsyncIterator[bytes]:
    await clock.sleep(TWO_HOURS)
    yield b""


async def pings_before_content(clock: VirtualClock) -> AsyncIterator[bytes]:
    for _ in range(TWO_HOURS // 10):
        await clock.sleep(10)
        yield b": ping\n\n"


async def slow_but_alive(clock: VirtualClock) -> AsyncIterator[bytes]:
    for number in range(15):
        await clock.sleep(40)
        yield delta(f"{number} ")
    yield END


async def drip(clock: VirtualClock) -> AsyncIterator[bytes]:
    for byte in PARTIAL * 40:
        await clock.sleep(5)
        yield bytes([byte])


SCHEDULES = {
    "silent": (silent, FailureClass.TIMEOUT, "idle", 120),
    "ping-only": (ping_only, FailureClass.TIMEOUT, "progress", 300),
    "headers-only": (headers_only, FailureClass.TIMEOUT, "idle", 120),
    "slow-but-alive": (slow_but_alive, None, "", 600),
    "drip": (drip, FailureClass.TIMEOUT, "first_content", 300),
    "empty deltas": (empty_deltas_only, FailureClass.TIMEOUT, "progress", 300),
    "empty chunks": (empty_chunks_only, FailureClass.TIMEOUT, "idle", 120),
    "pings before content": (pings_before_content, FailureClass.TIMEOUT, "first_content", 300),
}


@pytest.mark.parametrize("name", SCHEDULES)
async def test_a_stream_that_stalls_is_given_up_and_one_that_lives_is_not(name):
    schedule, failure, limit, seconds = SCHEDULES[name]
    clock = VirtualClock()
    connector = ScheduledConnector(clock, schedule)
    _, end = await in_virtual_time(clock, outcome(virtual_model(clock, connector), ask()))
    assert connector.bodies[0].closed
    if failure is None:
        assert isinstance(end, Answer)
        assert clock.monotonic() == seconds
    else:
        assert (end.failure, end.retryable) == (failure, True), end
        assert f"{limit}_ms" in str(end)
        assert seconds < clock.monotonic() < seconds + 0.01


@pytest.mark.parametrize(
    ("connect", "headers", "failure", "limit", "seconds"),
    [
        (100, 0, FailureClass.UNREACHABLE, "connect", 15),
        (0, 1000, FailureClass.TIMEOUT, "headers", 300),
        (0, 290, None, "", 290),
    ],
)
async def test_the_way_to_the_headers_has_its_own_limits(connect, headers, failure, limit, seconds):
    clock = VirtualClock()
    connector = ScheduledConnector(clock, whole(PARTIAL + END), connect_after=connect, headers_after=headers)
    _, end = await in_virtual_time(clock, outcome(virtual_model(clock, connector), ask()))
    assert (end.failure if isinstance(end, ModelFailed) else None) is failure
    assert limit in str(end)
    assert seconds <= clock.monotonic() < seconds + 0.1


async def test_the_total_time_runs_from_the_send_and_ends_even_a_lively_stream():
    clock = VirtualClock()
    options = ModelOptions(limits=Limits(total_ms=100_000))
    _, end = await in_virtual_time(
        clock, outcome(virtual_model(clock, ScheduledConnector(clock, slow_but_alive), options), ask())
    )
    assert "total_ms" in str(end)
    assert 100 < clock.monotonic() < 100.01


async def test_a_limit_of_none_is_no_limit():
    clock = VirtualClock()
    none = Limits(idle_ms=None, first_content_ms=None, progress_ms=None, total_ms=None, headers_ms=None, connect_ms=None)

    async def after_a_day(clock: VirtualClock) -> AsyncIterator[bytes]:
        await clock.sleep(86_400)
        yield delta("x") + END

    model = virtual_model(clock, ScheduledConnector(clock, after_a_day), ModelOptions(limits=none))
    _, end = await in_virtual_time(clock, outcome(model, ask()))
    assert isinstance(end, Answer)


class Greedy(Ledger):
    """Planted fault: a limit is passed when it is reached."""

    def expired(self, now: float) -> str | None:
        passed = [(at, name) for at, name in self.deadlines() if now >= at]
        return min(passed)[1] if passed else None


async def read_at(ledger_class: type[Ledger], seconds: float) -> bytes:
    """Consume a chunk that is ready, `seconds` after the headers, under an idle limit of 10 s."""
    clock = VirtualClock()
    exchange = HttpExchange(clock=clock, ledger=ledger_class(Limits(idle_ms=10_000), 0.0), where="s", redact=str)
    exchange.start(asyncio.ensure_future(exchange.push(b"ready")))
    exchange.headers_came(200, {})
    await asyncio.sleep(0)
    clock.jump(seconds)
    try:
        return await exchange.read(5)
    finally:
        await exchange.end()


async def test_a_read_exactly_at_the_deadline_proceeds_and_a_tick_later_fails_although_data_is_ready():
    assert await read_at(Ledger, 10.0) == b"ready"
    with pytest.raises(ModelFailed, match="idle_ms"):
        await read_at(Ledger, 10.001)


async def test_a_deadline_that_fails_when_it_is_reached_is_caught():
    """Negative control for `>`: with `>=` the read at the deadline fails."""
    with pytest.raises(ModelFailed, match="idle_ms"):
        await read_at(Greedy, 10.0)


async def test_an_expired_deadline_comes_before_the_end_of_the_body_and_before_headers():
    clock = VirtualClock()
    exchange = HttpExchange(clock=clock, ledger=Ledger(Limits(), 0.0), where="s", redact=str)
    exchange.start(asyncio.ensure_future(asyncio.sleep(0)))
    exchange.headers_came(200, {})
    await asyncio.sleep(0.001)
    clock.jump(301)
    with pytest.raises(ModelFailed):
        await exchange.await_headers()
    with pytest.raises(ModelFailed):
        await exchange.read(10)
    await exchange.end()


async def test_a_consumer_that_comes_late_finds_the_idle_limit_passed_though_bytes_are_buffered():
    clock = VirtualClock()
    model = virtual_model(clock, ScheduledConnector(clock, slow_but_alive))

    async def slowly() -> None:
        async for _ in model.stream(model.render(ask())):
            clock.jump(121)

    with pytest.raises(ModelFailed, match="idle_ms"):
        await in_virtual_time(clock, slowly())


class HastyClock(VirtualClock):
    """Its sleeps end early, as coarse timers do."""

    async def sleep(self, seconds: float) -> None:
        await super().sleep(seconds / 2 if seconds > 0.01 else seconds)


async def test_a_timer_that_fires_early_is_armed_again_and_ends_nothing_early():
    clock = HastyClock()
    _, end = await in_virtual_time(clock, outcome(virtual_model(clock, ScheduledConnector(clock, silent)), ask()))
    assert "idle_ms" in str(end)
    assert clock.monotonic() > 120


async def test_cancelling_the_consumer_ends_the_exchange_at_once():
    for schedule in (silent, ping_only, headers_only, slow_but_alive):
        clock = VirtualClock()
        connector = ScheduledConnector(clock, schedule)
        task = asyncio.ensure_future(outcome(virtual_model(clock, connector), ask()))
        for _ in range(50):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert connector.bodies[0].closed
        assert clock.monotonic() == 0


async def test_leaving_the_stream_early_ends_the_exchange_and_leaves_no_task():
    clock = VirtualClock()
    connector = ScheduledConnector(clock, silent)
    model = virtual_model(clock, connector)
    before = asyncio.all_tasks()
    stream = model.stream(model.render(ask()))
    await anext(stream)
    assert asyncio.all_tasks() > before
    await stream.aclose()
    assert connector.bodies[0].closed
    assert asyncio.all_tasks() == before


async def test_a_consumer_that_is_behind_makes_the_socket_wait():
    pulled = 0

    async def flood(_clock: VirtualClock) -> AsyncIterator[bytes]:
        nonlocal pulled
        for _ in range(64):
            pulled += 1
            yield delta("x" * 65_536)
        yield END

    clock = VirtualClock()
    model = virtual_model(clock, ScheduledConnector(clock, flood))
    stream = model.stream(model.render(ask()))
    await anext(stream)
    for _ in range(200):
        await asyncio.sleep(0)
    assert pulled < 20  # one MiB is read ahead, no more
    assert isinstance([item async for item in stream][-1], Answer)
    assert pulled == 64


async def test_a_refusal_whose_body_stalls_or_breaks_keeps_its_status():
    for schedule in (headers_only, silent):
        clock = VirtualClock()
        connector = ScheduledConnector(clock, schedule, status=429)
        _, end = await in_virtual_time(clock, outcome(virtual_model(clock, connector), ask()))
        assert (end.failure, end.exchange.http_status) == (FailureClass.RATE_LIMIT, 429)


async def test_reading_a_key_that_hangs_is_under_the_limits_too():
    async def hang() -> str:
        await asyncio.get_running_loop().create_future()
        return ""

    clock = VirtualClock()
    model = build_model("openai:gpt-5", clock=clock, environ={}, key=hang, connector=ScheduledConnector(clock, silent))
    _, end = await in_virtual_time(clock, outcome(model, ask()))
    assert end.failure is FailureClass.UNREACHABLE
