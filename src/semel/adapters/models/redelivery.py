"""Asking again for what changes nothing, within one bounded budget: counting tokens, which no record keeps (X13, X15 to X17).

A model's answer is asked for again by the engine, which records it; here is only what happens beside the log. Headers that
refuse and bodies that break draw on the same budget, a server's word on when to try again is never shortened, and one that is
longer than the wait budget ends the attempt at once.
"""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from semel.adapters.models.deadline import Custody, TimerDenied, pause
from semel.ports.model import ModelFailed
from semel.ports.world import Clock

T = TypeVar("T")
RETRIES = 2
WAIT_MS_MOST = 20_000
FIRST_WAIT_MS = 500


async def redelivered(ask: Callable[[], Awaitable[T]], *, clock: Clock, custody: Custody) -> T:
    """What `ask` comes to. Raises the last ModelFailed once the budget is used, or where no timer may be made."""
    used = 0
    while True:
        try:
            return await ask()
        except ModelFailed as failure:
            wait_ms = max(FIRST_WAIT_MS << used, failure.retry_after_ms or 0)
            if not failure.retryable or used >= RETRIES or wait_ms > WAIT_MS_MOST:
                raise
            used += 1
            try:
                await pause(clock, wait_ms / 1000, custody)
            except TimerDenied:
                raise failure from None
