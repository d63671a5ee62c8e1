"""A coroutine in an event loop of its own, which ends in bounded time, whatever is deaf in it (H6)."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from semel.engine.diary import StopOutcome

T = TypeVar("T")
ENDING_SECONDS_MOST = 3.0
"""How long what is still under way may take to end, once the coroutine has; what it awaited had its time before."""


def run_in_own_loop(whole: Coroutine[Any, Any, T]) -> T:
    """As `asyncio.run` does, but a task that ignores its cancellation is left behind, where that would wait for ever."""
    runner = asyncio.Runner()
    try:
        return runner.run(whole)
    finally:
        if runner.run(_ended()):
            runner.close()
        else:
            loop = runner.get_loop()
            loop.set_exception_handler(lambda *_: None)  # that they are pending is known, and their tools are named
            asyncio.set_event_loop(None)
            loop.close()


def deaf_line(outcome: StopOutcome | None) -> str | None:
    """What is said of a runtime that was left while something in it was deaf."""
    if outcome is None or not outcome.deaf:
        return None
    return f"did not end when told to, and is not waited for: {', '.join(outcome.deaf)}"


async def _ended() -> bool:
    """Cancel all that is still under way; whether it has ended."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    if others:
        await asyncio.wait(others, timeout=ENDING_SECONDS_MOST)
    return asyncio.all_tasks() == {asyncio.current_task()}
