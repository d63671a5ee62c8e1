"""Waiting that a cancellation cannot leave half done, and waiting for the first of several."""

import asyncio
import types
from collections.abc import Coroutine, Generator, Sequence
from typing import Any, TypeVar

T = TypeVar("T")


async def to_its_end(work: Coroutine[Any, Any, T], *, at_once: bool = False) -> T:
    """Wait for the work to its end, also when the waiting itself is cancelled; then let the cancellation through.

    With `at_once` it begins here and now, and only where it has to wait for something does a task of its own go on with it: what
    never waits cannot be cancelled on its way. That is for work which does not ask what task it runs in.
    """
    if at_once:
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


async def first_of(futures: "Sequence[asyncio.Future[Any]]") -> None:
    """Wait until one of them is done; none is cancelled. It is asyncio.wait for the case that every turn waits in.

    As there, the loop goes round once also where one is done already, so that what has just been started begins.
    """
    waiter = asyncio.get_running_loop().create_future()

    def wake(_done: "asyncio.Future[Any]") -> None:
        if not waiter.done():
            waiter.set_result(None)

    for future in futures:
        future.add_done_callback(wake)
    try:
        await waiter
    finally:
        for future in futures:
            future.remove_done_callback(wake)


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
