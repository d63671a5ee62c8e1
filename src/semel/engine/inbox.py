"""What people and programs ask of a session that is being carried: taken one at a time, between two barriers of its run.

A request is a function of the state at that moment and of what is under way; it raises to refuse, and then nothing is written.
Whoever asks is answered behind the sync (R22, R26, P9). A caller that stops waiting takes nothing back.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from semel.core.effects import Decision, UnderWay
from semel.core.state import Session
from semel.engine.waiting import Bell
from semel.errors import InvariantBroken

Choose = Callable[[Session, UnderWay | None], Decision]
"""What to do about a request; `UnderWay` is None where nobody carries the run."""


class AtRest(InvariantBroken):
    """The run came to its rest before the request was taken: ask again, of the session at rest."""


class Asked:
    """One request, and whoever waits for it."""

    def __init__(self, choose: Choose) -> None:
        self.choose = choose
        self._answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def answer(self) -> None:
        """Say that it is durable."""
        if not self._answer.done():
            self._answer.set_result(None)

    def refuse(self, error: BaseException) -> None:
        """Say why it is not."""
        if not self._answer.done():
            self._answer.set_exception(error)
            self._answer.exception()  # where nobody waits any more, nobody is missing it

    async def answered(self) -> None:
        """Wait until it is durable; raises why it is not."""
        await asyncio.shield(self._answer)


class Inbox:
    """The requests that wait for their turn."""

    def __init__(self, bell: Bell) -> None:
        """The `bell` wakes the loop that takes them."""
        self._bell = bell
        self._waiting: deque[Asked] = deque()
        self._closed = False

    async def ask(self, choose: Choose) -> None:
        """Have a request taken; returns when it is durable. Raises what refused it, and AtRest where nobody takes it any more."""
        if self._closed:
            raise AtRest("the run came to its rest")
        asked = Asked(choose)
        self._waiting.append(asked)
        self.wake()
        await asked.answered()

    def wake(self) -> None:
        """Let the loop look around."""
        self._bell.ring()

    def take(self) -> Asked | None:
        """The next request; None if none waits."""
        return self._waiting.popleft() if self._waiting else None

    def close(self) -> None:
        """Take no more; those that still wait are told to ask again."""
        self._closed = True
        while self._waiting:
            self._waiting.popleft().refuse(AtRest("the run came to its rest"))
