"""Waits around child processes: bounded ones, and one that no cancel cuts short."""

import asyncio
import contextlib
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

from semel.ports.world import Clock

T = TypeVar("T")


async def within(seconds: float, futures: "Iterable[asyncio.Future[Any]]", clock: Clock) -> None:
    """Wait for all of the futures, but no longer than `seconds`."""
    timer = asyncio.ensure_future(clock.sleep(seconds))
    try:
        while not timer.done() and (open_futures := [future for future in futures if not future.done()]):
            await asyncio.wait([timer, *open_futures], return_when=asyncio.FIRST_COMPLETED)
    finally:
        timer.cancel()


async def undisturbed(work: Coroutine[None, None, T]) -> T:
    """Await bounded work to its end, however often the caller is cancelled meanwhile."""
    task = asyncio.ensure_future(work)
    while not task.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.shield(task)
    return task.result()
