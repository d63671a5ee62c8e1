"""The effects of one run that are under way, and the outcomes that come back from them."""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine

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
from semel.core.outcomes import Outcome as Became
from semel.core.outcomes import Settlement
from semel.core.policy import Policy
from semel.core.state import CallState, Run, Session, Step
from semel.engine.cutting import Cut
from semel.engine.deaf import abandon
from semel.engine.flight import CANCEL_GRACE_SECONDS, Back, Flight
from semel.engine.perform import Performer
from semel.engine.waiting import Bell
from semel.errors import need


class Flights:
    """Starts effects as tasks and hands their outcomes back, all that are ready at once (design 14, "Finishing apart")."""

    def __init__(self, performer: Performer, state: Callable[[], Session], bell: Bell) -> None:
        """`state` gives the state after the latest commit, from which an effect takes its facts; `bell` wakes the loop."""
        self._performer = performer
        self._state = state
        self._bell = bell
        self._asking: asyncio.Task[Answered | ExchangeFailed] | None = None
        self._calls: dict[int, Flight] = {}
        self._queue: deque[Flight] = deque()
        self._sent = 0
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
                self._asking = asyncio.create_task(self._ask(run, effect))
            case Dispatch():
                for ordinal in effect.ordinals:
                    flight = self._calls[ordinal] = Flight(run, step, _call(step, ordinal), self._take_over)
                    self._queue.append(flight)
                self._send()
            case Reconcile():
                flight = self._calls[effect.ordinal] = Flight(run, step, _call(step, effect.ordinal), self._take_over)
                self._sent += 1
                self._go_on(flight, self._performer.reconcile(flight))
            case StopAsking():
                self.stop_asking()
            case Interrupt():
                self._cut(Cut.CANCELLED)  # a tool that may not be interrupted is waited for (Q12)

    def under_way(self, doubt: frozenset[int], policy: Policy) -> UnderWay:
        """What a request has to reckon with."""
        return UnderWay(asking=self._asking is not None, in_flight=self._out(), doubt=doubt, policy=policy)

    async def next(self, seconds_left: float) -> Outcome | None:
        """The next outcome: an answer, a failed exchange, or every call that has come back by now.

        None where there is none and the bell has rung all the same: somebody asks for something, or the exchange was given up.
        After `seconds_left` the calls under way are cut short, and an exchange is given up and told as TimeUp.
        """
        if self._broken is not None:
            broken, self._broken = self._broken, None
            raise broken
        if self._time is None:  # one timer a run: while it is carried, the moment at which its time is up does not move
            self._time = asyncio.ensure_future(self._performer.clock.sleep(max(0.0, seconds_left)))
            self._time.add_done_callback(self._bell.ring)
        if self._time_is_up:
            self._bell.ring()
        await self._bell.wait()
        if self._asking is not None and self._asking.done():
            asking, self._asking = self._asking, None
            return None if asking.cancelled() else asking.result()
        done = [flight.done for flight in self._calls.values()]
        if any(done):
            if not all(done):
                await asyncio.sleep(0)  # those that become ready in the same turn of the loop share a barrier
            return self._came_back()
        return self._time_up() if self._time_is_up else None

    def stop_asking(self) -> None:
        """Give up a model exchange, of which nothing is recorded: a resume asks again (B24). One that is deaf is abandoned."""
        asking = self._asking
        if asking is not None:
            asking.cancel()
            asking.add_done_callback(self._bell.ring)  # one that has not begun rings nothing itself
            grace = asyncio.get_running_loop().call_later(CANCEL_GRACE_SECONDS, self._give_up_asking, asking)
            asking.add_done_callback(lambda _: grace.cancel())

    def leave(self) -> None:
        """Cut the calls under way short. What is known of them comes back; what is not stays open in the log."""
        self._cut(Cut.LEAVING)

    async def cancel(self) -> None:
        """End everything that is under way and wait until it has ended."""
        if self._time is not None:
            self._time.cancel()
        self._queue.clear()
        tools = [flight.task for flight in self._calls.values() if flight.task is not None and flight.in_tool]
        others = [flight.task for flight in self._calls.values() if flight.task is not None and not flight.in_tool]
        for flight in self._calls.values():
            flight.drop()
        self.stop_asking()
        foreign = [*tools, *([self._asking] if self._asking is not None else [])]
        if foreign:  # one that does not hear is not waited for longer than that
            await asyncio.wait(foreign, timeout=CANCEL_GRACE_SECONDS)
        await asyncio.gather(*others, return_exceptions=True)
        for flight in self._calls.values():
            flight.abandon()
        self._calls.clear()
        self._give_up_asking(self._asking)

    @property
    def time_ran_out(self) -> bool:
        """Whether the timer of the run's time has rung."""
        return self._time is not None and self._time.done()

    @property
    def _time_is_up(self) -> bool:
        """Whether the run's time is up; once all has been cut short, that is told already, or is no longer asked."""
        return self.time_ran_out and self._performer.cut.reason is None

    def _cut(self, reason: Cut) -> None:
        self._performer.cut.set(reason)
        for flight in self._calls.values():
            flight.end()

    def _give_up_asking(self, asking: "asyncio.Task[Answered | ExchangeFailed] | None") -> None:
        """Wait for an exchange no longer, if it is still the one that is waited for."""
        if asking is not None and asking is self._asking:
            self._asking = None
            abandon(asking, f"model {self._performer.kit.model.bundle.model}")
            self._bell.ring()

    def _time_up(self) -> Outcome:
        if self._asking is not None:
            self._asking.cancel()
            self._give_up_asking(self._asking)
            return TimeUp()
        self._cut(Cut.TIME_UP)
        return CameBack(settled={}, in_flight=self._out())

    def _came_back(self) -> Outcome:
        back: dict[int, Back] = {}
        for ordinal, flight in list(self._calls.items()):
            if not flight.done:
                continue
            del self._calls[ordinal]
            if flight.back is not None:
                back[ordinal] = flight.back
                continue
            self._left_open.add(ordinal)
            self._broken = flight.error or self._broken  # raised behind the outcomes that came back beside it
        return CameBack(
            settled={at: one for at, one in back.items() if isinstance(one, Settlement)},
            deferred={at: one for at, one in back.items() if isinstance(one, Deferral)},
            held={at: one for at, one in back.items() if isinstance(one, Hold)},
            in_flight=self._out(),
        )

    def _out(self) -> frozenset[int]:
        return frozenset(self._calls) | self._left_open

    async def _ask(self, run: Run, effect: CallModel) -> Answered | ExchangeFailed:
        try:
            answered = await self._performer.ask(run, effect)
        except (Exception, asyncio.CancelledError):
            self._bell.ring()
            raise
        self._bell.ring()
        return answered

    def _send(self) -> None:
        """Send what waits for its turn, within the cap."""
        while self._queue and self._sent < self._queue[0].run.limits.parallel_calls:
            flight = self._queue.popleft()
            self._sent += 1
            flight.task = asyncio.create_task(self._one(flight))

    async def _one(self, flight: Flight) -> None:
        """The task of a tool. Behind an unknown, or when all is cut short, what waited for its turn is not sent (B15).

        Where more has to be waited for behind the tool, another task takes over, which nothing that the tool left can reach.
        """
        try:
            await self._performer.barrier.settled()  # a cancel that is being written down just now comes first (Q5)
            if self._lost_one or self._performer.is_cut:
                self._landed(flight, self._performer.kept_back(flight))
                return
            back = await self._performer.send(flight)
            if flight.abandoned:
                return
            if self._performer.waits(flight, back):
                self._go_on(flight, self._performer.conclude(flight, back))
            else:
                self._landed(flight, self._performer.settle(flight, back))
        except Exception as error:  # noqa: BLE001  it is raised where the run is carried
            self._landed(flight, None, error)

    def _take_over(self, flight: Flight) -> None:
        """From a tool that is deaf."""
        flight.abandon()
        self._go_on(flight, self._given_up(flight))

    async def _given_up(self, flight: Flight) -> Back | None:
        return await self._performer.conclude(flight, await self._performer.give_up(flight))

    def _go_on(self, flight: Flight, behind: Coroutine[object, object, Back | None]) -> None:
        def landed(task: "asyncio.Task[Back | None]") -> None:
            error = None if task.cancelled() else task.exception()
            self._landed(flight, None if task.cancelled() or error is not None else task.result(), error)

        flight.task = task = asyncio.create_task(behind)
        task.add_done_callback(landed)

    def _landed(self, flight: Flight, back: Back | None, error: BaseException | None = None) -> None:
        """A call has come to its outcome, and the next one may leave. It is kept here: a tool may have cancelled its own task."""
        flight.done, flight.back, flight.error = True, back, error
        self._lost_one = self._lost_one or (isinstance(back, Settlement) and back.outcome is Became.UNKNOWN)
        self._sent -= 1
        self._send()
        self._bell.ring()


def _open(state: Session) -> tuple[Run, Step]:
    run = need(state.run, "effects belong to an open run")
    return run, need(run.step, "effects belong to an open step")


def _call(step: Step, ordinal: int) -> CallState:
    return need(step.batch, "a dispatched call is planned").calls[ordinal]
