"""One bounded HTTP exchange: a POST whose answer is read piece by piece under the limits of `deadline` (X1 to X8, A24).

No redirect is followed, no proxy or other setting is read from the environment, the body travels unencoded, and its length is
capped. What goes wrong is raised as ModelFailed with the facts of the exchange and no key, header or body in it (MODEL-6).
httpx2 is imported with the first request, since it costs more than the rest of semel.
"""

import asyncio
import hashlib
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from semel.adapters.models.cooldown import cooldown_of
from semel.adapters.models.deadline import Custody, Ledger, Limits, timer
from semel.adapters.models.endpoint import Endpoint
from semel.adapters.models.keys import Credential, Outgoing
from semel.adapters.models.transport_errors import failure_of
from semel.core.values import printable
from semel.errors import BadSettings
from semel.ports.model import Exchange, FailureClass, ModelFailed
from semel.ports.world import Clock

if TYPE_CHECKING:
    import httpx2

_BUFFERED_BYTES = 1024 * 1024  # read ahead of the consumer; beyond it the socket waits
_REST_BYTES = 64 * 1024
_SETTLE_SECONDS = 0.05  # for the bytes behind a terminal event, so that the connection can be used again
_REQUEST_ID_HEADERS = ("x-request-id", "request-id", "x-amzn-requestid")
_KEPT_ALIVE_SECONDS = 60.0
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
        """A ModelFailed that names the server and carries the facts."""
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
            raise failure_of(error, where=self.where, exchange=self.facts()) from None
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


class Transport:
    """A pool of connections to one endpoint. Bound to the event loop of its first request."""

    def __init__(
        self,
        *,
        endpoint: Endpoint,
        key: Credential,
        clock: Clock,
        limits: Limits,
        connector: "httpx2.AsyncBaseTransport | None" = None,
    ) -> None:
        """`connector` replaces the sockets, for simulations."""
        self._endpoint, self._key, self._clock, self._limits = endpoint, key, clock, limits
        self._connector = connector
        self._where = endpoint.base_url.partition("://")[2].partition("/")[0]
        self._client: httpx2.AsyncClient | None = None
        self.custody = Custody()  # of timers between exchanges; each exchange has its own

    @asynccontextmanager
    async def post(self, path: str, *, body: bytes, headers: Mapping[str, str]) -> AsyncIterator[HttpExchange]:
        """Send `body` once and enter with the status and headers. Raises ModelFailed. Leaving ends the exchange at once."""
        cooldown = cooldown_of(self._clock, self._where, self._key.name)
        tried = await cooldown.admitted(self._clock, where=self._where, most_ms=self._limits.cooldown_ms)
        ledger = Ledger(self._limits, self._clock.monotonic())
        exchange = HttpExchange(clock=self._clock, ledger=ledger, where=self._where, redact=self._key.redact)
        pump = self._pump(exchange, path, body, headers)
        exchange.start(asyncio.get_running_loop().create_task(pump))
        try:
            await exchange.await_headers()
            _check_head(exchange)
            yield exchange
            await exchange.settle()
            cooldown.passed(tried=tried)
            tried = False
        except ModelFailed as error:
            if error.failure is FailureClass.RATE_LIMIT:
                cooldown.refused(self._clock.monotonic(), error.retry_after_ms, tried=tried)
                tried = False
            if error.failure is FailureClass.AUTH and exchange.status:
                error.args = (f"{error} ({self._key.origin()})",)
            raise
        finally:
            cooldown.left(tried=tried)
            await exchange.end()

    async def close(self) -> None:
        """Close all connections."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def _pump(self, exchange: HttpExchange, path: str, body: bytes, headers: Mapping[str, str]) -> None:
        """Read the exchange's socket into its buffer. Reading a key may take time too, so it happens under the limits (X1)."""
        outgoing = Outgoing(endpoint=self._endpoint, path=path, body=body, headers=dict(headers))
        try:
            authorization = await self._key.headers(outgoing)
        except BadSettings as error:
            raise ModelFailed(FailureClass.AUTH, str(error)) from None
        client = self._client = self._client or self._connect()

        async def trace(event: str, _info: Mapping[str, Any]) -> None:
            if event.endswith("send_request_headers.started"):
                exchange.connected()

        request = client.build_request(
            "POST",
            self._endpoint.base_url + path,
            content=body,
            headers={**headers, **authorization, "accept-encoding": "identity"},
            extensions={"trace": trace},
        )
        response = await client.send(request, stream=True)
        try:
            exchange.headers_came(response.status_code, {name.lower(): value for name, value in response.headers.items()})
            async for chunk in response.aiter_raw():
                await exchange.push(chunk)
        finally:
            await response.aclose()

    def _connect(self) -> "httpx2.AsyncClient":
        import httpx2

        return httpx2.AsyncClient(
            transport=self._connector,
            verify=self._endpoint.base_url.startswith("https:"),
            trust_env=False,
            follow_redirects=False,
            timeout=None,  # every wait is under the exchange's own limits, on the injected clock
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=64, keepalive_expiry=_KEPT_ALIVE_SECONDS),
        )


def _check_head(exchange: HttpExchange) -> None:
    """Refuse what no API answers with: a redirect, an encoded body, a body longer than the cap."""
    if 300 <= exchange.status < 400:
        raise exchange.failed(
            FailureClass.INVALID_REQUEST,
            f"answered with a redirect ({exchange.status}), which is not followed; correct the base URL",
        )
    encoding = exchange.headers.get("content-encoding", "").strip().lower()
    if encoding not in ("", "identity"):
        raise exchange.failed(
            FailureClass.MALFORMED_OUTPUT, f"sent a body encoded as {printable(encoding, limit=40)!r}, unasked", retryable=False
        )
