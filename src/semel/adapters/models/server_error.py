"""An error that a server tells of, and what it means: by machine code first, then by status, by its wording last (wire 0.6, B30).

Each family reads its own shapes into a ServerError and brings its own table; the order of the questions is the same for all.
"""

import re
from collections.abc import Mapping

from semel.adapters.models.json_text import member, text_of
from semel.adapters.models.retry_after import retry_after_ms
from semel.adapters.models.transport_errors import class_of_status
from semel.core.values import JSON, Frozen, printable
from semel.ports.model import Exchange, FailureClass, ModelFailed

SHOWN_CHARS = 200
_SPOKEN_FOR = frozenset({0, 400, 403, 404, 413, 422})  # statuses, and no status, that words tell more than
UPSTREAM_FAILED = 424  # what counts is the status that the gateway itself got, where it tells it


class ServerError(Frozen, frozen=True, kw_only=True):
    """An error object, whatever its shape was. `codes` are its machine codes, most telling first.

    `status` is an HTTP status that the error names itself, as gateways do inside a 200. `retry_after_ms` and `resets_at_ms`
    are the server's word on when to try again, where it stands in the body. `details` are google.rpc error details (R25).
    """

    message: str
    codes: tuple[str, ...] = ()
    status: int | None = None
    retry_after_ms: int | None = None
    resets_at_ms: int | None = None
    moderated: bool = False
    details: tuple[JSON, ...] = ()


class ErrorTable(Frozen, frozen=True, kw_only=True):
    """What a family's errors mean. `codes` decide; `texts` act where a status says no more than "refused"; `weak` come last."""

    codes: dict[str, FailureClass]
    texts: tuple[tuple[re.Pattern[str], FailureClass], ...] = ()
    weak: dict[str, FailureClass]

    def class_of(self, status: int, error: ServerError) -> FailureClass:
        """The class of an error that came with `status`; below 400 it came inside a stream or the body of a 200."""
        if status < 400:
            status = error.status or 0
        elif status == UPSTREAM_FAILED:
            status = error.status or status
        if error.moderated:
            return FailureClass.CONTENT_FILTER
        if (named := _first(self.codes, error.codes)) is not None:
            return named
        if status in _SPOKEN_FOR:
            for pattern, failure in self.texts:
                if pattern.search(error.message):
                    return failure
        if status:
            return class_of_status(status)
        return _first(self.weak, error.codes) or FailureClass.SERVER_ERROR


def _first(table: Mapping[str, FailureClass], codes: tuple[str, ...]) -> FailureClass | None:
    return next((table[code] for code in codes if code in table), None)


def failed(
    error: ServerError,
    exchange: Exchange,
    *,
    table: ErrorTable,
    where: str,
    headers: Mapping[str, str],
    now_ms: int,
) -> ModelFailed:
    """The failure that a server's error is, with the server's own word on when to try again."""
    failure = table.class_of(exchange.http_status or 0, error)
    shown = f" {exchange.http_status}" if exchange.http_status and exchange.http_status >= 400 else ""
    code = next(iter(error.codes), None) or (str(error.status) if error.status else None)
    return ModelFailed(
        failure,
        f"{where} answered{shown} {failure}: {printable(error.message, limit=SHOWN_CHARS)}",
        exchange=exchange,
        retry_after_ms=_hint(error, headers, now_ms),
        retryable={"true": True, "false": False}.get(headers.get("x-should-retry", "").strip().lower()),
        provider_code=None if code is None else printable(code, limit=64),
        details=error.details,
    )


def _hint(error: ServerError, headers: Mapping[str, str], now_ms: int) -> int | None:
    """How long to wait: the headers know best, then a machine-readable member of the body, then its wording."""
    hint = retry_after_ms(headers, now_ms)
    if hint is not None:
        return hint
    if error.resets_at_ms is not None:
        return max(0, error.resets_at_ms - now_ms)
    return error.retry_after_ms


def not_an_answer(head: str, exchange: Exchange, *, where: str) -> ModelFailed:
    """A 200 that is no answer of an API, by how its body starts: a sign-in page, `null`. Never an empty success (B30)."""
    text = printable(head[: 4 * SHOWN_CHARS], limit=SHOWN_CHARS)
    return ModelFailed(
        FailureClass.MALFORMED_OUTPUT,
        f"{where} gave no API response: status {exchange.http_status}, content type {exchange.content_type}, body {text!r}",
        exchange=exchange,
    )


def unread(body: bytes) -> ServerError:
    """A refusal whose body nobody can read. It is whole: only the text without the key may be cut short."""
    return ServerError(message=body.decode(errors="replace").strip() or "no message")


def told(value: JSON) -> str:
    """The message of an error object."""
    return text_of(member(value, "message")) or text_of(member(value, "Message")) or "no message"
