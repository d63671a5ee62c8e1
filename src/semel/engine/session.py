"""One actor per session: the single writer, its fold, and the task that carries its open run.

An actor lives as long as it holds the lease: it is opened for a run and closed behind it (L1, L4).
"""

import asyncio
from collections.abc import Sequence

from semel.core.decide import continue_run, known_delivery, resolve, send
from semel.core.effects import Decision, Resolve, Send
from semel.core.fold import fold
from semel.core.guards import check_tools
from semel.core.records import Record
from semel.core.recover import recover
from semel.core.state import Logged, Session
from semel.core.status import decode_status, encode_status, status_of
from semel.engine.barrier import Barrier
from semel.engine.feed import Feed
from semel.engine.flights import Flights
from semel.engine.kit import Kit
from semel.engine.loop import run_to_rest
from semel.engine.perform import Performer
from semel.engine.resume import Ground, end_leftovers, open_session
from semel.errors import SessionBusy
from semel.ports.log import LogWriter


class SessionActor:
    """The single writer of one session. Open it with `open_actor`."""

    def __init__(self, ground: Ground, writer: LogWriter, barrier: Barrier, feed: Feed) -> None:
        self.feed = feed
        self.leftovers: tuple[str, ...] = ()
        self.warnings: tuple[str, ...] = ()
        self._ground = ground
        self._writer = writer
        self._barrier = barrier
        self._task: asyncio.Task[None] | None = None
        self._flights: Flights | None = None
        self._kits: list[Kit] = []
        self._stopping = False
        self._published: tuple[str | None, bool] | None = None

    @property
    def running(self) -> bool:
        """Whether a run is being carried in this process."""
        return self._task is not None and not self._task.done()

    @property
    def state(self) -> Session:
        """The state after the latest durable record."""
        return self._barrier.state

    async def send(self, command: Send, kit: Kit) -> str:
        """Start a run; answered with its id once `run_started` is durable. A key that was used before answers with its run.

        Raises KeyReuse, and SessionBusy while another run is open.
        """
        known = known_delivery(self.state, command.key, command.text, command.context)
        if known is not None:
            return known
        self._refuse_second_run()
        await self._start(send(self.state, command), kit)
        return self._newest()

    async def resume(self, kit: Kit) -> str | None:
        """Carry on the open run; answered with its id once that is durable, None if no run is open.

        Raises BadAgent where the kit's tools are not those that the run was frozen with.
        """
        run = self.state.run
        if run is None:
            self.publish_if_stale()
            return None
        if self._task is None:
            specs = {name: tool.spec for name, tool in kit.tools.items()}
            self.warnings = check_tools(run.tools, specs, run.agent.name)
            performer = self._performer(kit)
            self.leftovers = await end_leftovers(self.state, performer)
            await self._start(recover(self.state), kit)
        return run.run_id

    async def resolve(self, command: Resolve) -> None:
        """Make a verdict durable; an equal one again changes nothing. Raises UnknownCall, VerdictConflict."""
        await self._barrier.commit(resolve(self.state, command))
        self._publish()

    async def resolve_and_continue(self, command: Resolve, go_on: Send, kit: Kit) -> str:
        """A verdict and the run that goes on after it, in one write; answered with that run's id (design 14)."""
        verdict = resolve(self.state, command)
        known = self.state.continued.get(command.call_key)
        if known is not None:
            return known
        self._refuse_second_run()
        decided = continue_run(self._ahead(verdict), go_on, command.call_key)
        await self._start(Decision(records=(*verdict, *decided.records), effects=decided.effects), kit)
        return self._newest()

    async def at_rest(self) -> Session:
        """Wait until the run has its terminal or the process stops it; raises what kept the run from going on."""
        if self._task is not None:
            await asyncio.shield(self._task)
        return self.state

    async def stop(self, drain_seconds: float) -> None:
        """Start nothing new, give calls that are under way that long to come back, and rest. The run stays open for a resume."""
        self._stopping = True
        if self._flights is not None:
            self._flights.stop_asking()
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=drain_seconds)
            self._task.cancel()
            await asyncio.wait({self._task})

    async def close(self) -> None:
        """Give the lease back; a run that is still under way is cut off as by a crash, so `stop` first."""
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait({self._task})
        try:
            for kit in self._kits:
                await kit.close()
        finally:
            await self._writer.close()

    async def _start(self, first: Decision, kit: Kit) -> None:
        """Begin to carry the run; returns when its first barrier is durable, raises if it failed."""
        self._kits.append(kit)
        run_flights = Flights(self._performer(kit), lambda: self.state)
        durable: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def after() -> None:
            self._publish_on_change()
            if not durable.done():
                durable.set_result(None)

        carrying = run_to_rest(
            first, self._barrier, run_flights, self._ground.clock, stopping=lambda: self._stopping, after=after
        )
        self._flights, self._task = run_flights, asyncio.ensure_future(carrying)
        await asyncio.wait({durable, self._task}, return_when=asyncio.FIRST_COMPLETED)
        if not durable.done():
            task, self._task = self._task, None
            task.result()

    def _performer(self, kit: Kit) -> Performer:
        return Performer(barrier=self._barrier, feed=self.feed, clock=self._ground.clock, kit=kit)

    def _ahead(self, records: Sequence[Record]) -> Session:
        """The state as it will be after these records."""
        state = self.state
        return fold(
            (
                Logged(seq=state.head + place, at_ms=state.last_at_ms, fence=self._writer.fence, record=record)
                for place, record in enumerate(records, start=1)
            ),
            state,
        )

    def _refuse_second_run(self) -> None:
        if self.state.run is not None:
            raise SessionBusy(
                f"session {self.state.session!r} has an open run ({self.state.run.run_id[:8]}); wait for it, then send again"
            )
        self._task = self._flights = None

    def _newest(self) -> str:
        return self.state.newest or ""

    def _publish_on_change(self) -> None:
        """At the start of a run, at its end, and when a resume takes it up."""
        now = (self.state.newest, self.state.run is None)
        if now != self._published:
            self._published = now
            self._publish()

    def _publish(self) -> None:
        status = status_of(self.state, self._barrier.digest)
        if status is not None:
            self._barrier.publish_status(encode_status(status))

    def publish_if_stale(self) -> None:
        """A process that died behind `run_finished` may have left a status that still says `running`."""
        found = decode_status(self._ground.store.read_status(self.state.session))
        if found is None or found.head_seq < self.state.head or found.state == "running":
            self._publish()


async def open_actor(ground: Ground, session: str) -> SessionActor:
    """Take the session's lease and fold its log. Raises SessionBusy, LogDamaged, NewerWriter, CorruptLog."""
    feed = Feed()
    writer, barrier = await open_session(ground, session, feed)
    return SessionActor(ground, writer, barrier, feed)
