"""The model port over HTTP: one exchange per stream, whatever the family (MODEL-1 to MODEL-6)."""

import json
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from msgspec.structs import replace

from semel.adapters.models.decoding import Decoder, Undecodable
from semel.adapters.models.json_text import count_of, dump, parse
from semel.adapters.models.redelivery import redelivered
from semel.adapters.models.rendering import Form, Renderer
from semel.adapters.models.server_error import ErrorTable, ServerError, failed, not_an_answer
from semel.core.values import JSON, Bundle, Prompt
from semel.errors import need
from semel.ports.model import Answer, Delta, ModelFailed, Rendered, Request
from semel.ports.world import Clock

if TYPE_CHECKING:
    from semel.adapters.models.exchange import HttpExchange
    from semel.adapters.models.transport import Transport

_ERROR_BYTES = 64 * 1024
_COUNT_HEADERS = {"content-type": "application/json", "accept": "application/json", "user-agent": "semel"}
_HEADERS = {"content-type": "application/json", "accept": "text/event-stream", "user-agent": "semel"}


@dataclass(frozen=True, kw_only=True)
class Counting:
    """How a family counts the tokens of a request: where, what of its body is sent, and where in the reply the number is."""

    path: str
    body: Callable[[dict[str, JSON]], dict[str, JSON]]
    answer: str


@dataclass(frozen=True, kw_only=True)
class Wire:
    """What a family puts between the renderer and the transport. `path` follows the base URL, `headers` are its own."""

    path: str
    form: Form
    decoder: Callable[[], Decoder]
    refusal: Callable[[int, Mapping[str, str], bytes], ServerError]
    errors: ErrorTable
    headers: dict[str, str] = field(default_factory=dict)
    counting: Counting | None = None


class HttpModel:
    """One model of one server. Implements ports.model.ModelPort and TokenCounter."""

    def __init__(self, *, bundle: Bundle, wire: Wire, transport: "Transport", clock: Clock) -> None:
        """All that decides bytes is in `bundle`; `transport` is bound to its endpoint and key."""
        self._bundle, self._wire, self._transport, self._clock = bundle, wire, transport, clock
        self._renderer = Renderer(wire.form, bundle)

    @property
    def bundle(self) -> Bundle:
        """What is frozen into the run."""
        return self._bundle

    def render(self, prompt: Prompt) -> Request:
        """One request; equal prompts give equal bytes (MODEL-1)."""
        return self._renderer.render(prompt)

    def rendered(self) -> Renderer:
        """What it has rendered so far."""
        return self._renderer

    def go_on_from(self, rendered: Rendered) -> None:
        """Take up what a model of an equal bundle rendered: that decides all bytes."""
        if isinstance(rendered, Renderer) and rendered.bundle == self._bundle:
            self._renderer = rendered

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Answer, None]:
        """One exchange: text as it comes, then the answer. Raises ModelFailed."""
        wire = self._wire
        async with self._transport.post(wire.path, body=request.body, headers={**_HEADERS, **wire.headers}) as exchange:
            await self._refuse(exchange)
            decoder = wire.decoder()
            try:
                async for chunk in exchange.chunks():
                    for text in decoder.feed(chunk):
                        yield Delta(text=text)
                    if decoder.progressed:
                        exchange.progressed()
                    if decoder.done:
                        decoder.trailer(await exchange.settle())
                        break
                decoded = decoder.result()
            except Undecodable as problem:
                raise self._unusable(problem, decoder, exchange) from None
        yield Answer(
            blocks=decoded.blocks, stop=decoded.stop, usage=decoded.usage, exchange=exchange.facts(), raw_stop=decoded.raw_stop
        )

    @property
    def counts(self) -> bool:
        """Whether the server counts the tokens of a request."""
        return self._wire.counting is not None

    async def count_tokens(self, prompt: Prompt) -> int:
        """Ask how many tokens a request has. Raises ModelFailed; one budget covers refusals and broken answers (X17)."""
        counting = need(self._wire.counting, "a model that counts was asked")
        body = dump(counting.body(json.loads(self.render(prompt).body)))
        return await redelivered(lambda: self._count(counting, body), clock=self._clock, custody=self._transport.custody)

    async def close(self) -> None:
        """End all connections."""
        await self._transport.close()

    async def _count(self, counting: Counting, body: bytes) -> int:
        async with self._transport.post(counting.path, body=body, headers={**_COUNT_HEADERS, **self._wire.headers}) as exchange:
            await self._refuse(exchange)
            raw = await exchange.read(_ERROR_BYTES)
            count = count_of(parse(raw), counting.answer)
            if count is None:
                raise not_an_answer(exchange.redact(raw.decode(errors="replace")), exchange.facts(), where=exchange.where)
            return count

    async def _refuse(self, exchange: "HttpExchange") -> None:
        if exchange.status != 200:
            body = await _error_body(exchange)
            raise self._failed(self._wire.refusal(exchange.status, exchange.headers, body), exchange)

    def _unusable(self, problem: Undecodable, decoder: Decoder, exchange: "HttpExchange") -> ModelFailed:
        if problem.error is not None:
            return self._failed(problem.error, exchange)
        if problem.failure is not None:
            return exchange.failed(problem.failure, str(problem))
        head = exchange.redact(decoder.head.decode(errors="replace"))
        return not_an_answer(head, exchange.facts(), where=exchange.where)

    def _failed(self, error: ServerError, exchange: "HttpExchange") -> ModelFailed:
        return failed(
            _redacted(error, exchange.redact),
            exchange.facts(),
            table=self._wire.errors,
            where=exchange.where,
            headers=exchange.headers,
            now_ms=self._clock.now_ms(),
        )


def _redacted(error: ServerError, redact: Callable[[str], str]) -> ServerError:
    details = parse(redact(json.dumps(error.details, ensure_ascii=False))) if error.details else None
    return replace(
        error,
        message=redact(error.message),
        codes=tuple(map(redact, error.codes)),
        details=tuple(details) if isinstance(details, list) else (),
    )


async def _error_body(exchange: "HttpExchange") -> bytes:
    """The body of a refusal. One that breaks off or stalls does not hide the status (X12)."""
    try:
        return await exchange.read(_ERROR_BYTES)
    except ModelFailed:
        return b""
