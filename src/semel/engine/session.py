"""One actor per session: the single writer, its fold, and the task that carries its open run.

An actor lives as long as it holds the lease: it is opened for a run and closed behind it (L1, L4).
"""

import asyncio
from collections.abc import Coroutine, Sequence

from semel.core.closing import closings, too_large
from semel.core.decide import continue_run, resolve, retract, send
from semel.core.effects import Decision, Resolve, Send, UnderWay
from semel.core.fold import fold
from semel.core.guards import check_tools
from semel.core.policy import Policy, allow_all
from semel.core.records import Record, SendFailure
from semel.core.recover import recover
from semel.core.state import Logged, Session
from semel.core.status import decode_status, encode_status, status_of
from semel.core.waiting import WaitKind, pause_of
from semel.engine.barrier import Barrier
from semel.engine.feed import Feed
from semel.engine.flights import Flights
from semel.engine.inbox import AtRest, Choose, Inbox
from semel.engine.kit import Kit
from semel.engine.loop import Wishes, run_to_rest
from semel.engine.perform import Performer
from semel.engine.resume import Ground, Left, end_leftovers, open_session
from semel.engine.waiting import Bell, to_its_end
from semel.errors import LeaseLost, SessionBusy, SessionFull, StoreError
from semel.ports.log import LogWriter
from semel.ports.model import Rendered


class SessionActor:
    """The single writer of one session. Open it with `open_actor`."""

    def __init__(self, ground: Ground, writer: LogWriter, barrier: Barrier, feed: Feed, rendered: Rendered | None = None) -> None:
        """`rendered` is what the last model of the session rendered in this process."""
        self.feed = feed
        self.leftovers: tuple[str, ...] = ()
        self.warnings: tuple[str, ...] = ()
        self._ground = ground
        self._writer = writer
        self._barrier = barrier
        self._task: asyncio.Task[None] | None = None
        self._heard: asyncio.Task[None] | None = None
        self._flights: Flights | None = None
        self._inbox: Inbox | None = None
        self._kits: list[Kit] = []
        self._rendered = rendered
        self._wishes = Wishes()
        self._published: tuple[str | None, bool, WaitKind | None] | None = None
        self.closed: asyncio.Future[Session] = asyncio.get_running_loop().create_future()

    @property
    def left(self) -> Left | None:
        """Once it is closed: what the next open in this process goes on from; None where that must read the log."""
        bookmark = self._writer.bookmark
        whole = bookmark is not None and bookmark.digest == self._barrier.digest
        return Left(state=self.state, bookmark=bookmark, rendered=self._rendered) if bookmark is not None and whole else None

    @property
    def fence(self) -> int:
        """The tenure under which this process holds the session."""
        return self._writer.fence

    @property
    def running(self) -> bool:
        """Whether a run is being carried in this process."""
        return self._task is not None and not self._task.done()

    @property
    def failed_unheard(self) -> bool:
        """Whether what carried the run ended at once with an error, before anybody waited for it."""
        task = self._task
        ended = task is not None and task is not self._heard and task.done() and not task.cancelled()
        return ended and task is not None and task.exception() is not None

    @property
    def policy(self) -> Policy:
        """What rules on the calls of the run that is carried; without one nothing is planned, so nothing is ruled on."""
        return self._kits[-1].policy if self._kits else allow_all

    @property
    def state(self) -> Session:
        """The state after the latest durable record."""
        return self._barrier.state

    async def send(self, command: Send, kit: Kit) -> str:
        """Start a run; answered with its id once `run_started` is durable. Raises SessionBusy while another run is open.

        Where the log is full, a queued message, which was accepted, gets the run that room was kept for: one that ends by name.
        """
        queued = command.key in self.state.queue_index
        self.refuse_second_run()
        decision = send(self.state, command)
        try:
            await self._start(decision, kit)
        except SessionFull:
            if not queued or self.state.run is not None:
                raise
            await self._close_queued(command.key, decision.records[:1])
        return self._newest()

    async def _close_queued(self, key: str, started: Sequence[Record]) -> None:
        """A run that only says that the log is full; where its start has no room, the message is given back by name (Q16)."""
        closing = next(closings(self._ahead(started), None, None)).records
        try:
            await self._barrier.commit((*started, *closing))
        except SessionFull:
            failure = SendFailure(error=too_large())
            await self._barrier.commit(retract(self.state, key, failure=failure).records)
        self._publish_on_change()

    async def keep(self, contents: Sequence[bytes]) -> None:
        """Make the files of a message durable; before it is sent."""
        for content in contents:
            await asyncio.to_thread(self._barrier.blobs.put, content)

    async def resume(self, kit: Kit, *, checked: bool = True) -> str | None:
        """Carry on the open run; answered with its id once that is durable, None if no run is open.

        Raises BadAgent where the kit's tools are not those that the run was frozen with, if that is to be `checked`: a run that
        is only closed sends nothing.
        """
        run = self.state.run
        if run is None:
            self.publish_if_stale()
            return None
        if not self.running:
            specs = {name: tool.spec for name, tool in kit.tools.items()}
            self.warnings = check_tools(run.tools, specs, run.agent.name) if checked else ()
            self.leftovers = await end_leftovers(self.state, self._performer(kit))
            await self._start(recover(self.state, kit.policy, refrozen=kit.refrozen), kit)
        return run.run_id

    async def ask(self, choose: Choose) -> bool:
        """Make what is asked durable, with the run that is carried or without one; True if a run that is carried took it.

        Where none is carried it is recorded and nothing follows from it: a resume does the rest. Raises what `choose` raises,
        and SessionFull.
        """
        while self.running and self._inbox is not None:
            try:
                await self._inbox.ask(choose)
            except AtRest:
                await to_its_end(asyncio.wait({self._task}) if self._task is not None else asyncio.sleep(0))
            else:
                self._publish_on_change()
                return True
        head = self.state.head
        await self._barrier.commit_chosen(lambda state: choose(state, None).records)
        if self.state.head != head:
            self._publish()
        return False

    async def resolve(self, command: Resolve) -> None:
        """Make a verdict durable; an equal one again changes nothing. Raises UnknownCall, VerdictConflict."""

        def verdict(state: Session, _under_way: UnderWay | None) -> Decision:
            return Decision(records=resolve(state, command))

        await self.ask(verdict)
        self._publish()

    async def resolve_and_continue(self, command: Resolve, go_on: Send, kit: Kit) -> str:
        """A verdict and the run that goes on after it, in one write; answered with that run's id (design 14)."""
        verdict = resolve(self.state, command)
        known = self.state.continued.get(command.call_key)
        if known is not None:
            return known
        self.refuse_second_run()
        decided = continue_run(self._ahead(verdict), go_on, command.call_key)
        await self._start(Decision(records=(*verdict, *decided.records), effects=decided.effects), kit)
        return self._newest()

    def carried(self) -> "Carried":
        """The run that is being carried now, to wait for."""
        self._heard = self._task
        return Carried(self, self._task)

    async def stop(self, drain_seconds: float) -> None:
        """Start nothing new and rest. The run stays open for a resume.

        Calls under way get `drain_seconds` to come back; then those that may be interrupted are, and what is known of them is
        kept. A call that may not be interrupted is waited for (Q12).
        """
        self._wishes.stopping = True
        flights, task = self._flights, self._task  # a start that fails meanwhile takes them away
        if flights is None or task is None:
            return
        flights.stop_asking()
        await asyncio.wait({task}, timeout=drain_seconds)
        flights.leave()
        await asyncio.wait({task})

    async def close(self) -> None:
        """Give the lease back; a run that is still under way is cut off as by a crash, so `stop` first."""
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait({self._task})
        try:
            for kit in self._kits:
                await kit.close()
        finally:
            try:
                await self._writer.close()
            finally:
                self._barrier.let_go()
                if not self.closed.done():
                    self.closed.set_result(self.state)

    async def _start(self, first: Decision, kit: Kit) -> None:
        """Begin to carry the run; returns when its first barrier is durable, raises if it failed.

        A caller that is cancelled waits for that, too: what was begun is either not there at all, or carried.
        """
        if self._wishes.stopping:
            raise SessionBusy(f"session {self.state.session!r} is being given back; this process is stopping")
        self._kits.append(kit)
        self._rendered = kit.go_on_from(self._rendered)
        bell = Bell()
        inbox = Inbox(bell)
        flights = Flights(self._performer(kit), lambda: self.state, bell)
        begun: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def after() -> None:
            self._publish_on_change()
            if not begun.done():
                begun.set_result(True)

        def ended(_carrying: object) -> None:
            if not begun.done():
                begun.set_result(False)

        carrying = run_to_rest(
            first,
            self._barrier,
            flights,
            self._ground.clock,
            inbox=inbox,
            wishes=self._wishes,
            policy=kit.policy,
            after=after,
        )
        task = asyncio.ensure_future(_to_rest(carrying, kit))
        self._flights, self._task, self._inbox = flights, task, inbox
        task.add_done_callback(ended)
        if not await to_its_end(begun):
            self._flights = self._task = self._inbox = None
            task.result()

    def _performer(self, kit: Kit) -> Performer:
        return Performer(barrier=self._barrier, feed=self.feed, clock=self._ground.clock, kit=kit)

    def _ahead(self, records: Sequence[Record]) -> Session:
        """The state as it will be after these records."""
        state = self.state
        places = (
            Logged(seq=state.head + place, at_ms=state.last_at_ms, fence=self._writer.fence, record=record)
            for place, record in enumerate(records, start=1)
        )
        return fold(places, state)

    def refuse_second_run(self) -> None:
        """Raise SessionBusy where a run is open, so that no other can start."""
        pause = pause_of(self.state)
        if pause is not None:
            raise waits_for_somebody(self.state.session, pause)
        if self.state.run is not None:
            raise SessionBusy(
                f"session {self.state.session!r} has an open run ({self.state.run.run_id[:8]}); wait for it, then send again. "
                f"A delivery of `queue`, `follow_up`, `steer` or `interrupt` does not wait for it"
            )

    def _newest(self) -> str:
        return self.state.newest or ""

    def _publish_on_change(self) -> None:
        """At the start of a run, at its end, when a resume takes it up, and when it begins or ends to wait for somebody."""
        now = (self.state.newest, self.state.run is None, pause_of(self.state))
        if now != self._published and self._publish():
            self._published = now

    def _publish(self) -> bool:
        """Replace the status. It is a view: where it cannot be written, what was acknowledged stands, and it is tried again."""
        status = status_of(self.state, self._barrier.digest)
        if status is None:
            return True
        try:
            self._barrier.publish_status(encode_status(status))
        except LeaseLost:
            raise
        except StoreError as error:
            self.warnings = (*self.warnings, f"status.json could not be written: {error}")
            return False
        return True

    def publish_if_stale(self) -> None:
        """A process that died behind `run_finished` may have left a status that still says `running`."""
        found = decode_status(self._ground.store.read_status(self.state.session))
        if found is None or found.head_seq < self.state.head or found.state == "running":
            self._publish()


class Carried:
    """One carrying of a run by an actor, to wait for."""

    def __init__(self, actor: SessionActor, task: "asyncio.Task[None] | None") -> None:
        """`task` is None where there was nothing to carry."""
        self._actor = actor
        self._task = task

    async def to_rest(self) -> Session:
        """Wait until the run has its terminal or the process stopped it; raises what kept it from going on."""
        if self._task is not None:
            await asyncio.wait({self._task})
            if not self._task.cancelled():
                self._task.result()
        return self._actor.state


async def _to_rest(carrying: Coroutine[None, None, None], kit: Kit) -> None:
    """Carry a run to its rest, then end what serves its tools: a session may be held for many runs, one after the other."""
    try:
        await carrying
    finally:
        await kit.close_sources()


def waits_for_somebody(session: str, pause: WaitKind) -> SessionBusy:
    """The refusal of a message that would start a run, by one that is paused."""
    return SessionBusy(
        f"session {session!r} has an open run that waits ({pause}); `semel inbox` says for what. "
        f"A delivery of `queue` or `interrupt` does not wait for it"
    )


async def open_actor(ground: Ground, session: str, left: Left | None = None) -> SessionActor:
    """Take the session's lease and fold its log, or what is new in it behind where this process `left` it.

    Raises SessionBusy, LogDamaged, NewerWriter, CorruptLog.
    """
    feed = Feed()
    writer, barrier = await open_session(ground, session, feed, left)
    return SessionActor(ground, writer, barrier, feed, None if left is None else left.rendered)
