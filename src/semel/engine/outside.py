"""What takes its time is done outside the door of a session: a hook that thinks, a server of tools that starts.

Whoever is within and finds something missing leaves by NotReady. Whoever let him in has it made and lets him in again; he decides
anew then, for the session may have changed meanwhile.
"""

import asyncio
import weakref
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from semel.errors import InvariantBroken

NameT = TypeVar("NameT", bound=Hashable)
MadeT = TypeVar("MadeT")


class NotReady(InvariantBroken):
    """Raised within the door of a session, before anything was done: `work` has to be done outside first."""

    def __init__(self, work: Callable[[], Awaitable[None]]) -> None:
        """`work` keeps what it made where it is looked for the next time."""
        super().__init__("something has to be made outside the door of the session first")
        self.work = work


class Prepared(Generic[MadeT]):
    """One thing, under a name, that is made outside the door when it is missed; a thing of another name takes its place."""

    def __init__(self) -> None:
        """It is not made yet."""
        self._name: Hashable = None
        self._made: MadeT | None = None

    async def take(self, name: Hashable, make: Callable[[], Awaitable[MadeT]], *, slow: bool) -> MadeT:
        """What was made under this name, once; what is not `slow` to make is made here. Raises NotReady where it was not made."""
        if not slow:
            return await make()
        made, self._made = self._made, None
        if made is not None and self._name == name:
            return made

        async def work() -> None:
            self._made, self._name = await make(), name

        raise NotReady(work)


class Doors(Generic[NameT]):
    """A door for each name, through which one goes at a time. A door that nobody stands at is forgotten."""

    def __init__(self) -> None:
        """Nobody stands anywhere."""
        self._locks: weakref.WeakValueDictionary[NameT, asyncio.Lock] = weakref.WeakValueDictionary()

    def __len__(self) -> int:
        """How many somebody stands at."""
        return len(self._locks)

    def of(self, name: NameT) -> asyncio.Lock:
        """The door of this name."""
        door = self._locks.get(name)
        if door is None:
            door = self._locks[name] = asyncio.Lock()
        return door

    def all(self) -> list[asyncio.Lock]:
        """Those that somebody stands at."""
        return list(self._locks.values())
