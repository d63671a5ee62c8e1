"""What an error of a chat completions server means: by machine code first, then by status, by its wording last (wire 2, B30)."""

import json
import re
from collections.abc import Mapping

from semel.adapters.models.retry_after import retry_after_ms
from semel.adapters.models.transport_errors import class_of_status
from semel.core.values import JSON, Frozen, printable
from semel.ports.model import Exchange, FailureClass, ModelFailed

_BY_CODE = {
    "context_length_exceeded": FailureClass.CONTEXT_EXCEEDED,
    "exceed_context_size_error": FailureClass.CONTEXT_EXCEEDED,
    "insufficient_quota": FailureClass.QUOTA_EXHAUSTED,
    "billing_hard_limit_reached": FailureClass.QUOTA_EXHAUSTED,
    "usage_limit_reached": FailureClass.QUOTA_EXHAUSTED,
    "exceeded_current_quota_error": FailureClass.QUOTA_EXHAUSTED,
    "rate_limit_exceeded": FailureClass.RATE_LIMIT,
    "rate_limit_error": FailureClass.RATE_LIMIT,
    "rate_limit_reached_error": FailureClass.RATE_LIMIT,
    "overloaded_error": FailureClass.OVERLOADED,
    "engine_overloaded_error": FailureClass.OVERLOADED,
    "server_error": FailureClass.SERVER_ERROR,
    "internal_server_error": FailureClass.SERVER_ERROR,
    "content_filter": FailureClass.CONTENT_FILTER,
    "content_policy_violation": FailureClass.CONTENT_FILTER,
    "invalid_api_key": FailureClass.AUTH,
    "authentication_error": FailureClass.AUTH,
    "invalid_authentication_error": FailureClass.AUTH,
    "permission_error": FailureClass.PERMISSION,
    "model_not_found": FailureClass.INVALID_REQUEST,
    "string_above_max_length": FailureClass.INVALID_REQUEST,
    "timeout_error": FailureClass.TIMEOUT,
}
_BY_FINISH = {
    "error": FailureClass.SERVER_ERROR,
    "insufficient_system_resource": FailureClass.OVERLOADED,
    "abort": FailureClass.SERVER_ERROR,
}
_CONTEXT = re.compile(
    r"context length|context window|exceeds? the available context|token length too long|prompt is too long",
    re.IGNORECASE,
)
_BODY_LIMIT = 200


class ServerError(Frozen, frozen=True, kw_only=True):
    """An error object, whatever its shape was. `codes` are its machine codes, most telling first."""

    message: str
    codes: tuple[str, ...] = ()
    status: int | None = None  # a numeric code that is an HTTP status, as gateways send it inside a 200
    resets_at_ms: int | None = None
    moderated: bool = False


def read_error(value: JSON) -> ServerError | None:
    """The error in a decoded body or chunk, None if it holds none. An `error` member that is null is none (wire 2)."""
    if not isinstance(value, dict):
        return None
    error = value.get("error")
    if error is None and value.get("object") == "error":
        error = value
    if error is None and "choices" not in value and isinstance(value.get("detail"), (str, list)):
        error = {"message": json.dumps(value["detail"]) if isinstance(value["detail"], list) else value["detail"]}
    if not error:
        return None
    return _from_object(error) if isinstance(error, dict) else ServerError(message=str(error))


def _from_object(error: dict[str, JSON]) -> ServerError:
    metadata = error.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    named = (error.get("code"), error.get("type"), metadata.get("error_type"))
    numbers = [int(code) for code in named if isinstance(code, (int, str)) and str(code).isascii() and str(code).isdigit()]
    resets = error.get("resets_at")
    return ServerError(
        message=str(error.get("message") or "no message"),
        codes=tuple(code for code in named if isinstance(code, str) and code),
        status=next((number for number in numbers if 400 <= number < 600), None),
        resets_at_ms=int(resets * 1000) if isinstance(resets, (int, float)) and 0 < resets < 2**40 else None,
        moderated="flagged_input" in metadata or "misalignment" in error,
    )


def class_of(status: int, error: ServerError) -> FailureClass:
    """The class of an error that came with `status`; a status below 400 means that it came inside a stream or a 200 body."""
    status = status if status >= 400 else error.status or 0
    if error.moderated:
        return FailureClass.CONTENT_FILTER
    named = next((_BY_CODE[code] for code in error.codes if code in _BY_CODE), None)
    if named is not None:
        return named
    if status in (0, 400, 413, 422) and _CONTEXT.search(error.message):
        return FailureClass.CONTEXT_EXCEEDED
    if status:
        return class_of_status(status)
    return FailureClass.INVALID_REQUEST if "invalid_request_error" in error.codes else FailureClass.SERVER_ERROR


def class_of_finish(reason: str) -> FailureClass | None:
    """The class of a `finish_reason` that tells of a failure; None for all others."""
    return _BY_FINISH.get(reason)


def failed(error: ServerError, exchange: Exchange, *, where: str, headers: Mapping[str, str], now_ms: int) -> ModelFailed:
    """The failure that a server's error is, with the server's own word on when to try again."""
    failure = class_of(exchange.http_status or 0, error)
    hint = retry_after_ms(headers, now_ms)
    if hint is None and error.resets_at_ms is not None:
        hint = max(0, error.resets_at_ms - now_ms)
    shown = f" {exchange.http_status}" if exchange.http_status and exchange.http_status >= 400 else ""
    code = next(iter(error.codes), None) or (str(error.status) if error.status else None)
    return ModelFailed(
        failure,
        f"{where} answered{shown} {failure}: {printable(error.message, limit=_BODY_LIMIT)}",
        exchange=exchange,
        retry_after_ms=hint,
        retryable={"true": True, "false": False}.get(headers.get("x-should-retry", "").strip().lower()),
        provider_code=None if code is None else printable(code, limit=64),
    )


def not_an_answer(head: str, exchange: Exchange, *, where: str) -> ModelFailed:
    """A 200 that is no answer of an API, by how its body starts: a sign-in page, `null`. Never an empty success (B30)."""
    text = printable(head[: 4 * _BODY_LIMIT], limit=_BODY_LIMIT)
    return ModelFailed(
        FailureClass.MALFORMED_OUTPUT,
        f"{where} gave no API response: status {exchange.http_status}, content type {exchange.content_type}, body {text!r}",
        exchange=exchange,
    )


def body_error(body: bytes) -> ServerError:
    """The error that the body of a refusal tells, or its first words where it is not JSON."""
    try:
        error = read_error(json.loads(body))
    except (ValueError, RecursionError):
        error = None
    return error or ServerError(message=body[: 4 * _BODY_LIMIT].decode(errors="replace").strip() or "no message")
