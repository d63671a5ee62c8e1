"""Errors as OpenAI and the many compatible servers tell them; chat completions and responses share them (wire 2, wire 3, B30)."""

import json
import re

from semel.adapters.models.json_text import items_of, member, parse, text_of
from semel.adapters.models.server_error import ErrorTable, ServerError, told, unread
from semel.core.values import JSON
from semel.ports.model import FailureClass

_CONTEXT = re.compile(
    r"context length|context window|exceeds? the available context|token length too long|prompt is too long"
    r"|maximum prompt length is",  # xAI: reported in cline/cline#3120
    re.IGNORECASE,
)
_SPENT = re.compile(r"^Key limit exceeded", re.IGNORECASE)  # a 403 of OpenRouter (FACT34): reported in RooCodeInc/Roo-Code#515
_FILTERED = re.compile(r"^Content Exists Risk", re.IGNORECASE)  # a 400 of DeepSeek: reported in deepseek-ai/DeepSeek-V2#30
_OPAQUE = re.compile(
    r"`?reasoning_content`? (in the thinking mode must be passed back|is missing in assistant tool call)"
    r"|encrypted[ _]content .*(could not be|was not issued)"
    r"|provided without its required|Items are not persisted when"
    r"|Invalid `?signature`? in `?thinking`?|missing a thought_signature|(invalid|corrupted) thought[_ ]signature",
    re.IGNORECASE,
)
_AGAIN = re.compile(r"try again in (\d{1,9}(?:\.\d{1,9})?) ?(ms|s|seconds)\b", re.IGNORECASE | re.ASCII)

OPENAI_ERRORS = ErrorTable(
    codes={
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
        "invalid_prompt": FailureClass.CONTENT_FILTER,
        "bio_policy": FailureClass.CONTENT_FILTER,
        "misalignment_policy_violation": FailureClass.CONTENT_FILTER,
        "image_content_policy_violation": FailureClass.CONTENT_FILTER,
        "data_residency_mismatch": FailureClass.PERMISSION,
        "invalid_encrypted_content": FailureClass.OPAQUE_STATE_REJECTED,
        "invalid_api_key": FailureClass.AUTH,
        "authentication_error": FailureClass.AUTH,
        "invalid_authentication_error": FailureClass.AUTH,
        "permission_error": FailureClass.PERMISSION,
        "model_not_found": FailureClass.INVALID_REQUEST,
        "string_above_max_length": FailureClass.INVALID_REQUEST,
        "timeout_error": FailureClass.TIMEOUT,
    },
    texts=(
        (_CONTEXT, FailureClass.CONTEXT_EXCEEDED),
        (_OPAQUE, FailureClass.OPAQUE_STATE_REJECTED),
        (_SPENT, FailureClass.QUOTA_EXHAUSTED),
        (_FILTERED, FailureClass.CONTENT_FILTER),
    ),
    weak={"invalid_request_error": FailureClass.INVALID_REQUEST},
)


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
    return error_object(error) if isinstance(error, dict) else ServerError(message=str(error))


def error_object(error: dict[str, JSON]) -> ServerError:
    """An error object, whose code may be a word, a number, a number as text, or absent."""
    named = (error.get("code"), error.get("type"), member(error, "metadata", "error_type"))
    numbers = [int(code) for code in named if isinstance(code, (int, str)) and str(code).isascii() and str(code).isdigit()]
    resets = error.get("resets_at")
    metadata = error.get("metadata")
    return ServerError(
        message=_told_upstream(error),
        codes=tuple(code for code in named if isinstance(code, str) and code),
        status=next((number for number in numbers if 400 <= number < 600), None),
        retry_after_ms=_again(text_of(error.get("message"))),
        resets_at_ms=int(resets * 1000) if isinstance(resets, (int, float)) and 0 < resets < 2**40 else None,
        moderated="flagged_input" in (metadata if isinstance(metadata, dict) else ()) or "misalignment" in error,
        details=tuple(items_of(error.get("details"))),
    )


def _told_upstream(error: dict[str, JSON]) -> str:
    """The message; a gateway that only says that its provider failed has the provider's own words beside it (wire 2)."""
    upstream = text_of(member(error, "metadata", "raw")).strip()
    return f"{told(error)}: {upstream}" if upstream else told(error)


def refusal(_status: int, _headers: object, body: bytes) -> ServerError:
    """The error that the body of a refusal tells, or its first words where it is not JSON."""
    return read_error(parse(body)) or unread(body)


def _again(message: str) -> int | None:
    """The wait that some messages name in words, rounded up; the last resort where no header says it."""
    found = _AGAIN.search(message)
    if found is None:
        return None
    whole, _, part = found[1].partition(".")
    nanoseconds = int(whole) * 10**9 + int(part.ljust(9, "0") or "0")
    return -(-nanoseconds // (10**9 if found[2].lower() == "ms" else 10**6))
