"""The model port over chat completions."""

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from msgspec.structs import replace

from semel.adapters.models.openai_chat.decode import BodyDecoder, Undecodable
from semel.adapters.models.openai_chat.errors import ServerError, body_error, failed, not_an_answer
from semel.adapters.models.openai_chat.options import decode_options
from semel.adapters.models.openai_chat.render import ChatRenderer
from semel.core.values import Bundle, Prompt
from semel.ports.model import Answer, Delta, ModelFailed, Request
from semel.ports.world import Clock

if TYPE_CHECKING:
    from semel.adapters.models.transport import HttpExchange, Transport

_ERROR_BYTES = 64 * 1024
_HEADERS = {"content-type": "application/json", "accept": "text/event-stream", "user-agent": "semel"}


class OpenAIChat:
    """One model of one server. Implements ports.model.ModelPort."""

    def __init__(self, *, bundle: Bundle, transport: "Transport", clock: Clock) -> None:
        """All that decides bytes is in `bundle`; `transport` is bound to its endpoint and key."""
        self._bundle, self._transport, self._clock = bundle, transport, clock
        self._options = decode_options(bundle.options)
        self._renderer = ChatRenderer(bundle, self._options)

    @property
    def bundle(self) -> Bundle:
        """What is frozen into the run."""
        return self._bundle

    def render(self, prompt: Prompt) -> Request:
        """One request; equal prompts give equal bytes (MODEL-1)."""
        return self._renderer.render(prompt)

    async def stream(self, request: Request) -> AsyncIterator[Delta | Answer]:
        """One exchange: text as it comes, then the answer. Raises ModelFailed."""
        async with self._transport.post("/chat/completions", body=request.body, headers=_HEADERS) as exchange:
            if exchange.status != 200:
                raise self._failed(body_error(await _error_body(exchange)), exchange)
            decoder = BodyDecoder(self._options)
            try:
                async for chunk in exchange.chunks():
                    for text in decoder.feed(chunk):
                        yield Delta(text=text)
                    if decoder.progressed:
                        exchange.progressed()
                    if decoder.done:
                        break
                decoded = decoder.result()
            except Undecodable as problem:
                raise self._unusable(problem, decoder, exchange) from None
        yield Answer(
            blocks=decoded.blocks, stop=decoded.stop, usage=decoded.usage, exchange=exchange.facts(), raw_stop=decoded.raw_stop
        )

    async def close(self) -> None:
        """End all connections."""
        await self._transport.close()

    def _unusable(self, problem: Undecodable, decoder: BodyDecoder, exchange: "HttpExchange") -> ModelFailed:
        if problem.error is not None:
            return self._failed(problem.error, exchange)
        if problem.failure is not None:
            return exchange.failed(problem.failure, str(problem))
        head = exchange.redact(decoder.head.decode(errors="replace"))
        return not_an_answer(head, exchange.facts(), where=exchange.where)

    def _failed(self, error: ServerError, exchange: "HttpExchange") -> ModelFailed:
        error = replace(error, message=exchange.redact(error.message), codes=tuple(map(exchange.redact, error.codes)))
        return failed(error, exchange.facts(), where=exchange.where, headers=exchange.headers, now_ms=self._clock.now_ms())


async def _error_body(exchange: "HttpExchange") -> bytes:
    """The body of a refusal. One that breaks off or stalls does not hide the status (X12)."""
    try:
        return await exchange.read(_ERROR_BYTES)
    except ModelFailed:
        return b""
