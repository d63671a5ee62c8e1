"""How a process that holds sessions is asked for something by other processes of its machine (design 3, docs/socket.md).

Control contract
  CONTROL-1  `contact` tells the truth of the lease: None means that nobody holds the session. What it names besides is a hint.
  CONTROL-2  `ask` and `stream` raise NotReached where nobody answers at that address, where whoever does is another user's or
             does not hold the session under the fence and lineage of the request, and where the answer breaks off. Behind that
             a request may have been carried out or not: the caller looks at the lease again, and asks again with the same key.
           One that says Leaving carried out nothing.
  CONTROL-3  An answer stands for what is durable; the error of a refusal is raised with the class, code and exit that it had.
  CONTROL-4  `serve` keeps no session waiting: a client that is slow, dead or hostile costs its own connection only.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, Protocol

from msgspec import field

from semel.core.values import JSON, Frozen

PROTOCOL = 1
"""The version of the protocol that this build speaks."""


class NotReached(Exception):
    """Nobody who holds the session answered; the lease alone says what follows from that."""


class Leaving(NotReached):
    """Whoever holds the session answered that it is stopping: it gives the session back when its calls have come back."""


class Contact(Frozen, frozen=True, kw_only=True):
    """Who holds a session: in words, under which fence, of which lineage, and where it answers; None where that is not known."""

    owner: str
    fence: int | None
    lineage: str | None
    address: str | None


class Request(Frozen, frozen=True, kw_only=True):
    """One request. `fence` and `lineage` say which tenure of which log is meant, so that nobody answers for another one."""

    v: int
    id: str
    verb: str
    session: str
    fence: int
    lineage: str
    args: dict[str, JSON] = field(default_factory=dict)


Item = dict[str, Any]
Handler = Callable[[Request], Awaitable[Item | AsyncGenerator[Item, None]]]
"""Carries out a request: an object is its answer, items are a stream that ends by itself. Raises NotReached for a session that
this process does not hold so, and SemelError for a refusal."""


class Leases(Protocol):
    """What a store knows of the holders of its sessions."""

    def contact(self, session: str) -> Contact | None:
        """Who holds the lease now; None if nobody does. Raises what a look at a lease raises."""

    def answer_at(self, address: str | None) -> None:
        """The address that the leases taken from now on name."""


class Served(Protocol):
    """A process that answers."""

    @property
    def address(self) -> str:
        """Where."""

    async def close(self) -> None:
        """Answer nobody any more; what was asked and is under way is cut off. Idempotent."""


class Control(Protocol):
    """Answering and asking, on one machine."""

    def contact(self, session: str) -> Contact | None:
        """See `Leases.contact`."""

    async def serve(self, handle: Handler) -> Served:
        """Answer with `handle`, at an address that leases name from now on. Raises StoreError where there is no safe place."""

    async def ask(self, contact: Contact, session: str, verb: str, args: Item) -> Item:
        """The answer of whoever holds the session. Raises NotReached, and the error that it was refused with."""

    def stream(self, contact: Contact, session: str, verb: str, args: Item) -> AsyncGenerator[Item, None]:
        """The items of a stream, to its end. Raises as `ask` does, also in the middle."""
