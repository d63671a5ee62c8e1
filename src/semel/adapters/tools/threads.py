"""Blocking code beside the event loop, in threads that cannot hold the process back."""

import asyncio
import contextvars
import threading
from collections.abc import Callable
from typing import TypeVar

from semel.adapters.tools.waits import undisturbed
from semel.errors import OutcomeUnknown
from semel.ports.roster import ROSTER
from semel.ports.tool import CANCEL_GRACE_SECONDS

T = TypeVar("T")
Came = tuple[T | None, BaseException | None]
"""What a function came to: what it returned, or what it raised."""


async def in_daemon_thread(function: Callable[[], T], *, name: str) -> T:
    """Call `function` in a thread of its own, with a copy of the caller's context variables.

    The thread is a daemon: cancelling the wait abandons it, and a function that never ends does not keep the process from
    exiting. What an abandoned function returns or raises is dropped. A KeyboardInterrupt cannot come from a terminal
    there, so it is the function's own and becomes OutcomeUnknown; raised in a task it would tear down the loop.
    """
    return _given(*await _start(function, name))


async def in_thread_of_call(function: Callable[[], T], *, name: str, call: str) -> T:
    """As `in_daemon_thread`, for the function that serves the call of this key, which is told of a cancel by the call itself.

    So a cancel waits for the function, up to the grace, and what comes of that is the outcome. The function is abandoned behind
    the grace, and when the event loop ends.
    """
    ended = _start(function, name, call)
    try:
        await asyncio.wait({ended})
    except asyncio.CancelledError:
        await undisturbed(asyncio.wait({ended}, timeout=CANCEL_GRACE_SECONDS))
        if not ended.done():
            raise
    return _given(*ended.result())


def _start(function: Callable[[], T], name: str, call: str = "") -> "asyncio.Future[Came[T]]":
    """Start a thread, which is on the roster until it ends; what comes back is what it came to."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[Came[T]] = loop.create_future()

    def report(result: T | None, error: BaseException | None) -> None:
        if not ended.done():
            ended.set_result((result, error))

    entry = ROSTER.enter("thread", name, call=call)

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

    try:
        threading.Thread(target=work, args=(contextvars.copy_context(),), name=name, daemon=True).start()
    except RuntimeError:  # there are too many threads
        ROSTER.strike_off(entry)
        raise
    return ended


def _given(result: T | None, error: BaseException | None) -> T:
    if isinstance(error, KeyboardInterrupt):
        raise OutcomeUnknown("it raised KeyboardInterrupt") from error
    if error is not None:
        raise error
    return result  # type: ignore[return-value]  # without an error it is what the function returned
