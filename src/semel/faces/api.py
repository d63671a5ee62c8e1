"""The Python API: a Runtime of sessions and runs. Async; `faces.sync` has the one door for everybody else.

async with Runtime("./state", agents=[support]) as runtime:
session = runtime.session("customer-42", agent=support)
run = await session.send("Refund order 17", key="ticket-99")     # answered once durable
match await run.result(): ...
"""

import asyncio
import os
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, Literal, Self, TypeVar

from semel import wiring
from semel.core.decide import resolve as decide_verdict
from semel.core.effects import Resolve, Send
from semel.core.records import Delivery, LateKind, Verdict
from semel.core.status import Status, status_of
from semel.core.texts import CONTINUE_INPUT
from semel.core.values import JSON
from semel.engine.diary import Diary, StopOutcome
from semel.engine.inbox import Choose
from semel.engine.kit import Kit
from semel.engine.outside import Prepared
from semel.engine.resume import Ground
from semel.engine.session import SessionActor
from semel.errors import ApprovalClosed, SemelError, SessionBusy, UnknownCall, need
from semel.faces.agent import Agent, checked_delivery, checked_verdict
from semel.faces.answering import answer_others
from semel.faces.asking import (
    approval_of,
    cancel_of,
    checked_approval,
    checked_cancel,
    checked_result,
    checked_stop,
    result_of,
    retract_of,
    stop_of,
)
from semel.faces.crew import AgentAny, AgentFinder, Crew
from semel.faces.delivering import Delivering
from semel.faces.files import Files, attached
from semel.faces.handles import SessionHandle
from semel.faces.resources import Resources, resources
from semel.faces.run import RunHandle
from semel.faces.run_keeper import RunKeeper
from semel.faces.signals import Stop
from semel.faces.views import (
    InboxItem,
    WaitingCall,
    answered_approval,
    check_known,
    events_behind,
    find_asked,
    find_call,
    find_waiting_call,
    inbox_of,
    is_known,
    view_of,
)
from semel.ports.control import Served
from semel.ports.roster import ROSTER
from semel.settings import read_settings

OutputT = TypeVar("OutputT")
DRAIN_SECONDS = 30.0


class Runtime:
    """All sessions of one state directory, for as long as the `async with` block lasts.

    `recover="auto"` resumes every open run whose lease is free and whose agent is among `agents` when the block is entered, and
    again when something is due, or when another process has answered or has given back what it held; "manual" leaves that to
    `resume`; "never" also leaves it to others to go on behind what is asked of a run that nobody carries: it is only recorded.
    On leaving, nothing new is started, calls under way get `drain_seconds` to come back and are recorded, and a run that is not
    finished stays open for a resume. A call of a tool with `interruptible=False` is waited for, however long it takes. `diary`
    tells what went wrong meanwhile, `stop_outcome` how it was left (F6-F11). Within the block other processes of this user can
    ask for what concerns the sessions that are held; `unreachable` says why they cannot.
    """

    def __init__(
        self,
        state: str | os.PathLike[str] | None = None,
        *,
        agents: Sequence[AgentAny] = (),
        deps: object = None,
        recover: Literal["auto", "manual", "never"] = "auto",
        inline_sync: bool = False,
        drain_seconds: float = DRAIN_SECONDS,
        find_agent: AgentFinder | None = None,
        ground: Ground | None = None,
    ) -> None:
        """`inline_sync` suits a process whose event loop serves nothing else. `ground` replaces the embedded store, for tests."""
        self.stop_outcome: StopOutcome | None = None
        self._ground = ground or wiring.ground_of(read_settings(state, inline_sync=inline_sync))
        crew = Crew(agents, deps, find_agent, self._ground.clock)
        self._keeper = RunKeeper(self._ground, crew, carries=recover != "never", looks=recover == "auto")
        self._recover = recover
        self._drain_seconds = drain_seconds
        self._recovery: asyncio.Task[None] | None = None
        self._served: Served | None = None
        self.unreachable: str | None = None

    @property
    def diary(self) -> Diary:
        """What went wrong in this process."""
        return self._keeper.sessions.diary

    @property
    def unrecovered(self) -> dict[str, Exception]:
        """What could not be resumed when the block was entered, by session, and no later try has mended since.

        See `Incident.session` for the names.
        """
        return dict(self._keeper.sessions.unrecovered)

    async def __aenter__(self) -> Self:
        self._served, self.unreachable = await answer_others(self, self._keeper)
        if self._recover == "auto" and self._keeper.crew.names:
            self._recovery = asyncio.ensure_future(self._keeper.resume_all())
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._keeper.sessions.left = True
        held, before = tuple(sorted(self._keeper.sessions.actors)), self.diary.count
        if self._recovery is not None:
            self._recovery.cancel()
            await asyncio.wait({self._recovery})
        await self._keeper.sessions.leave(self._drain_seconds)
        if self._served is not None:
            await self._served.close()
        self.stop_outcome = StopOutcome(
            sessions=held,
            failures=self.diary.since(before),
            debts=dict(self.diary.debts),
            deaf=ROSTER.names("thread") + ROSTER.names("task"),
        )

    def session(self, session: str | None = None, *, agent: Agent[OutputT], context: JSON = None) -> "SessionHandle[OutputT]":
        """A session by its id, or a new one. `context` is durable JSON that tools and instructions see, in each send."""
        self._keeper.crew.add(agent)
        name = session if session is not None else f"s-{self._ground.ids.fresh()[:16]}"
        return SessionHandle(self, name, agent, context)

    def resources(self) -> Resources:
        """What is under way in this process: tasks, children, connections, threads; nothing, once all runs have ended."""
        return resources(tuple(sorted(self._keeper.sessions.actors)))

    async def until_stopped(self) -> None:
        """Wait for SIGINT or SIGTERM, then return, so that the block is left in good order; a second one leaves at once.

        For the main thread of a service. On leaving, calls under way get `drain_seconds` to come back and are recorded. Those
        that have not by then are interrupted, and what is still not known is handed over to the next process; a call of a tool
        with `interruptible=False` is waited for, however long it takes.
        """
        stop = Stop()
        stop.listen()  # until the process ends: the second signal may come while the block is being left
        await stop.asked

    def inbox(self) -> list[InboxItem]:
        """All calls whose outcome is unknown, over all sessions. It may read many logs, so a service asks in a thread."""
        return list(inbox_of(self._ground.store))

    def new_key(self) -> str:
        """A key that nobody has used."""
        return self._ground.ids.fresh()

    async def send(
        self,
        session: str,
        agent: Agent[OutputT],
        text: str,
        *,
        key: str | None = None,
        context: JSON = None,
        delivery: Delivery | None = None,
        files: Files = (),
    ) -> RunHandle[OutputT]:
        """Start a run, or deliver a message; see `SessionHandle.send`. What is refused here has written nothing."""
        text, key, context = checked_delivery(text, self.new_key() if key is None else key, context)
        beside = attached(files)

        coming = Delivering(
            keeper=self._keeper, agent=agent, text=text, key=key, context=context, delivery=delivery, beside=beside
        )
        async with self._keeper.deliveries.of((session, key)):  # tried again meanwhile, it is answered by its key, not by hooks
            if delivery is not None:
                handle = await self._keeper.enter(session, coming.into, agent.output)
                return need(handle, "a message has a run")
            try:
                await coming.build(starts=True)
            except SemelError:
                if not is_known(self._ground.store, session, key):  # a finished run needs neither its agent nor its model
                    raise
            handle = await self._keeper.behind_open_run(session, coming.into, agent.output, key=key)
        return need(handle, "a message has a run")

    async def retract(self, session: str, key: str, *, by: str | None = None) -> None:
        """Take back a message that waits in the queue. Raises UnknownMessage, UnknownSession."""
        await self._keeper.tell(session, lambda _: retract_of(key, by))

    async def cancel(
        self, session: str, *, at: Literal["now", "step_boundary"] = "now", by: str | None = None
    ) -> RunHandle[Any] | None:
        """End the open run; answered once that is durable. None where no run is open, which is answered alike (FACT18).

        A run that nobody carries is closed out here, without its agent where that is not at hand: then nobody asks what became of
        a call that a dead process may have sent, and it is unknown.
        """
        return await self._end(session, cancel_of(checked_cancel(at, by)))

    async def stop(self, session: str, *, by: str | None = None) -> RunHandle[Any] | None:
        """End the open run as `max_steps`, behind its turn or at once where it waits (A7, R38); otherwise as `cancel`."""
        return await self._end(session, stop_of(checked_stop(by)))

    async def _end(self, session: str, choose: Choose) -> RunHandle[Any] | None:
        async def begin(actor: SessionActor) -> str | None:
            run = actor.state.run
            if run is not None and not await actor.ask(choose) and actor.state.run is not None:
                await actor.resume(self._keeper.kit_to_close(run, session), checked=False)
            return None if run is None else run.run_id

        check_known(self._ground.store, session)
        return await self._keeper.enter(session, begin)

    async def approve(
        self, call: str, *, by: str | None = None, arguments: str | None = None, note: str | None = None
    ) -> RunHandle[Any] | None:
        """Let a call go, named by its key or the start of it; `arguments` are changed ones, as JSON text.

        The run goes on behind the last answer of its batch, here if its agent is at hand. The same answer again changes nothing.
        Raises UnknownCall, ApprovalClosed, UsageError for arguments that do not fit or that a rule forbids, BadSettings.
        """
        return await self._decide(call, "approved", by=by, arguments=arguments, note=note)

    async def deny(self, call: str, *, by: str | None = None, note: str | None = None) -> RunHandle[Any] | None:
        """Refuse a call; the model is told. See `approve`."""
        return await self._decide(call, "denied", by=by, arguments=None, note=note)

    async def deliver(
        self, call: str, text: str, *, is_error: bool = False, kind: LateKind = "delivered", event_id: str | None = None
    ) -> RunHandle[Any] | None:
        """Bring the result that a held or deferred call owes, named by its key, the start of it, or its handle.

        A run that waited for it goes on by itself; else the session's next request has it. Raises UnknownCall, KeyReuse.
        """
        found = await asyncio.to_thread(find_waiting_call, self._ground.store, call)
        command = checked_result(found.call.call_key, text, is_error=is_error, kind=kind, event_id=event_id)
        return await self._keeper.tell(found.session, lambda _: result_of(command))

    async def _decide(
        self, call: str, decision: str, *, by: str | None, arguments: str | None, note: str | None
    ) -> RunHandle[Any] | None:
        found = await asyncio.to_thread(find_asked, self._ground.store, call)
        if isinstance(found, WaitingCall):
            key, session = found.call.call_key, found.session
            command = checked_approval(key, decision, by=by, arguments=arguments, note=note)
            try:
                rules = self._keeper.policy_for
                return await self._keeper.tell(session, lambda actor: approval_of(command, rules(command, actor)))
            except UnknownCall:  # it may have been answered since it was found, and its run have gone on
                stands = await asyncio.to_thread(answered_approval, self._ground.store, key, [session])
                if stands is None:
                    raise
                found = stands
        if (found.decision, found.args) != (decision, arguments):
            raise ApprovalClosed(f"call {found.call_key} was {found.decision}; an answer stands")
        return None

    async def resolve(
        self,
        call: str,
        verdict: Verdict,
        *,
        output: str | None = None,
        note: str | None = None,
        by: str = "operator",
        go_on: bool = False,
    ) -> RunHandle[Any] | None:
        """Record what became of an unknown call, named by its key or the start of it; with `go_on`, the session continues.

        An equal verdict again changes nothing. Raises UnknownCall, VerdictConflict, SessionBusy.
        """
        item = await asyncio.to_thread(find_call, self._ground.store, call)
        command = checked_verdict(item.call.call_key, verdict, by=by, output=output, note=note)
        view = await asyncio.to_thread(view_of, self._ground.store, item.session)
        new = decide_verdict(view.state, command)  # refuses before the lease is taken
        if not new and not go_on:
            return None

        async def record(actor: SessionActor) -> None:
            await actor.resolve(command)

        if not go_on:
            await self._keeper.enter(
                item.session, record
            )  # a verdict does not need the run that is open, and does not wait for it
            return None
        self.check_open_run(item.session)

        key, prepared = f"continue:{command.call_key}", Prepared[tuple[Send, Kit]]()

        async def begin(actor: SessionActor) -> str:
            run_id = await self._continue(actor, command, item.call.run_id, key, prepared)
            if actor.state.run is not None and actor.state.run.run_id == run_id:
                await self._keeper.carry_on(actor)  # an equal verdict again, behind a death in the run that it began
            return run_id

        return await self._keeper.behind_open_run(item.session, begin, key=key)

    async def resume(self, session: str, *, go_on: bool = False) -> RunHandle[Any] | None:
        """Carry on the open run of a session; None if it has none. With `go_on`, else its next queued message starts (P31).

        Raises BadAgent, SessionBusy, LogDamaged, NewerWriter.
        """
        check_known(self._ground.store, session)
        self.check_open_run(session)

        start_next = self._keeper.starter(go_on=go_on)

        async def begin(actor: SessionActor) -> str | None:
            run_id = await self._keeper.carry_on(actor)
            if run_id is None and await start_next(actor):
                return actor.state.newest
            return run_id

        return await self._keeper.enter(session, begin)

    def check_open_run(self, session: str) -> bool:
        """See `RunKeeper.check_open_run`."""
        return self._keeper.check_open_run(session)

    def status(self, session: str) -> Status | None:
        """See `SessionHandle.state`."""
        store = self._ground.store
        if not store.exists(session):
            return None
        view = view_of(store, session)
        return status_of(view.state, view.state.digest)

    def events(self, session: str, after: int) -> Iterator[dict[str, Any]]:
        """See `SessionHandle.events`."""
        return events_behind(self._ground.store, session, after)

    async def _continue(
        self, actor: SessionActor, command: Resolve, run_id: str, key: str, prepared: Prepared[tuple[Send, Kit]]
    ) -> str:
        ended = actor.state.ended.get(run_id)
        if ended is None:
            raise SessionBusy(f"session {actor.state.session!r}: the run of this call is just being closed; ask again")
        agent, context = self._keeper.crew.agent_of(ended.agent, actor.state.session), ended.context
        new_run = self._keeper.crew.new_run
        go_on, kit = await prepared.take(key, lambda: new_run(agent, CONTINUE_INPUT, key, context), slow=bool(agent.sources()))
        return await actor.resolve_and_continue(command, go_on, kit)
