"""Shared by the tests of the models: clocks that wait for nobody, a connector without sockets, and the fixtures."""

import asyncio
import heapq
import itertools
import json
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from pathlib import Path

import httpx2

from semel.adapters.models.catalog import ModelOptions, build_model
from semel.adapters.models.decoding import Decoded
from semel.adapters.models.openai_chat.decode import chat_decoder
from semel.adapters.models.openai_chat.options import ChatOptions
from semel.core.values import JSON, AssistantMessage, Bundle, Message, Prompt, ToolSpec, UserMessage
from semel.ports.model import Answer, Delta, ModelFailed, ModelPort, Request

FIXTURES = Path(__file__).parent / "fixtures"
CASES = Path(__file__).parent.parent / "cases" / "streams"
"""The inputs of the cases, which are told in tests/cases."""
CHAT = FIXTURES / "openai_chat"
GOLDEN = Path(__file__).parent.parent / "golden"

WEATHER = ToolSpec(
    name="get_weather",
    description="Look up weather.",
    parameters=json.dumps(
        {
            "type": "object",
            "properties": {"city": {"type": "string", "description": "City name"}},
            "required": ["city"],
            "additionalProperties": False,
        }
    ),
)


class VirtualClock:
    """Time that passes only when everybody waits: the loop is idle, so the earliest sleeper's moment comes."""

    def __init__(self) -> None:
        self._now = 0.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._order = itertools.count()

    def now_ms(self) -> int:
        return 1_790_000_000_000 + round(self._now * 1000)

    def monotonic(self) -> float:
        return self._now

    async def sleep(self, seconds: float) -> None:
        future = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._now + seconds, next(self._order), future))
        await future

    def jump(self, seconds: float) -> None:
        """Let time pass while nobody looks, as when a process is stopped."""
        self._now += seconds

    async def run(self) -> None:
        """Drive the clock until cancelled."""
        ready = asyncio.get_running_loop()._ready  # type: ignore[attr-defined]  # what can go on without time passing
        while True:
            await asyncio.sleep(0)
            if ready:
                continue
            while self._sleepers and self._sleepers[0][2].done():
                heapq.heappop(self._sleepers)
            if self._sleepers:
                at, _, future = heapq.heappop(self._sleepers)
                self._now = max(self._now, at)
                future.set_result(None)


class HandClock(VirtualClock):
    """Time that passes when the test says so; for tests over real sockets."""

    def advance(self, seconds: float) -> None:
        self._now += seconds
        while self._sleepers and self._sleepers[0][0] <= self._now:
            future = heapq.heappop(self._sleepers)[2]
            if not future.done():
                future.set_result(None)


async def in_virtual_time(clock: VirtualClock, work: AsyncIterator[object] | object) -> object:
    """Await `work` while the clock runs."""
    driver = asyncio.ensure_future(clock.run())
    try:
        return await work  # type: ignore[misc]  # any awaitable
    finally:
        driver.cancel()


Schedule = Callable[[VirtualClock], AsyncIterator[bytes]]


class _Body(httpx2.AsyncByteStream):
    def __init__(self, chunks: AsyncIterator[bytes]) -> None:
        self._chunks = chunks
        self.closed = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._chunks:
            yield chunk

    async def aclose(self) -> None:
        self.closed = True


class ScheduledConnector(httpx2.AsyncBaseTransport):
    """A server without sockets: after `headers_after` seconds it answers with the bytes of `schedule`, at its times."""

    def __init__(
        self,
        clock: VirtualClock,
        schedule: Schedule,
        *,
        status: int = 200,
        headers: dict[str, str] | None = None,
        connect_after: float = 0,
        headers_after: float = 0,
    ) -> None:
        self._clock, self._schedule = clock, schedule
        self._status, self._headers = status, headers or {"content-type": "text/event-stream"}
        self._connect_after, self._headers_after = connect_after, headers_after
        self.bodies: list[_Body] = []
        self.requests: list[httpx2.Request] = []

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        self.requests.append(request)
        if self._connect_after:
            await self._clock.sleep(self._connect_after)
        await request.extensions["trace"]("http11.send_request_headers.started", {})
        if self._headers_after:
            await self._clock.sleep(self._headers_after)
        body = _Body(self._schedule(self._clock))
        self.bodies.append(body)
        return httpx2.Response(self._status, headers=self._headers, stream=body)


def virtual_model(clock: VirtualClock, connector: httpx2.AsyncBaseTransport, options: ModelOptions | None = None) -> ModelPort:
    return build_model("openai_chat:m@http://127.0.0.1:9/v1", clock=clock, environ={}, options=options, connector=connector)


def whole(data: bytes) -> Schedule:
    """All bytes at once, then the end."""

    async def chunks(_clock: VirtualClock) -> AsyncIterator[bytes]:
        yield data

    return chunks


def ask(text: str = "hi", *more: Message) -> Prompt:
    return Prompt(instructions="Be terse.", tools=(WEATHER,), messages=(UserMessage(text=text), *more))


def after(count: int) -> Prompt:
    """A prompt that holds `count` assistant messages."""
    messages: list[Message] = [UserMessage(text="hi")]
    for index in range(count):
        messages += [AssistantMessage(blocks=()), UserMessage(text=f"go on {index}")]
    return Prompt(instructions="", tools=(), messages=messages)


async def outcome(
    model: ModelPort, prompt: Prompt | Request, seen: Callable[[], object] = lambda: None
) -> tuple[list[str], Answer | ModelFailed]:
    """The deltas and what ended the exchange. `seen` is called at each delta."""
    request = prompt if isinstance(prompt, Request) else model.render(prompt)
    deltas: list[str] = []
    try:
        async for item in model.stream(request):
            if isinstance(item, Delta):
                deltas.append(item.text)
                seen()
            else:
                return deltas, item
    except ModelFailed as failed:
        return deltas, failed
    raise AssertionError("neither an answer nor a failure")


def pieces(data: bytes, size: int | None) -> Iterator[bytes]:
    """`data` in chunks of `size` bytes, whole if None."""
    size = size or max(1, len(data))
    return (data[start : start + size] for start in range(0, len(data), size))


def decode(data: bytes, size: int | None = None, options: ChatOptions | None = None) -> tuple[str, Decoded]:
    """Decode one body cut into chunks; the text shown live and the answer."""
    return decode_chunks(pieces(data, size), options)


def decode_chunks(chunks: Iterable[bytes], options: ChatOptions | None = None) -> tuple[str, Decoded]:
    decoder = chat_decoder(options or ChatOptions())
    shown = [text for chunk in chunks for text in decoder.feed(chunk)]
    return "".join(shown), decoder.result()


def chat_bundle(**changes: JSON) -> Bundle:
    return Bundle(**{"family": "openai_chat", "model": "m", "endpoint": "http://127.0.0.1:9/v1", "renderer": 1, **changes})
