"""What was told to end and has not. Nothing waits for it, and it is named for as long as it goes on."""

import asyncio
from typing import Any

from semel.ports.roster import ROSTER


def abandon(task: "asyncio.Task[Any]", name: str, *, call: str = "") -> None:
    """Wait for a task no longer; what it still brings is dropped. One whose event loop is gone has ended with it.

    `call` is the key of the call for which it works, if it does. Where that has a thread, it is the thread that is deaf, and it
    is named already: the task only waits for it.
    """
    if task.done():
        return
    entry: int | None = None
    if not (call and "thread" in ROSTER.works_for(call)):
        entry = ROSTER.enter("task", name, call=call)
        ROSTER.leave(entry, lambda: not (task.done() or task.get_loop().is_closed()))

    def ended(task: "asyncio.Task[Any]") -> None:
        if entry is not None:
            ROSTER.strike_off(entry)
        if not task.cancelled():
            task.exception()  # is nobody's any more

    task.add_done_callback(ended)
