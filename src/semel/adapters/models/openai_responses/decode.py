"""Response body of the Responses API -> text deltas and one answer (wire 0.1, wire 3).

An answer is complete only with `response.completed` or `response.incomplete`. What counts is the whole items: those of the
terminal event, or, where a server leaves that list empty, those of `response.output_item.done`. The encrypted part of reasoning
is taken from the latter, which has it whole; while an item is being made it may be partial. Unknown events say nothing.
"""

from semel.adapters.models import sse
from semel.adapters.models.arguments import of_value, received
from semel.adapters.models.decoding import Decoded, EventDecoder, TextRun, Undecodable, interrupted, reported
from semel.adapters.models.json_text import count_of, items_of, member, text_of
from semel.adapters.models.opaque import opaque
from semel.adapters.models.openai_errors import error_object, read_error
from semel.adapters.models.openai_responses.options import ResponsesOptions
from semel.adapters.models.openai_responses.render import CALL_STATE, ITEM, MESSAGE_STATE
from semel.adapters.models.pricing import priced
from semel.adapters.models.server_error import ServerError
from semel.core.values import JSON, Block, Stop, Text, ToolCall, Usage, clean_text, printable
from semel.ports.model import FailureClass

_SHOWN = frozenset({"response.output_text.delta", "response.refusal.delta"})
_CONTENT = frozenset(
    {
        "response.output_item.added",
        "response.output_item.done",
        "response.function_call_arguments.delta",
        "response.reasoning_summary_text.delta",
        "response.reasoning_text.delta",
    }
)
_ENDED_BY_ORDER = frozenset({"steered", "max_messages"})  # the client's own bounds: what was said so far is whole


def responses_decoder(options: ResponsesOptions) -> EventDecoder:
    """A decoder for one body."""
    return EventDecoder(ResponsesAnswer(options))


class ResponsesAnswer:
    """What the events of one answer add up to. Implements decoding.Answer."""

    def __init__(self, options: ResponsesOptions) -> None:
        """Nothing yet."""
        self._options = options
        self._shown = TextRun()
        self._items: dict[int, dict[str, JSON]] = {}
        self._response: dict[str, JSON] | None = None
        self._cut = False  # by the name of the terminal event, whatever its response says
        self.done = False
        self.progressed = False

    def event(self, event: sse.Event, value: JSON) -> str:
        """One event; its type is its name, or stands in its data."""
        self.progressed = False
        if not isinstance(value, dict):
            return ""
        if (error := self.error_in(value)) is not None or (error := _nameless_error(event, value)) is not None:
            raise reported(error)
        kind = text_of(value.get("type")) or event.type
        if kind in _SHOWN:
            piece = text_of(value.get("delta"))
            self.progressed = bool(piece)
            return self._shown.add(piece)
        self.progressed = kind in _CONTENT
        if kind == "response.output_item.done":
            self._keep(value.get("output_index"), value.get("item"))
        elif kind in ("response.completed", "response.incomplete"):
            self._ended(value.get("response"))
            self._cut = kind == "response.incomplete"
            self.done = True
        return ""

    def document(self, value: JSON) -> None:
        """A whole response of a server that does not stream, or its error."""
        if (error := self.error_in(value)) is not None:
            raise reported(error)
        if not isinstance(value, dict) or not isinstance(value.get("output"), list):
            raise Undecodable("the body is not a response")
        self._ended(value)

    def error_in(self, value: JSON) -> ServerError | None:
        """The error of an event: nested, flat, or that of a response that failed; of several, the first counts."""
        if not isinstance(value, dict):
            return None
        response = value.get("response") if text_of(value.get("type")) == "response.failed" else value
        if isinstance(response, dict) and response.get("status") == "failed" and not response.get("error"):
            return ServerError(message="the response failed, without a reason", codes=("server_error",))
        if (error := read_error(response)) is not None:
            return error
        return error_object({**value, "type": None}) if value.get("type") == "error" else None

    def decoded(self) -> Decoded:
        """The whole answer."""
        if self._response is None:
            raise interrupted("the stream ended without response.completed")
        status = text_of(self._response.get("status"))
        if status in ("cancelled", "in_progress", "queued"):
            raise interrupted(f"the server ended the response as {status}")
        items = self._output()
        blocks = self._blocks(items)
        if not blocks and self._shown.text:
            raise Undecodable(
                "the response came without the items that its events told of", failure=FailureClass.MALFORMED_OUTPUT
            )
        reason = text_of(member(self._response, "incomplete_details", "reason"))
        stop = _stop_of("incomplete" if self._cut else status, reason, items)
        usage = priced(_usage_of(self._response.get("usage")), self._options.price)
        return Decoded(blocks=tuple(blocks), stop=stop, usage=usage, raw_stop=printable(reason or status, limit=100))

    def _keep(self, index: JSON, item: JSON) -> None:
        if isinstance(item, dict):
            self._items[index if isinstance(index, int) else len(self._items)] = item

    def _ended(self, response: JSON) -> None:
        if not isinstance(response, dict):
            raise interrupted("the terminal event holds no response")
        self.progressed = True
        self._response = response

    def _output(self) -> list[dict[str, JSON]]:
        listed = items_of(member(self._response, "output"))
        kept = [self._items[index] for index in sorted(self._items)]
        if not listed:
            return kept
        whole = {item["id"]: item for item in kept if isinstance(item.get("id"), str)}
        return [
            whole.get(text_of(item.get("id")), item) if item.get("type") in ("reasoning", "compaction") else item
            for item in listed
        ]

    def _blocks(self, items: list[dict[str, JSON]]) -> list[Block]:
        blocks: list[Block] = []
        bare = False  # reasoning was left out, so the ids of what follows it mean nothing to the server
        for item in items:
            kind = item.get("type")
            if kind == "message":
                blocks += self._said(item, bare=bare)
            elif kind == "function_call":
                blocks += _called(item, bare=bare)
            elif kind == "reasoning" and not (item.get("encrypted_content") and self._options.dialect.encrypted_reasoning):
                bare = True
            elif isinstance(kind, str):
                blocks.append(opaque(ITEM, item))
        return blocks

    def _said(self, item: dict[str, JSON], *, bare: bool) -> list[Block]:
        parts = items_of(item.get("content"))
        text = clean_text("".join(text_of(part.get("text")) or text_of(part.get("refusal")) for part in parts))
        if not text:
            return []
        state = _state(item, ("status", "phase") if bare else ("id", "status", "phase"))
        kept = bool(state) and self._options.dialect.text_state
        return [Text(text=text), *([opaque(MESSAGE_STATE, state)] if kept else [])]


def _called(item: dict[str, JSON], *, bare: bool) -> list[Block]:
    arguments = item.get("arguments")
    call = ToolCall(
        id=clean_text(text_of(item.get("call_id"))),
        name=clean_text(text_of(item.get("name"))),
        arguments=received(arguments) if isinstance(arguments, str) else of_value(arguments or {}),
    )
    state = _state(item, ("status",) if bare else ("id", "status"))
    return [call, *([opaque(CALL_STATE, state)] if state else [])]


def _state(item: dict[str, JSON], names: tuple[str, ...]) -> dict[str, JSON]:
    return {name: item[name] for name in names if isinstance(item.get(name), str)}


def _nameless_error(event: sse.Event, value: dict[str, JSON]) -> ServerError | None:
    """An event that only its name calls an error."""
    return error_object(value) if event.type == "error" and "type" not in value else None


def _stop_of(status: str, reason: str, items: list[dict[str, JSON]]) -> Stop:
    """Calls of what the server calls incomplete, be it the response or the call, were cut and are not run (B14)."""
    calls = [item for item in items if item.get("type") == "function_call"]
    if status == "incomplete" or any(call.get("status") == "incomplete" for call in calls):
        if reason == "content_filter":
            return Stop.CONTENT_FILTER
        return Stop.OTHER if reason in _ENDED_BY_ORDER and not calls else Stop.MAX_TOKENS
    if calls:
        return Stop.TOOL_USE
    refused = any(part.get("type") == "refusal" for item in items for part in items_of(item.get("content")))
    return Stop.REFUSAL if refused else Stop.END_TURN


def _usage_of(raw: JSON) -> Usage:
    """OpenAI counts what the cache served or took within the input (wire 0.7)."""
    total = count_of(raw, "input_tokens")
    cache_read = count_of(raw, "input_tokens_details", "cached_tokens")
    cache_write = count_of(raw, "input_tokens_details", "cache_write_tokens")
    return Usage(
        input=None if total is None else max(0, total - (cache_read or 0) - (cache_write or 0)),
        output=count_of(raw, "output_tokens"),
        cache_read=cache_read,
        cache_write=cache_write,
        reasoning=count_of(raw, "output_tokens_details", "reasoning_tokens"),
    )
