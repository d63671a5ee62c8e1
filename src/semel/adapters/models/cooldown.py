"""One cooldown per key and host in this process, so that many runs do not storm an account that was just refused.

A refusal for being too fast stops all sends with that key until the server's own moment; then one request goes first, and each
that the server takes, as the headers of its answer say, lets two more go. Whoever waits here sends nothing, uses none of its
redeliveries, can be cancelled at once, and waits no longer than it said.
"""

import asyncio
import math
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from semel.adapters.models.deadline import Custody, timer
from semel.adapters.system import SystemClock
from semel.ports.model import FailureClass, ModelFailed
from semel.ports.world import Clock

FIRST_SECONDS, MOST_SECONDS = 1.0, 30.0  # where a server does not say how long
RECOVERED_WINDOW = 32


@dataclass
class Cooldown:
    """The state of one key at one host. Shared by threads, each with a loop of its own, so it is guarded by a lock."""

    until: float | None = None  # seconds of Clock.monotonic; None while nothing is limited
    window: int = 1  # how many requests may be on their way while it recovers
    out: int = 0
    refusals: int = 0
    waiting: list[Callable[[], None]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    async def admitted(self, clock: Clock, *, where: str, most_ms: int | None) -> bool:
        """Wait until a request may leave; True if it is one of those that try whether the account is free again.

        Raises ModelFailed, which names the wait that is left, as soon as the whole of it is known to be longer than `most_ms`:
        then it is for the engine to make the wait durable, or to end the run.
        """
        latest = math.inf if most_ms is None else clock.monotonic() + most_ms / 1000
        while True:
            woken = asyncio.Event()
            with self.lock:
                now = clock.monotonic()
                if self.until is None:
                    return False
                if now >= self.until and self.out < self.window:
                    self.out += 1
                    return True
                left = max(0.0, self.until - now)
                wake = _waker(woken)
                self.waiting.append(wake)
            try:
                if now + left > latest:
                    raise _limited(where, left)
                await _rung(clock, left or latest - now, woken)
            finally:
                with self.lock:
                    if wake in self.waiting:
                        self.waiting.remove(wake)

    def refused(self, now: float, hint_ms: int | None, *, tried: bool) -> None:
        """The server said: too fast. A hint is never shortened (X16), whichever of several refusals brought it.

        The request has still to be counted out by `left`, or was by `passed` where the refusal came inside its answer.
        """
        with self.lock:
            if tried or self.until is None:
                self.refusals += 1  # those that were on their way when the first one came back tell nothing new
            own = min(MOST_SECONDS, FIRST_SECONDS * 2 ** min(self.refusals - 1, 10))
            self.until = max(self.until or 0.0, now + max(own, (hint_ms or 0) / 1000))
            self.window = 1

    def passed(self, *, tried: bool) -> None:
        """The server took a request: it answered with a status of success, whatever its body will say."""
        with self.lock:
            if tried:
                self.window += 1
            if tried and (self.window > RECOVERED_WINDOW or not self.waiting):
                self.until, self.window, self.refusals = None, 1, 0
            self._ended(tried=tried)

    def left(self, *, tried: bool) -> None:
        """A request ended and nothing is to be learnt from how."""
        with self.lock:
            self._ended(tried=tried)

    def _ended(self, *, tried: bool) -> None:
        self.out -= tried
        for wake in self.waiting:
            wake()


_of_system: dict[tuple[str, str], Cooldown] = {}
_of_others: "WeakKeyDictionary[Clock, dict[tuple[str, str], Cooldown]]" = WeakKeyDictionary()
_guard = threading.Lock()


def cooldown_of(clock: Clock, host: str, key_name: str) -> Cooldown:
    """The one of this key at this host; clocks of simulations have cooldowns of their own."""
    with _guard:
        table = _of_system if isinstance(clock, SystemClock) else _of_others.setdefault(clock, {})
        return table.setdefault((host, key_name), Cooldown())


def _waker(event: asyncio.Event) -> Callable[[], None]:
    """Sets the event from whatever thread."""
    loop = asyncio.get_running_loop()

    def wake() -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(event.set)

    return wake


async def _rung(clock: Clock, seconds: float, woken: asyncio.Event) -> None:
    """Until something changed, or the time has come, if it ever does."""
    bell = timer(clock, seconds, woken.set, Custody()) if seconds < math.inf else None
    try:
        await woken.wait()
    finally:
        if bell is not None:
            bell.cancel()


def _limited(where: str, seconds: float) -> ModelFailed:
    then = f"said to wait {seconds:.1f} s more" if seconds else "has not answered the one that tries whether it takes more"
    return ModelFailed(
        FailureClass.RATE_LIMIT,
        f"{where}: not asked, since it refused another request with this key and {then}",
        retry_after_ms=-int(-seconds * 1000 // 1) or None,
    )
