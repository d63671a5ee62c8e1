"""Blocking code beside the event loop, in threads that cannot hold the process back."""

import asyncio
import contextvars
import threading
from collections.abc import Callable
from typing import TypeVar

from semel.errors import OutcomeUnknown
from semel.ports.roster import ROSTER

T = TypeVar("T")


async def in_daemon_thread(function: Callable[[], T], *, name: str) -> T:
    """Call `function` in a thread of its own, with a copy of the caller's context variables.

    The thread is a daemon: cancelling the wait abandons it, and a function that never ends does not keep the process from
    exiting. What an abandoned function returns or raises is dropped. A KeyboardInterrupt cannot come from a terminal
    there, so it is the function's own and becomes OutcomeUnknown; raised in a task it would tear down the loop.
    """
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[tuple[T | None, BaseException | None]] = loop.create_future()

    def report(result: T | None, error: BaseException | None) -> None:
        if not ended.done():
            ended.set_result((result, error))

    entry = ROSTER.enter("thread", name)

    def work(context: contextvars.Context) -> None:
        try:
            result, error = context.run(function), None
        except BaseException as raised:  # noqa: BLE001 - carried over to the caller, whatever it is
            result, error = None, raised
        ROSTER.strike_off(entry)
        try:
            loop.call_soon_threadsafe(report, result, error)
        except RuntimeError:
            return  # the loop was closed meanwhile, nobody waits

    threading.Thread(target=work, args=(contextvars.copy_context(),), name=name, daemon=True).start()
    result, error = await ended
    if isinstance(error, KeyboardInterrupt):
        raise OutcomeUnknown("it raised KeyboardInterrupt") from error
    if error is not None:
        raise error
    return result  # type: ignore[return-value]  # without an error it is what the function returned
