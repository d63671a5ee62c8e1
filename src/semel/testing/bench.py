"""What the checks of the log's contract stand on: a bench, and the little that all of them do with it."""

from collections.abc import Awaitable, Callable
from typing import Literal, Protocol

from semel.core.ceiling import CEILING_BYTES
from semel.core.frame import encode_lineage
from semel.errors import InvariantBroken
from semel.ports.log import LogWriter, Payload, SessionStore

KNOWN = frozenset({"known/v1"})
SESSION = "box"
LINEAGE = Payload(json=encode_lineage("000102030405060708090a0b0c0d0e0f", SESSION), lineage=True)


class LogBench(Protocol):
    """A fresh medium for logs. Its stores know the features `KNOWN`."""

    def process(self, ceiling_bytes: int = CEILING_BYTES) -> SessionStore:
        """Start another process on the medium; its logs may become that long."""

    def end(self, store: SessionStore) -> None:
        """Let a process die at once, as SIGKILL does; the machine stays up."""

    def raw(self, session: str) -> bytes:
        """The bytes of a log, empty if there is none."""

    def plant(self, session: str, data: bytes) -> None:
        """Replace the bytes of a log, in place and behind the back of every process."""

    def steal(self, session: str) -> None:
        """Take the lease away from its holder, who is not told."""

    def fail_next(self, call: Literal["write", "sync"]) -> None:
        """Let the next write or sync of a log fail."""


LogCheck = Callable[[LogBench], Awaitable[None]]


def records(*texts: str, requires: tuple[str, ...] = ()) -> list[Payload]:
    """Payloads of plain records."""
    return [Payload(json=b'{"type":"note","text":"%b"}' % text.encode(), requires=requires) for text in texts]


async def started(store: SessionStore, *texts: str) -> LogWriter:
    """A writer of a new session that holds the lineage line and some records."""
    writer = await store.open(SESSION)
    await writer.append([LINEAGE, *records(*(texts or ("first",)))])
    return writer


async def refuses(error: type[Exception], act: Callable[[], Awaitable[object]]) -> None:
    """Hold `act` to raising `error`."""
    try:
        await act()
    except error:
        return
    raise InvariantBroken(f"{error.__name__} was expected")
