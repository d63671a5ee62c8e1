"""Errors of the Messages API and of gateways before it (wire 1, B30)."""

import re
from collections.abc import Mapping

from semel.adapters.models.json_text import member, parse, text_of
from semel.adapters.models.server_error import ErrorTable, ServerError, told, unread
from semel.core.values import JSON
from semel.ports.model import FailureClass

_CONTEXT = re.compile(r"prompt is too long|exceeds? (the )?context (limit|window)|context window", re.IGNORECASE)
_SPENT = re.compile(r"reached your specified API usage limits|spend limit|credit balance is too low", re.IGNORECASE)
_OPAQUE = re.compile(
    r"`?thinking`? or `?redacted_thinking`? blocks|Expected `?thinking`? or `?redacted_thinking`?"
    r"|Invalid `?signature`? in `?thinking`?|Invalid `?data`? in `?redacted_thinking`?|bound to a different conversation"
    r"|must contain (non-whitespace )?thinking",
    re.IGNORECASE,
)

MESSAGES_ERRORS = ErrorTable(
    codes={
        "enforced_spend_limit_reached": FailureClass.QUOTA_EXHAUSTED,
        "contract_spend_limit_reached": FailureClass.QUOTA_EXHAUSTED,
        "ramp_limit_exceeded": FailureClass.RATE_LIMIT,
        "billing_error": FailureClass.QUOTA_EXHAUSTED,
        "authentication_error": FailureClass.AUTH,
        "permission_error": FailureClass.PERMISSION,
        "not_found_error": FailureClass.INVALID_REQUEST,
        "conflict_error": FailureClass.SERVER_ERROR,
        "request_too_large": FailureClass.REQUEST_TOO_LARGE,
        "rate_limit_error": FailureClass.RATE_LIMIT,
        "timeout_error": FailureClass.TIMEOUT,
        "overloaded_error": FailureClass.OVERLOADED,
    },
    texts=(
        (_CONTEXT, FailureClass.CONTEXT_EXCEEDED),
        (_OPAQUE, FailureClass.OPAQUE_STATE_REJECTED),
        (_SPENT, FailureClass.QUOTA_EXHAUSTED),
    ),
    weak={"invalid_request_error": FailureClass.INVALID_REQUEST, "api_error": FailureClass.SERVER_ERROR},
)


def read_error(value: JSON) -> ServerError | None:
    """The error in a body or an event, with or without its `type` (wire 1); None if it holds none."""
    error = member(value, "error")
    if not error:
        return None
    if not isinstance(error, dict):
        return ServerError(message=str(error))
    return error_object(error)


def error_object(error: dict[str, JSON]) -> ServerError:
    """An error object; gateways put an HTTP status into its code."""
    code = error.get("code")
    named = (member(error, "details", "error_code"), code, error.get("type"))
    number = int(code) if isinstance(code, (int, str)) and str(code).isascii() and str(code).isdigit() else 0
    return ServerError(
        message=told(error),
        codes=tuple(text for name in named if (text := text_of(name)) and text != "error"),
        status=number if 400 <= number < 600 else None,
    )


def refusal(_status: int, _headers: Mapping[str, str], body: bytes) -> ServerError:
    """The error that the body of a refusal tells. The edge in front of the API may answer with a web page."""
    return read_error(parse(body)) or unread(body)
