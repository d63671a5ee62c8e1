"""The effects of one run that are under way, and the outcomes that come back from them."""

import asyncio
from collections.abc import Callable
from typing import Any

from semel.core.effects import (
    Answered,
    CallModel,
    CameBack,
    Deferral,
    Dispatch,
    Effect,
    ExchangeFailed,
    Hold,
    Interrupt,
    Outcome,
    Reconcile,
    StopAsking,
    TimeUp,
    UnderWay,
)
from semel.core.outcomes import NeverSent, Settlement, settle
from semel.core.outcomes import Outcome as Became
from semel.core.state import CallState, Run, Session, Step
from semel.core.values import Effect as ToolEffect
from semel.engine.cutting import Cut
from semel.engine.perform import Performer
from semel.engine.waiting import first_of
from semel.errors import need

Back = Settlement | Deferral | Hold
"""What a call comes back with."""
UNSENT = settle(ToolEffect.ONCE, NeverSent(), after_crash=False)
"""A call whose intent is durable and that was kept from leaving."""


class Flights:
    """Starts effects as tasks and hands their outcomes back, all that are ready at once (design 14, "Finishing apart")."""

    def __init__(self, performer: Performer, state: Callable[[], Session]) -> None:
        """`state` gives the state after the latest commit, from which an effect takes its facts."""
        self._performer = performer
        self._state = state
        self._slots: asyncio.Semaphore | None = None
        self._asking: asyncio.Task[Answered | ExchangeFailed] | None = None
        self._calls: dict[int, asyncio.Task[Back | None]] = {}
        self._left_open: set[int] = set()
        self._lost_one = False
        self._broken: BaseException | None = None
        self._time: asyncio.Future[None] | None = None

    @property
    def empty(self) -> bool:
        """Whether nothing is under way and nothing is left to tell."""
        return self._asking is None and not self._calls and self._broken is None

    def release(self, effect: Effect) -> None:
        """Start an effect; the records it stands on are durable."""
        run, step = _open(self._state())
        match effect:
            case CallModel():
                self._asking = asyncio.create_task(self._performer.ask(run, effect))
            case Dispatch():
                self._slots = self._slots or asyncio.Semaphore(run.limits.parallel_calls)
                for ordinal in effect.ordinals:
                    self._calls[ordinal] = asyncio.create_task(self._one(self._slots, run, step, _call(step, ordinal)))
            case Reconcile():
                call = _call(step, effect.ordinal)
                self._calls[effect.ordinal] = asyncio.ensure_future(self._performer.reconcile(run, step, call))
            case StopAsking():
                self.stop_asking()
            case Interrupt():
                self._performer.cut.set(Cut.CANCELLED)  # a tool that may not be interrupted is waited for (Q12)

    def under_way(self, doubt: frozenset[int]) -> UnderWay:
        """What a request has to reckon with."""
        return UnderWay(asking=self._asking is not None, in_flight=self._out(), doubt=doubt)

    async def next(self, seconds_left: float, called: "asyncio.Future[None]") -> Outcome | None:
        """The next outcome: an answer, a failed exchange, or every call that has come back by now.

        None if the exchange was given up, or where somebody `called` before anything came back. After `seconds_left` the calls
        under way are cut short, and an exchange is given up and told as TimeUp.
        """
        if self._broken is not None:
            broken, self._broken = self._broken, None
            raise broken
        waiting: list[asyncio.Task[Any]] = [self._asking] if self._asking is not None else list(self._calls.values())
        if not await self._any_of(waiting, seconds_left, called):
            return None if called.done() else self._time_up()
        if self._asking is not None:
            asking, self._asking = self._asking, None
            return None if asking.cancelled() else asking.result()
        if not all(task.done() for task in self._calls.values()):
            await asyncio.sleep(0)  # those that became ready in the same turn of the loop are taken together: one barrier for all
        return self._came_back()

    def stop_asking(self) -> None:
        """Give up a model exchange, of which nothing is recorded: a resume asks again (B24)."""
        if self._asking is not None:
            self._asking.cancel()

    def leave(self) -> None:
        """Cut the calls under way short. What is known of them comes back; what is not stays open in the log."""
        self._performer.cut.set(Cut.LEAVING)

    async def cancel(self) -> None:
        """End everything that is under way and wait until it has ended."""
        if self._time is not None:
            self._time.cancel()
        tasks = [*self._calls.values(), *([self._asking] if self._asking is not None else [])]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.gather(*tasks, return_exceptions=True)
        self._calls.clear()
        self._asking = None

    async def _any_of(self, waiting: "list[asyncio.Task[Any]]", seconds_left: float, called: "asyncio.Future[None]") -> bool:
        if self._performer.cut.reason is not None:  # what is under way has been told; now it is waited for
            await first_of([*waiting, called])
            return any(task.done() for task in waiting)
        if self._time is None:  # one timer a run: while it is carried, the moment at which its time is up does not move
            self._time = asyncio.ensure_future(self._performer.clock.sleep(max(0.0, seconds_left)))
        await first_of([*waiting, self._time, called])
        return any(task.done() for task in waiting)

    def _time_up(self) -> Outcome:
        if self._asking is not None:
            self._asking.cancel()
            self._asking = None
            return TimeUp()
        if self._performer.cut.reason is None:
            self._performer.cut.set(Cut.TIME_UP)
        return CameBack(settled={}, in_flight=self._out())

    def _came_back(self) -> Outcome:
        back: dict[int, Back] = {}
        for ordinal, task in list(self._calls.items()):
            if not task.done():
                continue
            del self._calls[ordinal]
            error = None if task.cancelled() else task.exception()
            if error is not None:
                self._broken = error  # raised behind the outcomes that came back beside it
                self._left_open.add(ordinal)
            elif task.cancelled() or (result := task.result()) is None:
                self._left_open.add(ordinal)
            else:
                back[ordinal] = result
        return CameBack(
            settled={at: one for at, one in back.items() if isinstance(one, Settlement)},
            deferred={at: one for at, one in back.items() if isinstance(one, Deferral)},
            held={at: one for at, one in back.items() if isinstance(one, Hold)},
            in_flight=self._out(),
        )

    def _out(self) -> frozenset[int]:
        return frozenset(self._calls) | self._left_open

    async def _one(self, slots: asyncio.Semaphore, run: Run, step: Step, call: CallState) -> Back | None:
        """One call within the cap. Behind an unknown, or when all is cut short, what waits for its turn is not sent (B15)."""
        async with slots:
            if self._lost_one or self._performer.cut.reason is not None:
                return None if call.reruns else UNSENT
            settled = await self._performer.call(run, step, call)
            self._lost_one = self._lost_one or (isinstance(settled, Settlement) and settled.outcome is Became.UNKNOWN)
            return settled


def _open(state: Session) -> tuple[Run, Step]:
    run = need(state.run, "effects belong to an open run")
    return run, need(run.step, "effects belong to an open step")


def _call(step: Step, ordinal: int) -> CallState:
    return need(step.batch, "a dispatched call is planned").calls[ordinal]
