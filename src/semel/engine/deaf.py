"""What was told to end and has not. Nothing waits for it, and it is named for as long as it goes on."""

import asyncio
import weakref
from typing import Any

from semel.ports.roster import ROSTER


def abandon(task: "asyncio.Task[Any]", name: str) -> None:
    """Wait for a task no longer; what it still brings is dropped. One whose event loop is gone has ended with it."""
    if task.done():
        return
    entry = ROSTER.enter("task", name)
    weakref.finalize(task, ROSTER.strike_off, entry)

    def ended(task: "asyncio.Task[Any]") -> None:
        ROSTER.strike_off(entry)
        if not task.cancelled():
            task.exception()  # is nobody's any more

    task.add_done_callback(ended)
