"""What this process has under way outside of its own tasks: threads, children, connections. Whoever starts one enters it here.

ROSTER-1  A thing is entered before it can do anything, and struck off when it has ended; a thing that cannot be ended stays.
ROSTER-2  What is entered is counted only: nothing here ends anything, and nothing waits.
ROSTER-3  A thing that goes on when nobody waits for it any more is looked at whenever it is asked about, until it has ended.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

Kind = Literal["thread", "process", "connection", "timer", "task"]
"""A task is entered when it has not ended though it was told to."""


class Roster:
    """The names of what is under way, by kind."""

    def __init__(self) -> None:
        self._held: dict[int, tuple[Kind, str]] = {}
        self._unattended: dict[int, Callable[[], bool]] = {}
        self._next = 0

    def enter(self, kind: Kind, name: str) -> int:
        """Enter a thing; what comes back strikes it off."""
        self._next += 1
        self._held[self._next] = (kind, name)
        return self._next

    def strike_off(self, entry: int) -> None:
        """It has ended; a second time changes nothing. Safe from any thread."""
        self._held.pop(entry, None)
        self._unattended.pop(entry, None)

    def leave(self, entry: int, goes_on: Callable[[], bool]) -> None:
        """Nobody will strike it off any more: it is named for as long as `goes_on` says so, if it does at all."""
        self._unattended[entry] = goes_on
        self._look_at(entry)

    def _look_at(self, entry: int) -> None:
        goes_on = self._unattended.get(entry)
        if goes_on is not None and not goes_on():
            self.strike_off(entry)

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
        for entry in [entry for entry, (found, _) in list(self._held.items()) if found == kind]:
            self._look_at(entry)
        return tuple(name for found, name in list(self._held.values()) if found == kind)


ROSTER = Roster()
"""That of this process."""
