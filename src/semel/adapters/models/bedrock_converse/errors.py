"""Errors of Bedrock: named exceptions, as an HTTP status with a header or as a frame within the stream (wire 5)."""

import re
from collections.abc import Mapping

from semel.adapters.models.json_text import member, parse, text_of
from semel.adapters.models.server_error import ErrorTable, ServerError, told, unread
from semel.core.values import JSON
from semel.ports.model import FailureClass

_CONTEXT = re.compile(r"input is too long|prompt is too long|context (length|window)", re.IGNORECASE)
_OPAQUE = re.compile(
    r"`?thinking`? or `?redacted_thinking`?|Invalid `?(signature|data)`? in|bound to a different conversation"
    r"|signature.*(reasoning|thinking)|(reasoning|thinking).*signature",
    re.IGNORECASE,
)

CONVERSE_ERRORS = ErrorTable(
    codes={
        "ThrottlingException": FailureClass.RATE_LIMIT,
        "ModelNotReadyException": FailureClass.OVERLOADED,
        "ServiceUnavailableException": FailureClass.OVERLOADED,
        "InternalServerException": FailureClass.SERVER_ERROR,
        "ModelTimeoutException": FailureClass.TIMEOUT,
        "AccessDeniedException": FailureClass.PERMISSION,
        "ResourceNotFoundException": FailureClass.INVALID_REQUEST,
        "UnrecognizedClientException": FailureClass.AUTH,
        "ExpiredTokenException": FailureClass.AUTH,
        "InvalidSignatureException": FailureClass.AUTH,
        "IncompleteSignatureException": FailureClass.AUTH,
        "MissingAuthenticationTokenException": FailureClass.AUTH,
        "ServiceQuotaExceededException": FailureClass.QUOTA_EXHAUSTED,
    },
    texts=((_CONTEXT, FailureClass.CONTEXT_EXCEEDED), (_OPAQUE, FailureClass.OPAQUE_STATE_REJECTED)),
    weak={"ValidationException": FailureClass.INVALID_REQUEST},
)


def exception(name: str, payload: JSON) -> ServerError:
    """The error of an exception. In a stream its name starts with a small letter, over HTTP with a capital one.

    A model that failed brings the status that Bedrock itself got from it, which says more than 424 does.
    """
    original = member(payload, "originalStatusCode")
    words = " ".join(filter(None, (told(payload), text_of(member(payload, "originalMessage")))))
    return ServerError(
        message=words,
        codes=(name[:1].upper() + name[1:] if name.endswith("Exception") else name,) if name else (),
        status=original if isinstance(original, int) and 400 <= original < 600 else None,
    )


def refusal(_status: int, headers: Mapping[str, str], body: bytes) -> ServerError:
    """The error of a refusal: its name is in a header, which may carry a URL behind it, its words are in the body."""
    value = parse(body)
    name = headers.get("x-amzn-errortype", "").partition(":")[0].strip() or text_of(member(value, "__type")).rpartition("#")[2]
    if not isinstance(value, dict):
        return ServerError(message=unread(body).message, codes=(name,) if name else ())
    return exception(name, value)
