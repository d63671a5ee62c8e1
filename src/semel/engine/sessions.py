"""The sessions that this process holds: who opens one, who begins something in it, and who gives it back behind its runs.

A session is held while a run of it is carried. Behind a run the next message of its queue starts another; a run that waits for
somebody is given back, so that any process may answer for it, and is woken here when it is due. Whoever waits for a run is told
when its session has been given back, but does not wait for the run behind it, which a server of tools may be slow to start.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from msgspec.structs import replace

from semel.core.due import due_at, is_idle
from semel.core.messages import due_message
from semel.core.state import Session
from semel.engine.alarm import Alarm
from semel.engine.diary import Diary
from semel.engine.feed import Subscription
from semel.engine.lookout import Lookout
from semel.engine.outside import Doors, NotReady
from semel.engine.resume import Ground, Left
from semel.engine.session import SessionActor, open_actor
from semel.engine.teller import Teller
from semel.errors import BadAgent, CallNotSent, CorruptLog, RuntimeLeft, SemelError, SessionBusy, StoreError, UsageError, need

LEFT_SESSIONS_MOST = 64
"""So many sessions that were given back are remembered, the latest ones: where their messages are, not what they say."""

LEFT_RECORDS_MOST = 200_000
"""So many records all of them have together, beside the latest one; a state takes some 300 bytes for each."""
RENDERED_BYTES_MOST = 64 * 1024 * 1024
"""So much of their requests is kept, so that the next one need not be made from the start of the conversation."""

Begin = Callable[[SessionActor], Awaitable[str | None]]
"""Does something in a session; returns the id of the run that it concerns, if there is one.

It raises NotReady before it has done anything where something is to be made outside the door first, and is called again then.
"""

StartNext = Callable[[SessionActor], Awaitable[bool]]
"""Starts the next run of a session at rest; False where none is due. Raises NotReady like `Begin`."""


@dataclass(frozen=True, kw_only=True)
class Entered:
    """What was done in a session. `rest` is the state at the rest of the run; `subscription` began at seq `before`."""

    actor: SessionActor
    run_id: str | None
    rest: "asyncio.Future[Session]"
    subscription: Subscription
    before: int


class Sessions:
    """All sessions that are held, by name."""

    def __init__(
        self,
        ground: Ground,
        *,
        next_run: Callable[[], StartNext] | None,
        wake: Begin,
        look_again: Callable[[str], Awaitable[None]] | None = None,
    ) -> None:
        """`next_run` gives what starts the next runs of one session; without it they are left to others.

        `wake` does what time has made due. `look_again` does what others have made due in a session that was given back; without
        it nobody looks.
        """
        self.diary = Diary()
        self.actors: dict[str, SessionActor] = {}
        self.unrecovered: dict[str, Exception] = {}
        self.left = False
        self._ground = ground
        self._next_run = next_run
        self._wake = wake
        self._left: dict[str, Left] = {}
        self._minders: dict[str, asyncio.Task[None]] = {}
        self._rests: dict[str, dict[str, asyncio.Future[Session]]] = {}
        self._starting: set[asyncio.Future[bool] | asyncio.Future[None]] = set()
        self._for_next: dict[str, asyncio.Future[None]] = {}
        self._doors: Doors[str] = Doors()
        self.alarm = Alarm(ground.clock, self._wake_up)
        self._look_again = look_again
        self.lookout = Lookout(
            ground.store, ground.clock, self._answered, lambda session, error: self.write_down(session, "look", error)
        )
        self.teller = Teller(ground.parked, self.write_down)

    async def enter(self, session: str, begin: Begin) -> Entered:
        """Open the session if it is not held, do what is asked, and give it back where nothing is under way.

        Raises what opening raises (SessionBusy, LogDamaged, NewerWriter, CorruptLog), what `begin` raises, and RuntimeLeft.
        """
        while True:
            try:
                return await self._within(session, begin)
            except NotReady as missing:
                if self.left or not await self._made(missing):
                    raise RuntimeLeft("the runtime was left before anything was done") from None

    async def _made(self, missing: NotReady, for_next: str | None = None) -> bool:
        """Do outside what somebody missed within; False where that was given up. Raises what it raises.

        Leaving does not wait for it, and what is made `for_next` run of a session is given up where another one starts there.
        """
        making = asyncio.ensure_future(missing.work())
        self._starting.add(making)
        if for_next is not None:
            self._for_next[for_next] = making
        try:
            await making
        except asyncio.CancelledError:
            if need(asyncio.current_task(), "a coroutine runs in a task").cancelling():
                raise
            if not making.cancelling():
                raise BadAgent("a hook of the agent, or a source of its tools, was cancelled by itself") from None
            return False
        finally:
            self._starting.discard(making)
            if for_next is not None:
                del self._for_next[for_next]
        return True

    async def _within(self, session: str, begin: Begin) -> Entered:
        async with self._doors.of(session):
            if self.left:
                raise RuntimeLeft("the runtime was left; send within its `async with` block")
            actor = await self._opened(session)
            if self.left:
                await self._mind_or_close(session, actor)
                raise RuntimeLeft("the runtime was left while the session was opened; nothing was done")
            subscription, before = actor.feed.subscribe(), actor.state.head
            try:
                run_id = await begin(actor)
                self.diary.recovered(session)  # it is open, and what it began is durable
                if actor.state.run is None or actor.running or is_idle(actor.state):
                    self.unrecovered.pop(session, None)
            except (StoreError, CorruptLog) as error:
                self.write_down(session, "begin", error)
                raise
            finally:
                await self._mind_or_close(session, actor)
            rest = self._rest_of(session, actor, run_id)
        return Entered(actor=actor, run_id=run_id, rest=rest, subscription=subscription, before=before)

    async def leave(self, drain_seconds: float) -> None:
        """Begin nothing new, bring every run to its rest, and give all sessions back."""
        self.left = True
        await self.alarm.close()
        await self.lookout.close()
        for starting in self._starting:  # nothing waits for a hook, or for a server that is slow to say which tools it has
            starting.cancel()
        await self._stop_all(drain_seconds)
        for door in self._doors.all():
            async with door:  # whoever is within has begun before we left; what it began is stopped below
                pass
        await self._stop_all(drain_seconds)
        if self._minders:
            await asyncio.wait(set(self._minders.values()))
        await self.teller.close()

    def write_down(self, session: str, stage: str, error: BaseException) -> None:
        """Write a failure into the diary."""
        self.diary.write_down(session, stage, self._ground.clock.now_ms(), error)

    async def _stop_all(self, drain_seconds: float) -> None:
        await asyncio.gather(*(actor.stop(drain_seconds) for actor in list(self.actors.values())))

    async def _opened(self, session: str) -> SessionActor:
        actor = self.actors.get(session)
        if actor is None:
            left = self._left.pop(session, None)
            try:
                actor = self.actors[session] = await open_actor(self._ground, session, left)
            except (StoreError, CorruptLog) as error:
                if isinstance(error, SessionBusy):
                    self._remember(session, left)  # it was not touched
                self.write_down(session, "recover", error)
                raise
            self.lookout.forget(session)
        return actor

    def _rest_of(self, session: str, actor: SessionActor, run_id: str | None) -> "asyncio.Future[Session]":
        """The state at the end of a run, or where it is left; it is there already for a run that nobody carries."""
        waiting = self._rests.get(session)
        if waiting is None or run_id is None or run_id in actor.state.ended:
            rest: asyncio.Future[Session] = asyncio.get_running_loop().create_future()
            rest.set_result(actor.state)
            return rest
        return waiting.setdefault(run_id, asyncio.get_running_loop().create_future())

    async def _mind_or_close(self, session: str, actor: SessionActor) -> None:
        """See to it that someone gives the session back behind its runs; one with nothing to carry is given back now."""
        if session in self._minders:
            if actor.running and (making := self._for_next.get(session)) is not None:
                making.cancel()
            return
        if not (actor.running or actor.failed_unheard or self._next_is_due(actor)):
            await self._close(session, actor)
            return
        self._rests[session] = {}
        self._minders[session] = asyncio.ensure_future(self._mind(session, actor))

    def _next_is_due(self, actor: SessionActor) -> bool:
        """Whether a message waits in the queue whose run is to be started here and now."""
        return self._next_run is not None and not self.left and due_message(actor.state) is not None

    async def _mind(self, session: str, actor: SessionActor) -> None:
        """Wait for each run, start the one behind it, and give the session back behind the last."""
        start = None if self._next_run is None else self._next_run()
        failed_to_make = False
        while True:
            failure: BaseException | None = None  # of this carrying; one behind it may go well
            try:
                await actor.carried().to_rest()
            except Exception as error:  # noqa: BLE001  whoever waits for the run is told
                self.write_down(session, "carry", error)
                failure = error
            if failure is None and (self._next_is_due(actor) or self._doors.of(session).locked()):
                self._tell(session, actor.state, only_ended=True)  # it is not given back yet, and that may take long
            missing: NotReady | None = None
            async with self._doors.of(session):
                goes_on = actor.running
                if not goes_on and failure is None and start is not None and not failed_to_make:
                    try:
                        goes_on = await self._goes_on(session, actor, start)
                    except NotReady as error:
                        missing = error
                if not goes_on and missing is None:
                    await self._give_back(session, actor, failure)
                    return
                self._tell(session, actor.state, only_ended=True)
            failed_to_make = missing is not None and await self._failed_to_make(session, missing)

    async def _failed_to_make(self, session: str, missing: NotReady) -> bool:
        """Make what the next run needs. Where that fails its message waits on, and the diary says why; leaving waits for none."""
        if self.left:
            return True
        try:
            await self._made(missing, for_next=session)
        except Exception as error:  # noqa: BLE001  what was acknowledged stands, whatever keeps the next run from starting
            self.write_down(session, "begin", error)
            self.try_again(session, error)
            return True
        return False

    async def _goes_on(self, session: str, actor: SessionActor, start: StartNext) -> bool:
        """Start the next run that is due; one that cannot start now waits on, and the diary says why. Raises NotReady.

        A start that leaving cuts short has either written nothing, and its message waits on, or its run is carried.
        """
        if not self._next_is_due(actor):
            return False
        starting = asyncio.ensure_future(start(actor))
        self._starting.add(starting)
        try:
            return await starting
        except NotReady:
            raise
        except asyncio.CancelledError:
            if not self.left:
                raise
        except Exception as error:  # noqa: BLE001  as above
            if not starting.cancelling():
                self.write_down(session, "begin", error)
                self.try_again(session, error)
        finally:
            self._starting.discard(starting)
        return actor.running

    async def _give_back(self, session: str, actor: SessionActor, failure: BaseException | None) -> None:
        """End the minding of a session, within its door, and tell whoever waits for a run of it."""
        try:
            await self._close(session, actor)
        except Exception as error:  # noqa: BLE001  whoever waits for the run is told
            failure = failure or error
        del self._minders[session]
        if failure is None:
            self.alarm.went_well(session)
        else:
            self.try_again(session, failure)
        self._tell(session, actor.state, failure)
        del self._rests[session]

    def _tell(self, session: str, state: Session, failure: BaseException | None = None, *, only_ended: bool = False) -> None:
        """Tell those who wait for a run: its end, or that it comes to none here."""
        for run_id, rest in list(self._rests[session].items()):
            if only_ended and run_id not in state.ended:
                continue
            del self._rests[session][run_id]
            if failure is None:
                rest.set_result(state)
            else:
                rest.set_exception(failure)
                rest.exception()  # where nobody waits any more, nobody is missing it

    async def _close(self, session: str, actor: SessionActor) -> None:
        if self.actors.get(session) is actor:
            del self.actors[session]
        self.teller.look_at(actor.state)
        if not self.left:
            self.alarm.set(session, due_at(actor.state) if actor.state.run is not None else None)
        mark = self._ground.store.mark(session)
        try:
            await actor.close()
        except Exception as error:
            self.write_down(session, "close", error)
            raise
        self._remember(session, actor.left)
        if actor.state.run is not None or actor.state.queue:
            self.watch(session, mark)

    def watch(self, session: str, mark: str | None) -> None:
        """Go on with a session at rest when others have written behind `mark`; without one, as soon as it is free."""
        if not self.left and self._look_again is not None and self._ground.control is not None:
            self.lookout.watch(session, mark)

    def _remember(self, session: str, left: Left | None) -> None:
        """Keep what it was left at, and less of those that were left longest ago."""
        if left is None:
            return
        self._left[session] = left
        records = sum(one.state.head for one in self._left.values()) - left.state.head
        while len(self._left) > LEFT_SESSIONS_MOST or records > LEFT_RECORDS_MOST:
            records -= self._left.pop(next(iter(self._left))).state.head
        most = RENDERED_BYTES_MOST
        for name, one in reversed(list(self._left.items())):
            most -= 0 if one.rendered is None else one.rendered.size_bytes
            if most < 0 and one.rendered is not None:
                self._left[name] = replace(one, rendered=None)

    def try_again(self, session: str, error: BaseException, *, woken: bool = False) -> None:
        """Have a session woken again in which something failed for a reason that may pass, later each time.

        Where nobody looks, only one that was `woken` is: all else is left to whoever asks for it.
        """
        if self.left:
            return
        self.alarm.failed(session, again=_may_pass(error) and (woken or self._look_again is not None))
        if isinstance(error, SessionBusy):
            self.watch(session, None)

    async def _answered(self, session: str) -> None:
        if self._look_again is None:
            return
        mark: str | None = None
        try:
            mark = self._ground.store.mark(session)
            await self._look_again(session)
        except SessionBusy:
            self.watch(session, None)  # somebody was faster
        except Exception as error:  # noqa: BLE001  one session that breaks keeps no other from going on
            self.write_down(session, "recover", error)
            self.watch(session, mark)
            self.try_again(session, error)

    async def _wake_up(self, session: str) -> None:
        try:
            await self.enter(session, self._wake)
        except Exception as error:  # noqa: BLE001  one session that breaks keeps no other from being woken
            if not isinstance(error, StoreError | CorruptLog):  # which `enter` has written down
                self.write_down(session, "recover", error)
            self.try_again(session, error, woken=True)
        else:
            if session not in self._minders:
                self.alarm.went_well(session)


def _may_pass(error: BaseException) -> bool:
    """Whether what failed may go well later by itself: not where a person has to mend a log, or to change an agent.

    A server of tools that did not start is told as a fault of its agent, and may start the next time.
    """
    if isinstance(error, UsageError):
        return isinstance(error.__cause__, CallNotSent)
    return not (isinstance(error, SemelError) and error.exit == CorruptLog.exit)
