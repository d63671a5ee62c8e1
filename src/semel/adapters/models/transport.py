"""The way to one endpoint: every POST goes through here, is bounded, and is sent once (X1, A11, A24).

No redirect is followed, no cookie is kept, no proxy or other setting is read from the environment, the body travels unencoded.
What goes wrong is raised as ModelFailed with the facts of the exchange and no key, header or body in it (MODEL-6). httpx2 is
imported with the first request, since it costs more than the rest of semel.
"""

import asyncio
import weakref
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from semel.adapters.models.addresses import Resolver, checked, is_name, resolved
from semel.adapters.models.cooldown import cooldown_of
from semel.adapters.models.deadline import Custody, Ledger, Limits
from semel.adapters.models.endpoint import Endpoint
from semel.adapters.models.exchange import HttpExchange
from semel.adapters.models.keys import Credential, Outgoing
from semel.core.values import printable
from semel.errors import BadSettings
from semel.ports.model import FailureClass, ModelFailed
from semel.ports.roster import ROSTER
from semel.ports.world import Clock

if TYPE_CHECKING:
    import httpx2

_KEPT_ALIVE_SECONDS = 60.0


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
        resolve: Resolver | None = None,
    ) -> None:
        """`connector` replaces the sockets, for simulations, and `resolve` the system's names."""
        self._endpoint, self._key, self._clock, self._limits = endpoint, key, clock, limits
        self._connector = connector
        self._resolve = resolve or (resolved if connector is None else None)
        self._address = ""  # where the last request went, which has open connections
        self._silent: list[str] = []  # those that let a limit pass without a connection, the longest ago first
        self._where = endpoint.base_url.partition("://")[2].partition("/")[0]
        self._client: httpx2.AsyncClient | None = None
        self._entry: int | None = None
        self.custody = Custody()  # of timers between exchanges; each exchange has its own

    @asynccontextmanager
    async def post(self, path: str, *, body: bytes, headers: Mapping[str, str]) -> AsyncIterator[HttpExchange]:
        """Send `body` once and enter with the status and headers. Raises ModelFailed. Leaving ends the exchange at once."""
        cooldown = cooldown_of(self._clock, self._where, self._key.name)
        held = tried = await cooldown.admitted(self._clock, where=self._where, most_ms=self._limits.cooldown_ms)
        ledger = Ledger(self._limits, self._clock.monotonic())
        exchange = HttpExchange(clock=self._clock, ledger=ledger, where=self._where, redact=self._key.redact)
        pump = self._pump(exchange, path, body, headers)
        exchange.start(asyncio.get_running_loop().create_task(pump))
        try:
            await exchange.await_headers()
            _check_head(exchange)
            if exchange.status == 200:
                cooldown.passed(tried=held)  # now, since the answer may take minutes
                held = False
            yield exchange
            await exchange.settle()
        except ModelFailed as error:
            if error.failure is FailureClass.RATE_LIMIT:
                cooldown.refused(self._clock.monotonic(), error.retry_after_ms, tried=tried)
            if error.failure is FailureClass.AUTH and exchange.status:
                error.args = (f"{error} ({self._key.origin()})",)
            raise
        finally:
            cooldown.left(tried=held)
            await exchange.end()

    async def close(self) -> None:
        """Close all connections."""
        client, self._client = self._client, None
        try:
            if client is not None:
                await client.aclose()
        finally:
            if self._entry is not None:
                ROSTER.strike_off(self._entry)

    async def _pump(self, exchange: HttpExchange, path: str, body: bytes, headers: Mapping[str, str]) -> None:
        """Read the exchange's socket into its buffer. Reading a key may take time too, so it happens under the limits (X1)."""
        outgoing = Outgoing(endpoint=self._endpoint, path=path, body=body, headers=dict(headers))
        try:
            authorization = await self._key.headers(outgoing)
        except BadSettings as error:
            raise ModelFailed(FailureClass.AUTH, str(error)) from None
        client = self._client = self._client or self._connect()
        sent = {**headers, **authorization, "accept-encoding": "identity"}
        response = await self._send(client, exchange, path, body, sent)
        try:
            exchange.headers_came(response.status_code, {name.lower(): value for name, value in response.headers.items()})
            async for chunk in response.aiter_raw():
                await exchange.push(chunk)
        finally:
            await response.aclose()

    async def _send(
        self, client: "httpx2.AsyncClient", exchange: HttpExchange, path: str, body: bytes, headers: dict[str, str]
    ) -> "httpx2.Response":
        """Send to the address that the name was checked to be; the next one is tried only if no connection was made.

        One that says nothing uses up the limit of this exchange; the next exchange tries it last.
        """
        import httpx2

        async def trace(event: str, _info: Mapping[str, Any]) -> None:
            if event.endswith("send_request_headers.started"):
                exchange.connected()

        base, host = self._endpoint.base_url, self._endpoint.host
        if self._resolve is None or not is_name(host):
            request = client.build_request("POST", base + path, content=body, headers=headers, extensions={"trace": trace})
            return await client.send(request, stream=True)
        port = httpx2.URL(base).port or 443
        addresses = self._in_order(await checked(host, port, self._resolve))
        for address in addresses:
            url = httpx2.URL(base + path).copy_with(host=address)
            extensions = {"trace": trace, "sni_hostname": host}
            request = client.build_request(
                "POST", url, content=body, headers={**headers, "host": self._where}, extensions=extensions
            )
            try:
                response = await client.send(request, stream=True)
            except httpx2.ConnectError:
                if address == addresses[-1]:
                    raise
            except asyncio.CancelledError:
                if exchange.unconnected():
                    self._silent = [*self._others(address), address]
                raise
            else:
                self._address, self._silent = address, self._others(address)
                return response
        raise exchange.failed(FailureClass.UNREACHABLE, "the name has no address")

    def _in_order(self, addresses: Sequence[str]) -> list[str]:
        """The one that worked first, those that said nothing last."""
        self._silent = [silent for silent in self._silent if silent in addresses]
        kept = [address for address in addresses if address not in self._silent]
        return [*sorted(kept, key=lambda found: found != self._address), *self._silent]

    def _others(self, address: str) -> list[str]:
        return [silent for silent in self._silent if silent != address]

    def _connect(self) -> "httpx2.AsyncClient":
        from http.cookiejar import CookieJar, DefaultCookiePolicy

        import httpx2

        self._entry = ROSTER.enter("connection", self._where)
        weakref.finalize(self, ROSTER.strike_off, self._entry)  # one that nobody closed ends with its owner
        return httpx2.AsyncClient(
            transport=self._connector,
            verify=self._endpoint.base_url.startswith("https:"),
            trust_env=False,
            follow_redirects=False,
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=())),  # takes none, so that requests depend on the log alone
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
    encoding = exchange.headers.get("content-encoding", "").strip()
    if encoding.lower() not in ("", "identity"):
        shown = printable(exchange.redact(encoding), limit=40)
        raise exchange.failed(FailureClass.MALFORMED_OUTPUT, f"sent a body encoded as {shown!r}, unasked", retryable=False)
