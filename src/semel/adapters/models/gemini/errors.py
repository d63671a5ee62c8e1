"""Errors of generateContent: a google.rpc.Status, its details kept (wire 4, R25)."""

import re
from collections.abc import Mapping

from semel.adapters.models.json_text import items_of, member, parse, text_of
from semel.adapters.models.server_error import ErrorTable, ServerError, told, unread
from semel.core.values import JSON
from semel.ports.model import FailureClass

_CONTEXT = re.compile(r"token count .*exceeds the maximum number of tokens|context (length|window)", re.IGNORECASE)
_OPAQUE = re.compile(
    r"missing a thought_signature|(invalid|corrupted) thought[_ ]signature|thought_signature.* is not valid", re.IGNORECASE
)
_DELAY = re.compile(r"(\d{1,15})(?:\.(\d{1,9}))?s", re.ASCII)
_RETRY_INFO, _QUOTA, _INFO = "google.rpc.RetryInfo", "google.rpc.QuotaFailure", "google.rpc.ErrorInfo"

GEMINI_ERRORS = ErrorTable(
    codes={
        "quota_per_day": FailureClass.QUOTA_EXHAUSTED,
        "API_KEY_INVALID": FailureClass.AUTH,
        "UNAUTHENTICATED": FailureClass.AUTH,
        "PERMISSION_DENIED": FailureClass.PERMISSION,
        "FAILED_PRECONDITION": FailureClass.PERMISSION,
        "NOT_FOUND": FailureClass.INVALID_REQUEST,
        "RESOURCE_EXHAUSTED": FailureClass.RATE_LIMIT,
        "UNAVAILABLE": FailureClass.OVERLOADED,
        "DEADLINE_EXCEEDED": FailureClass.TIMEOUT,
        "INTERNAL": FailureClass.SERVER_ERROR,
        "ABORTED": FailureClass.SERVER_ERROR,
        "CANCELLED": FailureClass.INTERRUPTED,
    },
    texts=(
        (_CONTEXT, FailureClass.CONTEXT_EXCEEDED),
        (_OPAQUE, FailureClass.OPAQUE_STATE_REJECTED),
        (re.compile(r"API key not valid", re.IGNORECASE), FailureClass.AUTH),
    ),
    weak={"INVALID_ARGUMENT": FailureClass.INVALID_REQUEST, "OUT_OF_RANGE": FailureClass.INVALID_REQUEST},
)


def read_error(value: JSON) -> ServerError | None:
    """The error in a body or a chunk, None if it holds none. Some bodies wrap it into a list of one."""
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    error = member(value, "error")
    if not error:
        return None
    if not isinstance(error, dict):
        return ServerError(message=str(error))
    details = items_of(error.get("details"))
    code = error.get("code")
    return ServerError(
        message=told(error),
        codes=tuple(name for name in (*_named(details), text_of(error.get("status"))) if name),
        status=code if isinstance(code, int) and 400 <= code < 600 else None,
        retry_after_ms=_delay(details),
        details=tuple(details),
    )


def refusal(_status: int, _headers: Mapping[str, str], body: bytes) -> ServerError:
    """The error that the body of a refusal tells."""
    return read_error(parse(body)) or unread(body)


def _named(details: list[dict[str, JSON]]) -> list[str]:
    """What the details say more than the status does: a spent daily quota, a reason."""
    names = []
    for detail in details:
        kind = text_of(detail.get("@type"))
        if kind.endswith(_QUOTA):
            ids = [text_of(violation.get("quotaId")) for violation in items_of(detail.get("violations"))]
            names += ["quota_per_day"] if any("PerDay" in name for name in ids) else []
        elif kind.endswith(_INFO):
            names.append(text_of(detail.get("reason")))
    return names


def _delay(details: list[dict[str, JSON]]) -> int | None:
    """`retryDelay` in milliseconds, rounded up: decimal seconds with at most nine places, then `s`."""
    for detail in details:
        if text_of(detail.get("@type")).endswith(_RETRY_INFO):
            found = _DELAY.fullmatch(text_of(detail.get("retryDelay")))
            if found is not None:
                return -(-(int(found[1]) * 10**9 + int((found[2] or "").ljust(9, "0"))) // 10**6)
    return None
