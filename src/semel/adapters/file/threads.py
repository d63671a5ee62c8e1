"""Blocking work in a thread, whose end is always awaited: a cancelled caller may not leave a sync running unseen."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def settled(work: Callable[[], T], undo: Callable[[T], None] | None = None) -> T:
    """Run `work` in a thread and return what it returns.

    If the caller is cancelled meanwhile, `work` still runs to its end; then `undo` gets its result, and the cancellation
    goes on.
    """
    task = asyncio.ensure_future(asyncio.to_thread(work))
    cancellation: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            cancellation = error
        except GeneratorExit:
            raise  # the event loop is gone, and with it whoever waits
        except BaseException:  # noqa: BLE001  the task keeps it, and result() below raises it
            break
    if cancellation is None:
        return task.result()
    if task.exception() is None and undo is not None:
        undo(task.result())
    raise cancellation
