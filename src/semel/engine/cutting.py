"""Why and how the calls of a run are cut short from outside: its time is up, it was cancelled, its process is stopping."""

import asyncio
import enum


class Cut(enum.Enum):
    """Why the calls of a run are cut short from outside."""

    LEAVING = "the process is stopping"
    TIME_UP = "the run's time is up"
    CANCELLED = "the run was cancelled"


class CutSignal:
    """Why the calls under way are cut short, if they are.

    Whoever asks the outside what became of a call waits for `leaving`, too: then a resume asks. A run that is to end in this
    process waits for the answer, since nobody would ask again.
    """

    def __init__(self) -> None:
        self.reason: Cut | None = None
        self.leaving: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def set(self, reason: Cut) -> None:
        """Cut what is under way. Once the process leaves, that stays the reason: what is not known is left for a resume."""
        if self.reason is not Cut.LEAVING:
            self.reason = reason
        if self.reason is Cut.LEAVING and not self.leaving.done():
            self.leaving.set_result(None)
