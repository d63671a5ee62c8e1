"""What an exception says about the question "may the action have taken effect?" (design 14, F14).

An exception is peeled recursively: its causes, its contexts, the members of a group, the exceptions it carries. Libraries
are recognised by the module and name of the classes in the MRO, so that none of them has to be imported. Where a
library's own hierarchy mixes lost exchanges with refusals that were made before anything left, only the former count.
"""

import enum
import errno
from collections import deque
from collections.abc import Iterator

from semel.errors import CallNotSent, SemelError, ToolFailed


class LostReason(enum.StrEnum):
    """Why the outcome of a call is not known. For people; nothing is decided by it (R15)."""

    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"
    TIMEOUT = "timeout"
    CONNECTION_LOST = "connection_lost"
    SERVER_ERROR = "server_error"
    PROCESS_DIED = "process_died"
    NOT_KNOWN = "not_known"
    CRASHED = "crashed"


_NETWORK_ERRNOS = frozenset(
    getattr(errno, name) for name in ("ENETDOWN", "ENETUNREACH", "ENETRESET", "EHOSTDOWN", "EHOSTUNREACH") if hasattr(errno, name)
)

# Names that mean the same in every library. A timeout is known by the end of its name, the others by the whole of it, so
# that an application's own OrderCancelled stays what it is: a plain failure (F15).
_TIMEOUT_ENDINGS = ("Timeout", "TimeoutError", "TimeoutException", "TimeoutExpired", "TimedOut", "DeadlineExceeded")
_NAMES = {
    "CancelledError": LostReason.CANCELLED,
    "ConnectionError": LostReason.CONNECTION_LOST,
    "ConnectionClosed": LostReason.CONNECTION_LOST,
    "ConnectionClosedError": LostReason.CONNECTION_LOST,
    "ConnectionLost": LostReason.CONNECTION_LOST,
    "BrokenProcessPool": LostReason.PROCESS_DIED,
}

# Package -> its classes whose instances tell of a broken exchange. Subclasses count too.
_BROKEN_EXCHANGE: dict[str, frozenset[str]] = {
    "httpx": frozenset({"RequestError"}),
    "httpx2": frozenset({"RequestError"}),
    "httpcore": frozenset({"NetworkError", "ProtocolError", "ProxyError"}),
    "httpcore2": frozenset({"NetworkError", "ProtocolError", "ProxyError"}),
    "requests": frozenset({"ChunkedEncodingError", "ContentDecodingError", "RetryError", "TooManyRedirects"}),
    "urllib3": frozenset({"ProtocolError", "PoolError", "NewConnectionError", "SSLError", "ProxyError", "DecodeError"}),
    "urllib": frozenset({"ContentTooShortError"}),
    "aiohttp": frozenset({"ClientConnectionError", "ClientPayloadError", "TooManyRedirects", "HttpProcessingError"}),
    "http": frozenset({"HTTPException"}),
    "ssl": frozenset({"SSLError"}),
    "OpenSSL": frozenset({"Error"}),
    "asyncio": frozenset({"IncompleteReadError"}),
    "grpc": frozenset({"RpcError"}),
    "grpclib": frozenset({"GRPCError", "StreamTerminatedError"}),
    "psycopg": frozenset({"OperationalError"}),
    "psycopg2": frozenset({"OperationalError"}),
    "pymongo": frozenset({"ConnectionFailure"}),
}

# Of those, the ones that are raised before a request leaves, by (package, class).
_BEFORE_LEAVING = frozenset(
    {
        ("httpx", "UnsupportedProtocol"),
        ("httpx2", "UnsupportedProtocol"),
        ("http", "InvalidURL"),
        ("http", "ImproperConnectionState"),
    }
)

# gRPC answers with which the server refuses for certain; every other one may have followed the effect.
_GRPC_REFUSALS = frozenset(
    {
        "INVALID_ARGUMENT",
        "NOT_FOUND",
        "ALREADY_EXISTS",
        "PERMISSION_DENIED",
        "RESOURCE_EXHAUSTED",
        "FAILED_PRECONDITION",
        "OUT_OF_RANGE",
        "UNIMPLEMENTED",
        "UNAUTHENTICATED",
    }
)


def links(exc: BaseException) -> Iterator[BaseException]:
    """The exception and all that it was raised from, nearest first, each once.

    ToolFailed and CallNotSent, as the exception itself or as a member of its group, end the descent: the tool has judged
    what lies beneath. Only instance attributes are followed, so that no foreign code runs.
    """
    pending = deque([(exc, True)])
    seen: set[int] = set()
    while pending:
        link, outermost = pending.popleft()
        if id(link) in seen:
            continue
        seen.add(id(link))
        yield link
        if outermost and isinstance(link, (ToolFailed, CallNotSent)):
            continue
        if isinstance(link, BaseExceptionGroup):
            pending.extend((member, outermost) for member in link.exceptions)
        pending.extend((cause, False) for cause in _causes(link))


def _causes(exc: BaseException) -> Iterator[BaseException]:
    """What an exception was raised from or while, and the exceptions it carries (URLError.reason, RuntimeError(error))."""
    context = None if exc.__suppress_context__ else exc.__context__
    for cause in (exc.__cause__, context, getattr(exc, "__dict__", {}).get("reason"), *exc.args):
        if isinstance(cause, BaseException):
            yield cause


def uncertainty(exc: BaseException) -> LostReason | None:
    """Why this one exception leaves the outcome open, without regard to its causes; None if it does not."""
    if isinstance(exc, SemelError):
        return LostReason.NOT_KNOWN if exc.happened == "maybe" else None
    if isinstance(exc, TimeoutError):
        return LostReason.TIMEOUT
    if isinstance(exc, ConnectionError) or (isinstance(exc, OSError) and exc.errno in _NETWORK_ERRNOS):
        return LostReason.CONNECTION_LOST
    if isinstance(exc, (SystemExit, BaseExceptionGroup)):
        return None
    return _by_name(exc) or _by_status(exc) or _by_death(exc)


def _by_name(exc: BaseException) -> LostReason | None:
    kinds = [(kind.__module__.partition(".")[0], kind.__name__) for kind in type(exc).__mro__]
    if any(name.endswith(_TIMEOUT_ENDINGS) for _, name in kinds):
        return LostReason.TIMEOUT
    broken = any(name in _BROKEN_EXCHANGE.get(package, ()) for package, name in kinds)
    if broken and not _refused_for_certain(exc, kinds):
        return LostReason.CONNECTION_LOST
    return next((_NAMES[name] for _, name in kinds if name in _NAMES), None)


def _refused_for_certain(exc: BaseException, kinds: list[tuple[str, str]]) -> bool:
    """Whether an exception of a broken exchange is one that the other side, or the library itself, means as a plain no."""
    if not _BEFORE_LEAVING.isdisjoint(kinds):
        return True
    packages = {package for package, _ in kinds}
    if packages & {"grpc", "grpclib"}:
        return _grpc_status(exc) in _GRPC_REFUSALS
    if packages & {"psycopg", "psycopg2"}:  # a state other than "connection lost" or "server shut down" came from the server
        state = _read(exc, "sqlstate") or _read(exc, "pgcode")
        return isinstance(state, str) and not state.startswith(("08", "57P"))
    return False


def _by_status(exc: BaseException) -> LostReason | None:
    """HTTP 408 and 5xx: the server had the request and cannot say what became of it."""
    response = _read(exc, "response")
    carriers = [(response, ("status_code", "status")), (exc, ("status_code", "status", "code"))]
    codes = [_read(carrier, name) for carrier, names in carriers for name in names]
    if isinstance(response, dict):  # botocore
        metadata = response.get("ResponseMetadata")
        codes.append(metadata.get("HTTPStatusCode") if isinstance(metadata, dict) else None)
    lost = any(isinstance(code, int) and not isinstance(code, bool) and (code == 408 or 500 <= code <= 599) for code in codes)
    return LostReason.SERVER_ERROR if lost else None


def _by_death(exc: BaseException) -> LostReason | None:
    """A child that a signal ended, or an exception by which Python itself stops code rather than reports from it."""
    returncode = _read(exc, "returncode")
    if isinstance(returncode, int) and returncode < 0:
        return LostReason.PROCESS_DIED
    return None if isinstance(exc, Exception) else LostReason.INTERRUPTED


def _grpc_status(exc: BaseException) -> str | None:
    status = _read(exc, "status") or _read(exc, "code")
    if callable(status):
        try:
            status = status()
        except Exception:  # noqa: BLE001 - the accessor is foreign code; without an answer the outcome stays open
            return None
    name = _read(status, "name")
    return name if isinstance(name, str) else None


def _read(carrier: object, name: str) -> object:
    """An attribute of a foreign object, None if it has none or cannot give it."""
    try:
        return getattr(carrier, name, None)
    except Exception:  # noqa: BLE001 - a property of an exception may raise anything; the classifier may not
        return None
