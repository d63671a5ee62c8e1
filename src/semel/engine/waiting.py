"""Waiting that a cancellation cannot leave half done."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")


async def to_its_end(work: Awaitable[T]) -> T:
    """Wait for the work to its end, also when the waiting itself is cancelled; then let the cancellation through."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            if task.cancelled():
                raise
            cancelled = error
        except Exception:  # noqa: BLE001  the task holds it; it is raised below
            break
    if cancelled is not None:
        task.exception()  # seen, so that it is not reported as forgotten
        raise cancelled
    return task.result()
