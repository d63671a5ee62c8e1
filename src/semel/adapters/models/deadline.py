"""The time limits of one exchange, measured on the injected clock at every poll (X2 to X9).

A limit is the longest interval that is tolerated (X23): it is passed when the clock is *beyond* it, so that a read exactly at
the deadline proceeds (X3). What has passed is found before any data that is ready is used (X7). A timer never decides; it only
wakes whoever measures, one whole millisecond late, so that a clock of that grain has moved on (X4).
"""

import asyncio
from collections.abc import Callable

from semel.core.values import Frozen
from semel.ports.world import Clock

_LATE_SECONDS = 0.001


class Limits(Frozen, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Milliseconds, None for no limit. `connect`, `headers` and `total` run from the send, `first_content` from the headers.

    `idle` runs from the last byte of any kind, `progress` from the last content: comments, pings and empty deltas are bytes but
    no content, so a server that only pings is given up on, later than a silent one (B25). `response_bytes` bounds the body.
    `cooldown_ms` is how long a request waits here at most, before it is sent, for an account that has refused another one.
    """

    connect_ms: int | None = 15_000
    headers_ms: int | None = 300_000
    first_content_ms: int | None = 300_000
    idle_ms: int | None = 120_000
    progress_ms: int | None = 300_000
    total_ms: int | None = 1_800_000
    response_bytes: int = 128 * 1024 * 1024
    cooldown_ms: int | None = 60_000


class Ledger:
    """When what of one exchange happened, and which limit follows from it. Seconds of `Clock.monotonic`."""

    def __init__(self, limits: Limits, now: float) -> None:
        """`now` is the moment of the send."""
        self.limits = limits
        self.custody = Custody()
        self._sent = now
        self._connected = False
        self._headers: float | None = None
        self._bytes = now
        self._content: float | None = None

    def connected(self) -> None:
        """The connection stands and the request is on its way."""
        self._connected = True

    def headers_came(self, now: float) -> None:
        """Status and headers are here; the idle time starts (X5)."""
        self._headers = self._bytes = now

    def bytes_came(self, now: float) -> None:
        """Nonempty body bytes were consumed (X6)."""
        self._bytes = now

    def content_came(self, now: float) -> None:
        """The bytes held something that a model said."""
        self._content = now

    def deadlines(self) -> list[tuple[float, str]]:
        """Every deadline that runs now: (moment, name)."""
        limits, runs = self.limits, [(self._sent, self.limits.total_ms, "total")]
        if self._headers is None:
            runs.append((self._sent, limits.headers_ms, "headers"))
            if not self._connected:
                runs.append((self._sent, limits.connect_ms, "connect"))
        else:
            runs.append((self._bytes, limits.idle_ms, "idle"))
            if self._content is None:
                runs.append((self._headers, limits.first_content_ms, "first_content"))
            else:
                runs.append((self._content, limits.progress_ms, "progress"))
        return [(since + limit / 1000, name) for since, limit, name in runs if limit is not None]

    def expired(self, now: float) -> str | None:
        """The name of the limit that was passed first, None if all hold."""
        passed = [(at, name) for at, name in self.deadlines() if now > at]
        return min(passed)[1] if passed else None

    def unconnected(self, now: float) -> bool:
        """Whether a limit was passed before there was a connection."""
        return not self._connected and self.expired(now) is not None

    def next(self) -> float | None:
        """The earliest deadline."""
        return min((at for at, _ in self.deadlines()), default=None)


class TimerDenied(Exception):
    """No more timers may be made for this exchange, so whatever would have waited does not."""


class Custody:
    """Who holds the timers of an exchange: each is admitted before it is made, and given back when it has rung or was cancelled.

    `made` and `alive` are for tests to look at; `most` bounds how many are alive at once.
    """

    def __init__(self, most: int = 4) -> None:
        """None yet."""
        self.most, self.made, self.alive = most, 0, 0

    def take(self) -> None:
        """Admit one timer. Raises TimerDenied."""
        if self.alive >= self.most:
            raise TimerDenied(f"{self.alive} timers are alive, {self.most} are allowed")
        self.made += 1
        self.alive += 1

    def give_back(self, _timer: object = None) -> None:
        """One has ended."""
        self.alive -= 1


def timer(clock: Clock, seconds: float, ring: Callable[[], None], custody: Custody) -> asyncio.Task[None]:
    """Call `ring` once `seconds` have passed, and a millisecond. The only maker of timers for models (X10); cancel it to stop.

    Raises TimerDenied, before anything is made.
    """
    custody.take()

    async def wait() -> None:
        await clock.sleep(max(0.0, seconds) + _LATE_SECONDS)
        ring()

    task = asyncio.get_running_loop().create_task(wait())
    task.add_done_callback(custody.give_back)
    return task


async def pause(clock: Clock, seconds: float, custody: Custody) -> None:
    """Wait that long; cancelling ends it at once (X22). Raises TimerDenied."""
    rung = asyncio.Event()
    bell = timer(clock, seconds, rung.set, custody)
    try:
        await rung.wait()
    finally:
        bell.cancel()
