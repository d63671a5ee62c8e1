"""What a broken connection and an HTTP status mean, in the words of the port (X12, X14; wire 0.6)."""

import ssl
from collections.abc import Callable, Iterator

from semel.core.values import printable
from semel.ports.model import Exchange, FailureClass, ModelFailed

_BY_STATUS = {
    401: FailureClass.AUTH,
    402: FailureClass.QUOTA_EXHAUSTED,
    403: FailureClass.PERMISSION,
    408: FailureClass.TIMEOUT,
    409: FailureClass.SERVER_ERROR,  # a conflict that passes: every vendor's own client tries it again
    413: FailureClass.REQUEST_TOO_LARGE,
    424: FailureClass.SERVER_ERROR,  # what the gateway depends on failed
    425: FailureClass.OVERLOADED,
    429: FailureClass.RATE_LIMIT,
    503: FailureClass.OVERLOADED,
    504: FailureClass.TIMEOUT,
    524: FailureClass.TIMEOUT,
    529: FailureClass.OVERLOADED,
}


def class_of_status(status: int) -> FailureClass:
    """The class of an HTTP status of 300 or more, where nothing in the body says more."""
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    return FailureClass.SERVER_ERROR if status >= 500 else FailureClass.INVALID_REQUEST


def failure_of(error: Exception, *, where: str, exchange: Exchange, redact: Callable[[str], str]) -> ModelFailed:
    """What a transport exception means. Its cause stays in the text (X18); the exception, which holds headers, does not.

    A cause may quote the line that a server broke the protocol with, so `redact` takes the key out of it.
    """
    import httpx2

    failure, retryable = FailureClass.INTERRUPTED, None
    if any(isinstance(cause, ssl.SSLError) for cause in _causes(error)):
        failure, retryable = FailureClass.UNREACHABLE, False  # trying again does not make a certificate good (X14)
    elif isinstance(error, (httpx2.ConnectError, httpx2.ConnectTimeout)):
        failure = FailureClass.UNREACHABLE
    elif isinstance(error, (httpx2.LocalProtocolError, httpx2.UnsupportedProtocol, httpx2.InvalidURL)):
        failure = FailureClass.INVALID_REQUEST
    elif not isinstance(error, (httpx2.TransportError, OSError)):
        raise error
    what = {
        FailureClass.UNREACHABLE: "no connection; check the address and that the server runs",
        FailureClass.INVALID_REQUEST: "the request could not be sent",
        FailureClass.INTERRUPTED: "the connection broke before the answer was complete",
    }[failure]
    named = {str(cause): f"{type(cause).__name__}: {cause}" for cause in reversed(list(_causes(error)))}
    causes = redact("; ".join(reversed(named.values())))
    return ModelFailed(failure, f"{where}: {what} ({printable(causes, limit=300)})", exchange=exchange, retryable=retryable)


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        yield cause
        cause = cause.__cause__ or cause.__context__
