"""Histories on a paused clock, compared to the deadline itself without windows (V20 to V25)."""

import asyncio
from collections.abc import Iterable

import pytest
from models_support import VirtualClock, ask, in_virtual_time, outcome
from played import FOREVER, PlayedConnector, at_rest
from wire_support import WIRES

from semel.adapters.models.catalog import ModelOptions, build_model
from semel.adapters.models.deadline import Ledger, Limits
from semel.adapters.models.script import parse_script
from semel.adapters.models.script_steps import End, Head, Pause, Send, Silence, Step
from semel.adapters.models.transport import HttpExchange
from semel.ports.model import Answer, FailureClass, ModelFailed
from semel.testing.formats import FORMATS

pytestmark = pytest.mark.anyio
every_family = pytest.mark.parametrize("family", sorted(WIRES))
IDLE, FIRST, PROGRESS, TOTAL, LATE = 10_000, 12_000, 14_000, 60_000, 0.001
LIMITS = Limits(idle_ms=IDLE, first_content_ms=FIRST, progress_ms=PROGRESS, total_ms=TOTAL, headers_ms=20_000, connect_ms=5_000)
SCRIPT = parse_script('{"answers":[{"text":"abcdefgh","chunk":1}]}', "s")


def events(family: str) -> list[bytes]:
    return FORMATS[family].format.events(SCRIPT.answers[0], 0, "m")


def head(family: str) -> Head:
    return Head(status=200, headers={"content-type": FORMATS[family].format.content_type})


def spaced(family: str, gap_ms: int, bodies: Iterable[bytes], *more: Step) -> list[Step]:
    """Each body after a gap."""
    steps: list[Step] = [head(family)]
    for body in bodies:
        steps += [Pause(ms=gap_ms), Send(body=body)]
    return [*steps, *more]


async def history(family: str, steps: list[Step]) -> tuple[Answer | ModelFailed, float, int]:
    """What a history ends with, when, and how many requests it took."""
    clock = VirtualClock()
    connector = PlayedConnector(clock, lambda _body: steps)
    model = build_model(
        f"{family}:m@http://127.0.0.1:9/v1", clock=clock, environ={}, options=ModelOptions(limits=LIMITS), connector=connector
    )
    _, end = await in_virtual_time(clock, outcome(model, ask()))
    return end, clock.monotonic(), len(connector.requests)


@every_family
async def test_v20_histories_end_at_their_deadline_and_not_a_tick_from_it(family):
    parts, ping = events(family), FORMATS[family].format.ping
    half = b"".join(parts[: len(parts) // 2])
    count = 0
    for steps, limit, at in (
        ([head(family), Silence()], "idle_ms", IDLE),  # nothing behind the headers
        ([head(family), Send(body=half), Silence()], "idle_ms", IDLE),  # a silent tail behind partial output
        ([head(family), Silence(ping_ms=1000, ping=ping)], "first_content_ms", FIRST),  # signs of life, no content
        ([head(family), Send(body=half), Silence(ping_ms=1000, ping=ping)], "progress_ms", PROGRESS),
        (spaced(family, 9_000, [half[i : i + 1] for i in range(len(half))]), "first_content_ms", FIRST),  # a slow trickle
        ([Pause(ms=FOREVER * 1000)], "headers_ms", 20_000),
        (spaced(family, 9_000, [half, *[b""] * 9]), "idle_ms", 9_000 + IDLE),  # empty chunks are no progress
    ):
        end, seconds, sends = await history(family, steps)
        assert isinstance(end, ModelFailed), limit
        assert (end.failure, sends) == (FailureClass.TIMEOUT, 1), (limit, end)
        assert limit in str(end)
        assert seconds == pytest.approx(at / 1000 + LATE, abs=1e-9)
        count += 1
    assert count == 7


@every_family
async def test_v20_gaps_that_are_shorter_or_exactly_as_long_are_tolerated_and_the_answer_completes(family):
    parts = events(family)
    for gap_ms in (1, 5_000, IDLE):
        step = max(1, len(parts) // 4)
        bodies = [b"".join(parts[i : i + step]) for i in range(0, len(parts), step)]
        steps = spaced(family, gap_ms, bodies, End())
        if gap_ms * len(bodies) > TOTAL:
            continue
        end, seconds, sends = await history(family, steps)
        assert isinstance(end, Answer), (gap_ms, end)
        assert (sends, seconds) == (1, pytest.approx(gap_ms * len(bodies) / 1000, abs=0.06))  # 0.05 s for what may follow


def exchange_of(clock, limits: Limits, ledger_class: type[Ledger] = Ledger) -> HttpExchange:
    return HttpExchange(clock=clock, ledger=ledger_class(limits, 0.0), where="s", redact=str)


async def never() -> None:
    await asyncio.get_running_loop().create_future()


async def test_v21_ready_headers_chunks_and_the_end_of_the_body_fail_once_the_total_time_is_over():
    """Even though no timer ever fires: a clock whose sleeps do not end cannot extend a deadline."""

    class Starved(VirtualClock):
        async def sleep(self, seconds: float) -> None:
            await never()

    for ready in ("headers", "chunk", "end"):
        clock = Starved()
        exchange = exchange_of(clock, Limits(total_ms=1000))
        exchange.start(asyncio.ensure_future(exchange.push(b"x") if ready != "end" else asyncio.sleep(0)))
        exchange.headers_came(200, {})
        await at_rest()
        clock.jump(1.001)
        with pytest.raises(ModelFailed, match="total_ms"):
            await (exchange.await_headers() if ready == "headers" else exchange.read(1))
        await exchange.end()


async def test_v21_a_race_of_timers_alone_stays_pending_with_a_starved_timer():
    """Control: who relies on the timer to fire waits for ever where it does not."""

    class Starved(VirtualClock):
        async def sleep(self, seconds: float) -> None:
            await never()

    clock = Starved()
    racing = asyncio.ensure_future(clock.sleep(1))
    clock.jump(10)
    await at_rest()
    assert not racing.done()
    racing.cancel()


async def test_v22_the_last_read_within_a_window_of_an_empty_chunk_but_past_one_of_the_last_bytes_fails():
    clock = VirtualClock()
    exchange = exchange_of(clock, Limits(idle_ms=IDLE))
    exchange.start(asyncio.ensure_future(exchange.push(b"ab")))
    exchange.headers_came(200, {})
    await at_rest()
    assert await exchange.read(1) == b"a"
    clock.jump(9)
    await exchange.push(b"")  # no sign of life
    clock.jump(2)
    await exchange.push(b"c")  # ready, but 11 s after the last bytes
    with pytest.raises(ModelFailed, match="idle_ms"):
        await exchange.read(1)
    await exchange.end()


class Greedy(Ledger):
    """Planted fault: a limit is passed when it is reached."""

    def expired(self, now: float) -> str | None:
        passed = [(at, name) for at, name in self.deadlines() if now >= at]
        return min(passed)[1] if passed else None


async def read_after(seconds: float, limits: Limits, ledger_class: type[Ledger] = Ledger) -> bytes:
    clock = VirtualClock()
    exchange = exchange_of(clock, limits, ledger_class)
    exchange.start(asyncio.ensure_future(exchange.push(b"ready")))
    exchange.headers_came(200, {})
    await at_rest()
    clock.jump(seconds)
    try:
        return await exchange.read(5)
    finally:
        await exchange.end()


@pytest.mark.parametrize("name", ["idle_ms", "total_ms"])
async def test_v23_at_the_deadline_passes_one_unit_past_it_fails_and_the_mutation_is_caught(name):
    limits = Limits(**{"idle_ms": None, "first_content_ms": None, "progress_ms": None, name: 10_000})
    assert await read_after(10.0, limits) == b"ready"
    with pytest.raises(ModelFailed, match=name):
        await read_after(10.000001, limits)
    with pytest.raises(ModelFailed, match=name):  # negative control: `>=` in the place of `>`
        await read_after(10.0, limits, Greedy)


class Truncating(VirtualClock):
    """A platform whose time moves in whole milliseconds, and whose sleeps end in the one that they fall into."""

    def monotonic(self) -> float:
        return int(self._now * 1000) / 1000

    async def sleep(self, seconds: float) -> None:
        await super().sleep(int(seconds * 1000) / 1000)


async def polls_until_late(margin: float, limits: Limits) -> int:
    """How often a wait is woken before its deadline has passed, at most 20 times, when timers are set `margin` behind it."""
    clock = Truncating()
    ledger = Ledger(limits, 0.0)
    ledger.headers_came(0.0)
    for poll in range(1, 21):
        due = ledger.next()
        clock.jump(max(0.0, int((due - clock.monotonic() + margin) * 1000) / 1000))
        if ledger.expired(clock.monotonic()) is not None:
            return poll
    return 20


@pytest.mark.parametrize("limits", [Limits(idle_ms=1500), Limits(idle_ms=None, first_content_ms=None, total_ms=1500)])
async def test_v24_a_clock_of_whole_milliseconds_reaches_both_deadlines_on_the_first_poll(limits):
    assert await polls_until_late(LATE, limits) == 1
    assert await polls_until_late(1e-9, limits) == 20  # control: a margin below the grain wakes for ever and sees nothing


async def test_v24_an_exchange_on_such_a_clock_ends():
    clock = Truncating()
    connector = PlayedConnector(clock, lambda _body: [head("gemini"), Silence()])
    options = ModelOptions(limits=Limits(idle_ms=1500))
    model = build_model("gemini:m@http://127.0.0.1:9", clock=clock, environ={}, options=options, connector=connector)
    _, end = await in_virtual_time(clock, outcome(model, ask()))
    assert "idle_ms" in str(end)


async def test_v25_without_limits_a_body_that_stalls_stays_pending():
    """The stall that the limits are for."""
    none = Limits(idle_ms=None, first_content_ms=None, progress_ms=None, total_ms=None, headers_ms=None, connect_ms=None)
    clock = VirtualClock()
    connector = PlayedConnector(clock, lambda _body: [head("gemini"), Send(body=events("gemini")[0]), Silence()])
    model = build_model(
        "gemini:m@http://127.0.0.1:9", clock=clock, environ={}, options=ModelOptions(limits=none), connector=connector
    )
    waiting = asyncio.ensure_future(outcome(model, ask()))
    await at_rest()
    clock.jump(86_400)
    await at_rest()
    assert not waiting.done()
    waiting.cancel()
    await asyncio.wait({waiting})
