"""Waiting that a cancellation cannot leave half done, and waiting for any of several things."""

import asyncio
import types
from collections.abc import Coroutine, Generator
from typing import Any, TypeVar

T = TypeVar("T")


async def to_its_end(work: "Coroutine[Any, Any, T] | asyncio.Future[T]", *, at_once: bool = False) -> T:
    """Wait for the work to its end, also when the waiting itself is cancelled; then let the cancellation through.

    With `at_once` it begins here and now, and only where it has to wait for something does a task of its own go on with it: what
    never waits cannot be cancelled on its way. That is for work which does not ask what task it runs in.
    """
    if at_once and not isinstance(work, asyncio.Future):
        try:
            awaited = work.send(None)
        except StopIteration as end:
            result: T = end.value
            return result
        work = _resumed(work, awaited)
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


class Bell:
    """Wakes the one task that waits until any of several things has happened. Whoever lets one happen rings it."""

    def __init__(self) -> None:
        """It has not rung yet."""
        self._rung = False
        self._waiter: asyncio.Future[None] | None = None

    def ring(self, _done: object = None) -> None:
        """Wake the task that waits, now or when it comes to wait; also what a future can call when it is done."""
        self._rung = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def wait(self) -> None:
        """Wait for it to ring. The loop goes round once also where it has rung already, so that what has just started begins."""
        self._waiter = asyncio.get_running_loop().create_future()
        if self._rung:
            self._waiter.set_result(None)
        try:
            await self._waiter
        finally:
            self._waiter = None
        self._rung = False


async def _resumed(work: Coroutine[Any, Any, T], awaited: object) -> T:
    return await _go_on(work, awaited)


@types.coroutine
def _go_on(work: Coroutine[Any, Any, T], awaited: object) -> Generator[Any, Any, T]:
    """Hand on what a coroutine that has begun elsewhere waits for, and what comes back, to its end."""
    while True:
        try:
            try:
                sent = yield awaited
            except BaseException as error:  # noqa: BLE001  it belongs to the work, whatever it is
                awaited = work.throw(error)
            else:
                awaited = work.send(sent)
        except StopIteration as end:
            result: T = end.value
            return result
