"""What this process has under way outside of its own tasks: threads, children, connections. Whoever starts one enters it here.

ROSTER-1  A thing is entered before it can do anything, and struck off when it has ended; a thing that cannot be ended stays.
ROSTER-2  What is entered is counted only: nothing here ends anything, and nothing waits.
ROSTER-3  What can still act for a call is entered with the call's key: for as long as it is, the call may yet take effect (P3).
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

Kind = Literal["thread", "process", "connection", "timer", "task"]
"""A task is entered when it has not ended though it was told to."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A thing that is under way. `call` is the key of the call that it works for, empty for none."""

    kind: Kind
    name: str
    call: str
    lives: Callable[[], bool]


class Roster:
    """The names of what is under way, by kind, and which call it works for."""

    def __init__(self) -> None:
        self._held: dict[int, Entry] = {}
        self._next = 0

    def enter(self, kind: Kind, name: str, *, call: str = "", lives: Callable[[], bool] = lambda: True) -> int:
        """Enter a thing; what comes back strikes it off. `lives` says whether it can act, where that may end unseen."""
        self._next += 1
        self._held[self._next] = Entry(kind=kind, name=name, call=call, lives=lives)
        return self._next

    def strike_off(self, entry: int) -> None:
        """It has ended; a second time changes nothing. Safe from any thread."""
        self._held.pop(entry, None)

    @contextmanager
    def holding(self, kind: Kind, name: str) -> Iterator[None]:
        """Enter a thing for as long as the block lasts."""
        entry = self.enter(kind, name)
        try:
            yield
        finally:
            self.strike_off(entry)

    def names(self, kind: Kind) -> tuple[str, ...]:
        """What of this kind is under way, in the order in which it began."""
        of_kind = [(number, entry) for number, entry in list(self._held.items()) if entry.kind == kind]
        for number, entry in of_kind:
            if not entry.lives():
                self.strike_off(number)
        return tuple(entry.name for number, entry in of_kind if number in self._held)

    def works_for(self, call: str) -> frozenset[Kind]:
        """What kinds of things can still act for a call, as far as this process knows."""
        return frozenset(entry.kind for entry in list(self._held.values()) if entry.call == call and entry.lives())


ROSTER = Roster()
"""That of this process."""
