"""A handle on one run: its text as it arrives, its events, its result."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from semel.core.limits import Limits
from semel.core.state import Run, Session
from semel.core.status import decode_status
from semel.core.values import Usage
from semel.engine.feed import Committed, Subscription
from semel.engine.lookout import LOOK_SECONDS
from semel.engine.resume import Ground
from semel.engine.sessions import Entered
from semel.errors import RunNotCompleted
from semel.faces.output import convert_output
from semel.faces.results import Result, pause_result, result_of
from semel.faces.views import event_of, frame_event, view_of

OutputT = TypeVar("OutputT")


@dataclass(frozen=True, kw_only=True)
class Glance:
    """A run under way: its step, the calls that are out, what it has used, and its limits."""

    agent: str
    model: str
    step_id: int
    calls: tuple[str, ...]
    usage: Usage
    limits: Limits


def glance_at(run: Run) -> Glance:
    """What there is to see of a run."""
    batch = run.step.batch if run.step is not None else None
    out = [call.planned.tool for call in batch.calls if call.intent and not call.terminal and not call.settled] if batch else []
    return Glance(
        agent=run.agent.name,
        model=run.config.bundle.model,
        step_id=run.step.step_id if run.step else 0,
        calls=tuple(out),
        usage=run.usage,
        limits=run.limits,
    )


class RunHandle(Generic[OutputT]):
    """One run of one session. It may be under way in this process, or finished long ago."""

    def __init__(
        self, run_id: str, entered: Entered, ground: Ground, *, output: type[OutputT] | None, left: Callable[[], bool]
    ) -> None:
        """Made by a Runtime, which `left` asks whether it was left."""
        self.run_id = run_id
        self.session = entered.actor.state.session
        self.before = entered.before
        self._store, self._clock = ground.store, ground.clock
        self._actor = entered.actor
        self._rest = entered.rest
        self._subscription = entered.subscription
        self._output = output
        self._left = left

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a resume found changed in the agent, which acts at the next run; and a status that could not be written."""
        return self._actor.warnings

    @property
    def leftovers(self) -> tuple[str, ...]:
        """The keys of calls whose processes a dead runtime had left running, and which were ended."""
        return self._actor.leftovers

    @property
    def at_rest(self) -> bool:
        """Whether this process does not carry it, or not any more."""
        return self._rest.done()

    def glance(self) -> "Glance | None":
        """Where the run is now; None once it is finished."""
        run = self._actor.state.run
        return None if run is None or run.run_id != self.run_id else glance_at(run)

    async def rest(self) -> Session:
        """Wait until the run is finished, or stopped with this process. Raises what kept it from going on."""
        return await asyncio.shield(self._rest)

    async def result(self) -> Result[OutputT]:
        """Wait for the end of the run. Raises what kept this process from carrying it on; the run itself is safe in the log."""
        return self._result(await self.rest())

    async def end(self) -> Result[OutputT]:
        """Wait for the end of the run, also while it waits for somebody, and whichever process it goes on in. Never Paused.

        It only looks, about once a second: a `Runtime` with recover="auto", or `semel resume`, goes on with the run. Raises what
        `result` raises, and RunNotCompleted where this runtime is left before.
        """
        state = await self.rest()
        return self._result(state if self.run_id in state.ended else await self._ended())

    def _result(self, state: Session) -> Result[OutputT]:
        ended = state.ended.get(self.run_id)
        paused = pause_result(state, self.run_id) if ended is None else None
        if paused is not None:
            return paused
        if ended is None and self.run_id in _queued(state):
            raise RunNotCompleted(
                f"the message of run {self.run_id[:8]} waits in the queue of session {self.session!r}; its run starts by itself "
                f"when what is before it is done (`semel inbox`). Send it again under its key to wait for it"
            )
        if ended is None:
            raise stopped(self.session, self.run_id)
        return result_of(state, ended, convert_output(ended.output, self._output))

    async def text(self) -> AsyncIterator[str]:
        """The text of the answers as it arrives. Where an exchange is cut and sent again, so is its text: `events` tells."""
        async for event in self.events(after=-1, live=True):
            if event.get("live") == "text":
                yield event["text"]

    async def events(self, *, after: int = 0, live: bool = False) -> AsyncIterator[dict[str, Any]]:
        """Everything of the session with seq > `after`, without a gap or a repeat, until this run ends; with `live`, also text.

        `after=-1` starts where the run did. Live events are of this run only, have no seq, may be lost, and are never replayed.
        Raises what kept the run from going on.
        """
        seen = self.before if after < 0 else after
        subscription = self._actor.feed.subscribe(self._subscription)
        for event in self._from_log(seen) if seen < self.before else []:
            if event["seq"] > self.before:
                break  # from here on the subscription has them, in order with what is live
            seen = event["seq"]
            yield event
            if self._ends(event):
                return
        async for event in follow(subscription, self._rest, self._from_log, seen):
            if "seq" in event:
                yield event
                if self._ends(event):
                    return
            elif live and event["run_id"] == self.run_id:
                yield event

    async def _ended(self) -> Session:
        """Wait until the log says how it ended; that is read when its status says so, or when nobody works in it any more."""
        read: str | None = None
        while not self._left():
            mark = self._store.mark(self.session)
            if mark != read and (self._is_told_over() or self._store.owner(self.session) is None):
                read, state = mark, view_of(self._store, self.session).state
                if self.run_id in state.ended:
                    return state
            await self._clock.sleep(LOOK_SECONDS)
        raise stopped(self.session, self.run_id)

    def _is_told_over(self) -> bool:
        status = decode_status(self._store.read_status(self.session))
        return status is not None and (status.run_id != self.run_id or status.state not in ("running", "paused"))

    def _ends(self, event: dict[str, Any]) -> bool:
        return bool(event["type"] == "run_finished" and event["record"]["run_id"] == self.run_id)

    def _from_log(self, after: int) -> list[dict[str, Any]]:
        view = self._store.read(self.session, after)
        return [frame_event(frame) for frame in view.frames if frame.seq > max(0, after)]


def _queued(state: Session) -> frozenset[str]:
    """The runs that the messages of the queue will start."""
    return frozenset(state.keys[message.key].run_id for message in state.queue)


def stopped(session: str, run_id: str) -> RunNotCompleted:
    """The error for a run that rests open, because its process stopped."""
    return RunNotCompleted(
        f"run {run_id[:8]} of session {session!r} was stopped with its process; `semel resume` goes on with it"
    )


async def follow(
    subscription: Subscription,
    rest: "asyncio.Future[Session]",
    from_log: Callable[[int], list[dict[str, Any]]],
    seen: int,
) -> AsyncIterator[dict[str, Any]]:
    """Events behind `seen`, in order; what a slow reader was not handed is read from the log (P6). Raises what `rest` raises."""
    while True:
        taking = asyncio.ensure_future(subscription.take())
        waiting: list[asyncio.Future[Any]] = [taking, rest]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if not taking.done():
                await asyncio.sleep(0)  # the last events may be there already, beside the end of the run
            events = taking.result() if taking.done() else []
        finally:
            taking.cancel()
        for event in events:
            if not isinstance(event, Committed):
                yield event_of(event)
                continue
            if event.frame.seq > seen + 1:
                for shown in from_log(seen):
                    seen = shown["seq"]
                    yield shown
            if event.frame.seq > seen:
                seen = event.frame.seq
                yield event_of(event)
        if subscription.lagged:
            subscription.lagged = False
            for shown in from_log(seen):
                seen = shown["seq"]
                yield shown
        if rest.done() and not events:
            rest.result()
            for shown in from_log(seen):
                seen = shown["seq"]
                yield shown
            return
