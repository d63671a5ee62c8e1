"""The effects of one run that are under way, and the outcomes that come back from them."""

import asyncio
from collections.abc import Callable

from semel.core.effects import Answered, CallModel, CameBack, Dispatch, Effect, ExchangeFailed, Outcome, Reconcile
from semel.core.outcomes import Settlement
from semel.core.state import CallState, Run, Session, Step
from semel.engine.perform import Performer
from semel.errors import need


class Flights:
    """Starts effects as tasks and hands their outcomes back, all that are ready at once (design 14, "Finishing apart")."""

    def __init__(self, performer: Performer, state: Callable[[], Session]) -> None:
        """`state` gives the state after the latest commit, from which an effect takes its facts."""
        self._performer = performer
        self._state = state
        self._slots: asyncio.Semaphore | None = None
        self._asking: asyncio.Task[Answered | ExchangeFailed] | None = None
        self._calls: dict[int, asyncio.Task[Settlement]] = {}

    @property
    def empty(self) -> bool:
        """Whether nothing is under way."""
        return self._asking is None and not self._calls

    def release(self, effect: Effect) -> None:
        """Start an effect; the records it stands on are durable."""
        run, step = _open(self._state())
        match effect:
            case CallModel():
                self._asking = asyncio.ensure_future(self._performer.ask(run, effect))
            case Dispatch():
                self._slots = self._slots or asyncio.Semaphore(run.limits.parallel_calls)
                for ordinal in effect.ordinals:
                    self._calls[ordinal] = asyncio.ensure_future(self._one(self._slots, run, step, _call(step, ordinal)))
            case Reconcile():
                call = _call(step, effect.ordinal)
                self._calls[effect.ordinal] = asyncio.ensure_future(self._performer.reconcile(run, step, call))

    async def next(self) -> Outcome | None:
        """The next outcome: an answer, a failed exchange, or every call that has come back by now; None if it was given up."""
        if self._asking is not None:
            asking = self._asking
            await asyncio.wait({asking})
            self._asking = None
            return None if asking.cancelled() else asking.result()
        await asyncio.wait(self._calls.values(), return_when=asyncio.FIRST_COMPLETED)
        await asyncio.sleep(0)  # those that became ready in the same turn of the loop are taken together: one barrier for all
        ready = {ordinal: task for ordinal, task in self._calls.items() if task.done()}
        for ordinal in ready:
            del self._calls[ordinal]
        settled = {ordinal: task.result() for ordinal, task in ready.items()}
        return CameBack(settled=settled, in_flight=frozenset(self._calls))

    async def cancel(self) -> None:
        """End everything that is under way and wait until it has ended."""
        tasks = [*self._calls.values(), *([self._asking] if self._asking is not None else [])]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.gather(*tasks, return_exceptions=True)
        self._calls.clear()
        self._asking = None

    def stop_asking(self) -> None:
        """Give up a model exchange; nothing of it is recorded, and a resume asks again (B24)."""
        if self._asking is not None:
            self._asking.cancel()

    async def _one(self, slots: asyncio.Semaphore, run: Run, step: Step, call: CallState) -> Settlement:
        async with slots:
            return await self._performer.call(run, step, call)


def _open(state: Session) -> tuple[Run, Step]:
    run = need(state.run, "effects belong to an open run")
    return run, need(run.step, "effects belong to an open step")


def _call(step: Step, ordinal: int) -> CallState:
    return need(step.batch, "a dispatched call is planned").calls[ordinal]
