"""T26, whole runs: how often a run asks each of the 24 kinds of faulty provider, and at each of 50 places of a reset.

Every run is carried by the engine with the limits that a user has, in every family, once against a provider that never does
anything else and once against one that answers from the second time on. What is counted is what arrived at the provider. The
log holds nothing of what broke off, and a tool whose call was cut never runs.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager

import pytest
from breaking_tls import broken_off, contexts
from models_support import VirtualClock
from t26_kinds import BESIDE, LIMITS, OVER_TIME_AND_TLS, PLAYED, TEXT, head, kind_of, refusal, sent, whole
from virtual_runs import BACKOFF_SECONDS, Hurried, Made, Ran, carried, played
from wire_support import WIRES

from semel import tool
from semel.adapters.memory.store import MemoryStore
from semel.adapters.models.catalog import build_model
from semel.adapters.models.http_model import HttpModel
from semel.adapters.models.script_steps import End, Send, Step
from semel.core.effects import CallModel
from semel.core.features import KNOWN
from semel.core.limits import MODEL_RETRY_SYNCED_FROM_MS
from semel.core.values import Stop
from semel.engine.perform import Performer
from semel.ports.model import FailureClass, ModelFailed
from semel.ports.tool import ToolPort
from semel.testing.model_server import ModelServer

pytestmark = pytest.mark.anyio
every_family = pytest.mark.parametrize("family", sorted(WIRES))
THE_24 = (
    "no bytes ever", "headers then nothing", "1 byte just in time, for ever", "keep-alives only", "empty deltas",
    "no final event", "final event twice", "tool call cut mid-JSON", "wrong content type", "200 with an error",
    "429 with Retry-After 10^9", "500 loop", "redirect to another host", "redirect loop", "gzip bomb",
    "10 MiB in a single line", "CRLF and LF mixed", "byte order mark", "split UTF-8", "duplicated call ids",
    "unknown finish reason", "reset", "TLS close without notify", "clock jump during back-off",
)  # fmt: skip
"""As the plan of faults names and orders them."""


RETRY_AFTER_SECONDS = 90
JUMPS_MS = (300_000, -1_800_000)  # five minutes on, half an hour back
ASKED_FOR = "a wait that the provider asks for"
REFUSALS: dict[str, tuple[Made, list[float], str]] = {
    "a back-off of one's own": (lambda family: refusal(family, 500), BACKOFF_SECONDS, "server_error"),
    ASKED_FOR: (
        lambda family: refusal(family, 503, **{"retry-after": str(RETRY_AFTER_SECONDS)}),
        [RETRY_AFTER_SECONDS] * 5,
        "overloaded",
    ),
}


class Jumping(VirtualClock):
    """A clock whose wall time is set in every back-off."""

    def __init__(self, by_ms: int) -> None:
        super().__init__()
        self._by_ms, self._set_ms, self.jumps = by_ms, 0, 0

    def now_ms(self) -> int:
        return super().now_ms() + self._set_ms

    def set(self) -> None:
        self._set_ms += self._by_ms
        self.jumps += 1

    async def set_midway(self, waits: list[float]) -> None:
        """In the middle of each of these waits, between which no time passes."""
        for before, wait in zip([0, *waits], waits, strict=False):
            await self.sleep((before + wait) / 2)
            self.set()


class Writing(MemoryStore):
    """A log that is written slowly: the clock is set behind each record of a wait, before the wait begins."""

    def __init__(self, clock: Jumping) -> None:
        super().__init__(clock, known=KNOWN)
        self._jumping = clock

    async def open(self, session: str, *, take):
        writer = await super().open(session, take=take)
        append = writer.append

        async def append_and_set(payloads, *, at_ms=None):
            frames = await append(payloads, at_ms=at_ms)
            if any(b'"type":"model_retry"' in payload.json for payload in payloads):
                self._jumping.set()
            return frames

        writer.append = append_and_set
        return writer


def working(calls: list[int]) -> ToolPort:
    """A tool that notes what it was called with."""

    @tool
    def w(n: int = 0, city: str = "") -> str:
        """Work."""
        calls.append(n)
        return city

    return w


async def played_over_jumps(family: str, make: Made, times: int | None, *, by_ms: int, midway: list[float]) -> Ran:
    """A run while the wall clock is set: in the middle of these waits, or, without any, as each wait is written down."""
    clock = Jumping(by_ms)
    setting = asyncio.ensure_future(clock.set_midway(midway))
    ran = await played(family, make, times, clock=clock, store=None if midway else Writing(clock))
    setting.cancel()
    written = sum(wait * 1000 > MODEL_RETRY_SYNCED_FROM_MS for wait in ran.waits)
    assert clock.jumps == (min(len(midway), len(ran.waits)) if midway else written)
    return ran


def due(name: str, family: str, times: int | None) -> tuple[str, int, list[str], list[int]]:
    """What is to come of a run against a kind: its end, how often it asks, the answers that it keeps, the calls that it makes."""
    kind = kind_of(name, family)
    asked = kind.asked if times is None else kind.asked_if_once
    if isinstance(kind.end, FailureClass):
        lasts = times is None or asked == 1
        return (str(kind.end) if lasts else "completed"), asked, ([] if lasts else [TEXT]), []
    if kind.end is Stop.TOOL_USE:
        return "completed", asked, ["", TEXT], [1, 2]
    return "completed", asked, (["x" * 10 * 1024 * 1024] if kind.end is Stop.END_TURN else [TEXT]), []


@every_family
@pytest.mark.parametrize("times", [None, 1], ids=["for ever", "once"])
async def test_a_run_asks_each_kind_of_provider_exactly_so_often(family: str, times: int | None):
    found, expected, requests = {}, {}, 0
    for name in (*PLAYED, *BESIDE):
        calls: list[int] = []
        ran = await played(family, kind_of(name, family).make, times, tools=[working(calls)])
        found[name], expected[name] = (ran.end, ran.asked, ran.answers, calls), due(name, family, times)
        requests += ran.asked
    assert found == expected
    assert len(found) == 24
    print(f"{family}: {requests} requests of {len(found)} runs")


async def test_a_model_that_asks_again_by_itself_is_caught(monkeypatch: pytest.MonkeyPatch):
    """Negative control: a second place that repeats a request doubles what arrives."""
    stream = HttpModel.stream

    async def twice(self, request):
        try:
            async with aclosing(stream(self, request)) as chunks:
                async for chunk in chunks:
                    yield chunk
        except ModelFailed:
            async with aclosing(stream(self, request)) as chunks:
                async for chunk in chunks:
                    yield chunk

    monkeypatch.setattr(HttpModel, "stream", twice)
    for name, asked in (("500 loop", 12), ("redirect loop", 2)):
        assert (await played("gemini", PLAYED[name].make, None)).asked == asked != due(name, "gemini", None)[1]


def test_the_kinds_are_the_24_of_the_plan():
    assert (*PLAYED, *OVER_TIME_AND_TLS) == THE_24
    assert (len(set(THE_24)), len(WIRES)) == (24, 5)


@every_family
async def test_the_waits_of_a_loop_of_500s_double_and_none_is_shorter(family: str):
    ran = await played(family, PLAYED["500 loop"].make, None)
    assert ran.waits == pytest.approx(BACKOFF_SECONDS, abs=0.01)


@every_family
@pytest.mark.parametrize("refused", REFUSALS)
@pytest.mark.parametrize("midway", [True, False], ids=["midway", "as it is written down"])
async def test_a_clock_that_jumps_during_a_back_off_makes_no_wait_shorter_or_longer(family: str, refused: str, midway: bool):
    make, waits, code = REFUSALS[refused]
    for by_ms in JUMPS_MS:
        ran = await played_over_jumps(family, make, None, by_ms=by_ms, midway=waits if midway else [])
        assert (ran.end, ran.asked, ran.answers) == (code, 6, [])
        assert ran.waits == pytest.approx(waits, abs=0.001)
        ran = await played_over_jumps(family, make, 3, by_ms=by_ms, midway=waits if midway else [])
        assert (ran.end, ran.asked, ran.answers) == ("completed", 4, [TEXT])
        assert ran.waits == pytest.approx(waits[:3], abs=0.001)


async def test_a_wait_until_a_time_of_the_wall_clock_is_caught(monkeypatch: pytest.MonkeyPatch):
    """Negative control: an engine that waits until the wall clock shows a time asks too early, or far too late."""

    async def until(self: Performer, effect: CallModel, _most_ms: int) -> None:
        due_ms = self.clock.now_ms() + effect.delay_ms
        while self.clock.now_ms() < due_ms:
            await self.clock.sleep(1)

    monkeypatch.setattr(Performer, "_wait", until)
    make, waits, _ = REFUSALS[ASKED_FOR]
    for by_ms, wait in zip(JUMPS_MS, (45, 90 + 1_800), strict=True):
        ran = await played_over_jumps("gemini", make, 1, by_ms=by_ms, midway=waits[:1])
        assert ran.waits == pytest.approx([wait], abs=1)


@asynccontextmanager
async def cut_once_each(family: str, offsets: list[int]) -> AsyncIterator[ModelServer]:
    """A real server that resets the connection of every second request, each time at the next offset, and answers the others."""
    body, left, count = whole(family), list(offsets), 0

    def reply(_body: bytes) -> list[Step]:
        nonlocal count
        count += 1
        if count % 2 == 0:
            return sent(family, body)
        return [head(family), Send(body=body[: left.pop(0)]), End(how="reset")]

    async with ModelServer(reply) as server:
        yield server


@every_family
async def test_a_run_that_is_reset_at_any_of_50_places_asks_twice_and_keeps_one_answer(family: str):
    size, taken = len(whole(family)), 0
    offsets = sorted({round(size * n / 50) for n in range(50)})
    async with cut_once_each(family, offsets) as server:
        for at in offsets:
            clock, before = Hurried(), len(server.requests)
            model = build_model(f"{family}:m@{server.url}", clock=clock, environ={}, options=LIMITS)
            end, answers, _ = await carried(model, clock, [working([])])
            await model.close()
            assert (end, len(server.requests) - before, answers) == ("completed", 2, [TEXT]), at
            assert clock.waits == BACKOFF_SECONDS[:1]
            assert server.requests[-1].body == server.requests[-2].body
            taken += 1
    assert taken == 50


@every_family
@pytest.mark.parametrize(("times", "asked"), [(None, 6), (1, 2)], ids=["for ever", "once"])
async def test_tls_that_closes_without_notify_is_asked_again_so_often(family: str, times: int | None, asked: int, tmp_path):
    serving, trust = contexts(tmp_path)
    clock = Hurried()

    def breaks(n: int) -> bool:
        return times is None or n < times

    async with broken_off(family, whole(family), breaks=breaks, serving=serving, trust=trust) as (url, connector, requests):
        model = build_model(f"{family}:m@{url}", clock=clock, environ={}, options=LIMITS, connector=connector)
        end, answers, _ = await carried(model, clock, [working([])])
        await model.close()
    assert (end, len(requests), len(set(requests))) == ("interrupted" if times is None else "completed", asked, 1)
    assert answers == ([] if times is None else [TEXT])
    assert clock.waits == BACKOFF_SECONDS[: asked - 1]
