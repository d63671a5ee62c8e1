"""A scripted server without sockets, in virtual time: the steps of its reply, each at its moment."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable, Iterator

import httpx2
from models_support import VirtualClock

from semel.adapters.models.script import parse_script
from semel.adapters.models.script_steps import End, Head, HoldHere, Pause, ScriptServer, Send, Silence, Step
from semel.testing.formats import FORMATS

Reply = Callable[[bytes], Iterable[Step]]
FOREVER = 7 * 86_400


class PlayedConnector(httpx2.AsyncBaseTransport):
    """Answers each request by performing the steps of `reply`. `requests` are the bodies that arrived, one for each send."""

    def __init__(self, clock: VirtualClock, reply: Reply) -> None:
        self._clock, self._reply = clock, reply
        self.requests: list[bytes] = []

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        await request.extensions["trace"]("http11.send_request_headers.started", {})
        body = await request.aread()
        self.requests.append(body)
        steps = iter(self._reply(body))
        head = await self._head(steps)
        return httpx2.Response(head.status, headers=head.headers, stream=_Body(self._play(steps)))

    async def _head(self, steps: Iterator[Step]) -> Head:
        for step in steps:
            if isinstance(step, Head):
                return step
            assert isinstance(step, Pause)
            await self._clock.sleep(step.ms / 1000)
        await self._clock.sleep(FOREVER)
        raise AssertionError("nobody waits that long")

    async def _play(self, steps: Iterator[Step]) -> AsyncIterator[bytes]:
        for step in steps:
            if isinstance(step, Send):
                yield step.body
            elif isinstance(step, Pause):
                await self._clock.sleep(step.ms / 1000)
            elif isinstance(step, Silence):
                while True:
                    await self._clock.sleep(FOREVER if step.ping_ms is None else step.ping_ms / 1000)
                    yield step.ping
            elif isinstance(step, End) and step.how != "complete":
                raise httpx2.ReadError("the connection was reset")
            assert not isinstance(step, (Head, HoldHere))


class _Body(httpx2.AsyncByteStream):
    def __init__(self, chunks: AsyncIterator[bytes]) -> None:
        self._chunks = chunks

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._chunks:
            yield chunk


def scripted(clock: VirtualClock, family: str, *answers: dict) -> PlayedConnector:
    """A script in a family's format."""
    script = parse_script(json.dumps({"answers": list(answers)}), "given in code")
    return PlayedConnector(clock, ScriptServer(script, FORMATS[family].format).reply)


async def at_rest() -> None:
    """Let everything run that can run without time passing."""
    for _ in range(50):
        await asyncio.sleep(0)
