"""What happens in a session, as it happens: committed records and live text. The log is the truth; this is a convenience (S2).

A subscriber that does not keep up is not waited for: its queue is dropped and marked, and it reads the log again from the last
seq that it has seen. So no reader ever slows a writer, and none misses a record (P6).
"""

import asyncio
import weakref
from collections.abc import Sequence
from typing import Literal

from semel.core.frame import Frame
from semel.core.values import Frozen

QUEUE_EVENTS_MOST = 1024


class Committed(Frozen, frozen=True, kw_only=True):
    """A durable record, as its frame."""

    frame: Frame


class Live(Frozen, frozen=True, kw_only=True):
    """Text of an answer as it arrives, its withdrawal, or progress: of a tool, or of an exchange that failed and is tried again.

    The latter has no `call_key`. Never stored, may be lost.
    """

    live: Literal["text", "discarded", "progress"]
    run_id: str
    step_id: int
    attempt: int
    http_attempt: int = 0
    text: str = ""
    call_key: str | None = None


Event = Committed | Live


class Subscription:
    """One listener. `lagged` says that events were dropped since the last `take`."""

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._ready = asyncio.Event()
        self.lagged = False

    def fork(self) -> "Subscription":
        """Another listener from the same moment on, with what this one has not taken yet."""
        twin = Subscription()
        twin.put(self._events)
        twin.lagged = self.lagged
        return twin

    def put(self, events: Sequence[Event]) -> None:
        """Hand over events; never blocks."""
        if len(self._events) + len(events) > QUEUE_EVENTS_MOST:
            self._events.clear()
            self.lagged = True
        else:
            self._events.extend(events)
        self._ready.set()

    async def take(self) -> list[Event]:
        """All events since the last call; waits for the first."""
        await self._ready.wait()
        self._ready.clear()
        events, self._events = self._events, []
        return events


class Feed:
    """The listeners of one session; one that nobody holds any more is forgotten."""

    def __init__(self) -> None:
        self._subscriptions: tuple[weakref.ref[Subscription], ...] = ()

    def subscribe(self, like: Subscription | None = None) -> Subscription:
        """Listen from now on, or from where `like` began that was not taken from it."""
        subscription = Subscription() if like is None else like.fork()
        self._subscriptions = (*(held for held in self._subscriptions if held() is not None), weakref.ref(subscription))
        return subscription

    def publish(self, *events: Event) -> None:
        """Tell every listener."""
        for held in self._subscriptions:
            subscription = held()
            if subscription is not None:
                subscription.put(events)
