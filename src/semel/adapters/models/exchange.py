"""One bounded HTTP exchange: its answer is read piece by piece under the limits of `deadline` (X2 to X8, A24).

A task reads the socket into a bounded buffer; the consumer measures, at every poll, whether a limit was passed before it uses
what is ready. The length of the body is capped. What goes wrong is raised as ModelFailed with the facts of the exchange.
"""

import asyncio
import hashlib
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping

from semel.adapters.models.deadline import Ledger, timer
from semel.adapters.models.transport_errors import failure_of
from semel.core.values import printable
from semel.ports.model import Exchange, FailureClass, ModelFailed
from semel.ports.world import Clock

_BUFFERED_BYTES = 1024 * 1024  # read ahead of the consumer; beyond it the socket waits
_REST_BYTES = 64 * 1024
_SETTLE_SECONDS = 0.05  # for the bytes behind a terminal event, so that the connection can be used again
_REQUEST_ID_HEADERS = ("x-request-id", "request-id", "x-amzn-requestid")
_LATE = {
    "connect": "no connection",
    "headers": "no answer",
    "first_content": "an answer that began, but nothing from the model",
    "idle": "an answer that began, then not a byte",
    "progress": "bytes, but nothing more from the model",
    "total": "an answer that did not end",
}


class HttpExchange:
    """One exchange after its headers: `status`, `headers` (names in lower case), then `chunks`."""

    def __init__(self, *, clock: Clock, ledger: Ledger, where: str, redact: Callable[[str], str]) -> None:
        """`ledger` holds the limits and starts with the send; `where` names the server in errors; `redact` hides the key."""
        self.status = 0
        self.headers: Mapping[str, str] = {}
        self.where, self.redact = where, redact
        self._clock, self._ledger, self._limits = clock, ledger, ledger.limits
        self._sha256, self._length = hashlib.sha256(), 0
        self._buffer: deque[bytes] = deque()
        self._buffered = 0
        self._draining = False
        self._rest = b""
        self._wake, self._room = asyncio.Event(), asyncio.Event()
        self._pump: asyncio.Task[None] | None = None
        self._timer: asyncio.Task[None] | None = None
        self._timer_at = 0.0

    def facts(self) -> Exchange:
        """What is recorded of the exchange so far (R6)."""
        if not self.status:
            return Exchange()
        request_id = next((self.headers[name] for name in _REQUEST_ID_HEADERS if name in self.headers), "")
        return Exchange(
            response_body_len=self._length,
            response_body_sha256=self._sha256.hexdigest(),
            http_status=self.status,
            content_type=printable(self.redact(self.headers.get("content-type", "")), limit=100) or None,
            request_id=printable(self.redact(request_id), limit=100) or None,
        )

    def failed(self, failure: FailureClass, message: str, *, retryable: bool | None = None) -> ModelFailed:
        """A ModelFailed that names the server and carries the facts. What `message` quotes of the server has to be redacted."""
        return ModelFailed(failure, f"{self.where}: {message}", exchange=self.facts(), retryable=retryable)

    def progressed(self) -> None:
        """Say that the last chunk held content; whoever decodes knows, this class does not."""
        self._ledger.content_came(self._clock.monotonic())

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the body as it comes. Raises ModelFailed for a passed limit, the length cap, and a connection that broke."""
        while await self._ready():
            chunk = self._take()
            self._ledger.bytes_came(self._clock.monotonic())
            yield chunk

    async def read(self, limit: int) -> bytes:
        """The first `limit` bytes of the body, for an error or a body that is not a stream."""
        parts: list[bytes] = []
        size = 0
        while size < limit and await self._ready():
            parts.append(self._take())
            size += len(parts[-1])
            self._ledger.bytes_came(self._clock.monotonic())
        return b"".join(parts)[:limit]

    def start(self, pump: asyncio.Task[None]) -> None:
        """Take the task that reads the socket."""
        self._pump = pump
        pump.add_done_callback(lambda _task: self._wake.set())

    def connected(self) -> None:
        """The request is on its way."""
        self._ledger.connected()

    def unconnected(self) -> bool:
        """Whether a limit was passed before there was a connection."""
        return self._ledger.unconnected(self._clock.monotonic())

    def headers_came(self, status: int, headers: Mapping[str, str]) -> None:
        """Status and headers have arrived."""
        self.status, self.headers = status, headers
        self._ledger.headers_came(self._clock.monotonic())
        self._wake.set()

    async def push(self, chunk: bytes) -> None:
        """Add bytes from the socket; empty ones are no sign of life (X6). Waits while the consumer is far behind."""
        if self._draining:
            self._rest += chunk[: _REST_BYTES - len(self._rest)]
            return
        if not chunk:
            return
        self._buffer.append(chunk)
        self._buffered += len(chunk)
        self._wake.set()
        while self._buffered > _BUFFERED_BYTES and not self._draining:
            self._room.clear()
            await self._room.wait()

    async def await_headers(self) -> None:
        """Wait until the headers are here."""
        await self._until(lambda: bool(self.status))

    async def settle(self) -> bytes:
        """After a terminal event: let the rest of the body come, briefly, so that the connection can be used again.

        Returns what came of it, within a bound. It is no part of the answer, nor of the facts.
        """
        await self._drained()
        return b"".join((*self._buffer, self._rest))[:_REST_BYTES]

    async def _drained(self) -> None:
        if self._pump is None or self._pump.done() or self._draining:
            return
        ended = asyncio.Event()
        self._pump.add_done_callback(lambda _task: ended.set())
        bell = timer(self._clock, _SETTLE_SECONDS, ended.set, self._ledger.custody)
        self._draining = True  # nobody consumes any more, so the pump must not wait for room
        self._room.set()
        try:
            await ended.wait()
        finally:
            bell.cancel()

    async def end(self) -> None:
        """Stop reading and give the connection back or close it, at once (MODEL-5)."""
        tasks = [task for task in (self._timer, self._pump) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _ready(self) -> bool:
        await self._until(lambda: bool(self._buffer))
        return bool(self._buffer)

    async def _until(self, ready: Callable[[], bool]) -> None:
        """Wait for `ready` or the end of the body. A passed limit comes before either (X7)."""
        assert self._pump is not None
        while True:
            if (name := self._ledger.expired(self._clock.monotonic())) is not None:
                raise self._late(name)
            if ready():
                return
            if self._pump.done():
                self._raise_if_broken(self._pump)
                return
            self._arm()
            self._wake.clear()
            await self._wake.wait()

    def _late(self, name: str) -> ModelFailed:
        failure = FailureClass.UNREACHABLE if name == "connect" else FailureClass.TIMEOUT
        return self.failed(failure, f"{_LATE[name]} within {name}_ms = {getattr(self._limits, f'{name}_ms')}")

    def _raise_if_broken(self, pump: asyncio.Task[None]) -> None:
        error = pump.exception()
        if isinstance(error, ModelFailed):
            raise error
        if isinstance(error, Exception):
            raise failure_of(error, where=self.where, exchange=self.facts(), redact=self.redact) from None
        if error is not None:
            raise error

    def _take(self) -> bytes:
        chunk = self._buffer.popleft()
        self._buffered -= len(chunk)
        self._room.set()
        self._length += len(chunk)
        self._sha256.update(chunk)
        if self._length > self._limits.response_bytes:
            raise self.failed(
                FailureClass.MALFORMED_OUTPUT, f"the response is longer than {self._limits.response_bytes} bytes", retryable=False
            )
        return chunk

    def _arm(self) -> None:
        """Have a timer that rings no later than the next deadline; one that rings early is armed anew then (X9)."""
        at = self._ledger.next()
        if at is None or (self._timer is not None and not self._timer.done() and self._timer_at <= at):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = at
        self._timer = timer(self._clock, at - self._clock.monotonic(), self._wake.set, self._ledger.custody)
