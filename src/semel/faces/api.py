"""The Python API: a Runtime of sessions and runs. Async; `faces.sync` has the one door for everybody else.

async with Runtime("./state", agents=[support]) as runtime:
session = runtime.session("customer-42", agent=support)
run = await session.send("Refund order 17", key="ticket-99")     # answered once durable
match await run.result(): ...
"""

import asyncio
import os
import weakref
from collections.abc import Awaitable, Callable, Iterator, Sequence
from types import TracebackType
from typing import Any, Generic, Literal, Self, TypeVar

from semel import wiring
from semel.core.decide import known_delivery
from semel.core.decide import resolve as decide_verdict
from semel.core.effects import Resolve, Send
from semel.core.guards import check_tools
from semel.core.records import AgentRef, Verdict
from semel.core.state import Session
from semel.core.status import Status, status_of
from semel.core.texts import CONTINUE_INPUT
from semel.core.values import JSON
from semel.engine.diary import Diary, StopOutcome
from semel.engine.kit import Kit
from semel.engine.resume import Ground
from semel.engine.session import Carried, SessionActor, open_actor
from semel.errors import BadAgent, CorruptLog, OutcomePending, RuntimeLeft, SemelError, StoreError, need
from semel.faces.agent import Agent, checked_delivery, checked_verdict, kit_for_new_run, kit_for_open_run, send_command
from semel.faces.files import Files, attached
from semel.faces.run import RunHandle, stopped
from semel.faces.views import InboxItem, events_behind, find_call, inbox_of, is_known, view_of
from semel.settings import read_settings

AgentAny = Agent[Any]
AgentFinder = Callable[[AgentRef, str], AgentAny]
"""Finds the agent that the log of a session names. Raises BadAgent, whose message says what to do."""
OutputT = TypeVar("OutputT")
DRAIN_SECONDS = 30.0


class Runtime:
    """All sessions of one state directory, for as long as the `async with` block lasts.

    `recover="auto"` resumes every open run whose lease is free and whose agent is among `agents` when the block is entered. On
    leaving, nothing new is started, calls under way get `drain_seconds` to come back and are recorded, and a run that is not
    finished stays open for a resume. `diary` tells what went wrong meanwhile, `stop_outcome` how it was left (F6-F11).
    """

    def __init__(
        self,
        state: str | os.PathLike[str] | None = None,
        *,
        agents: Sequence[AgentAny] = (),
        deps: object = None,
        recover: Literal["auto", "manual"] = "auto",
        inline_sync: bool = False,
        drain_seconds: float = DRAIN_SECONDS,
        find_agent: AgentFinder | None = None,
        ground: Ground | None = None,
    ) -> None:
        """`inline_sync` suits a process whose event loop serves nothing else. `ground` replaces the embedded store, for tests."""
        self.unrecovered: dict[str, Exception] = {}
        self.diary = Diary()
        self.stop_outcome: StopOutcome | None = None
        self._agents = {agent.name: agent for agent in agents}
        self._deps = deps
        self._recover = recover
        self._drain_seconds = drain_seconds
        self._find_agent = find_agent
        self._ground = ground or wiring.ground_of(read_settings(state, inline_sync=inline_sync))
        self._actors: dict[str, SessionActor] = {}
        self._minders: set[asyncio.Task[Session]] = set()
        self._doors: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()
        self._left = False
        self._recovery: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        if self._recover == "auto" and self._agents:
            self._recovery = asyncio.ensure_future(self._resume_all())
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._left = True
        held, before = tuple(sorted(self._actors)), self.diary.count
        if self._recovery is not None:
            self._recovery.cancel()
            await asyncio.wait({self._recovery})
        await self._stop_all()
        for door in list(self._doors.values()):
            async with door:  # whoever is within has begun before we left; what it began is stopped below
                pass
        await self._stop_all()
        if self._minders:
            await asyncio.wait(self._minders)
        self.stop_outcome = StopOutcome(sessions=held, failures=self.diary.since(before), debts=dict(self.diary.debts))

    async def _stop_all(self) -> None:
        await asyncio.gather(*(actor.stop(self._drain_seconds) for actor in list(self._actors.values())))

    def session(self, session: str | None = None, *, agent: Agent[OutputT], context: JSON = None) -> "SessionHandle[OutputT]":
        """A session by its id, or a new one. `context` is durable JSON that tools and instructions see, in each send."""
        self._agents.setdefault(agent.name, agent)
        name = session if session is not None else f"s-{self._ground.ids.fresh()[:16]}"
        return SessionHandle(self, name, agent, context)

    def inbox(self) -> list[InboxItem]:
        """All calls whose outcome is unknown, over all sessions."""
        return list(inbox_of(self._ground.store))

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
        item = find_call(self._ground.store, call)
        command = checked_verdict(item.call.call_key, verdict, by=by, output=output, note=note)
        new = decide_verdict(view_of(self._ground.store, item.session).state, command)  # refuses before the lease is taken
        if not new and not go_on:
            return None

        async def record(actor: SessionActor) -> None:
            await actor.resolve(command)

        if not go_on:
            await self._start(item.session, record)  # a verdict does not need the run that is open, and does not wait for it
            return None
        self.check_open_run(item.session)

        key = f"continue:{command.call_key}"

        async def begin(actor: SessionActor) -> str:
            run_id = await self._continue(actor, command, item.call.run_id, key)
            if actor.state.run is not None and actor.state.run.run_id == run_id:
                await self._resume_open_run(actor)  # an equal verdict again, behind a death in the run that it began
            return run_id

        return await self._behind_open_run(item.session, begin, key=key)

    async def resume(self, session: str) -> RunHandle[Any] | None:
        """Carry on the open run of a session; None if it has none. Raises BadAgent, SessionBusy, LogDamaged, NewerWriter."""
        view_of(self._ground.store, session)
        self.check_open_run(session)
        return await self._start(session, self._resume_open_run)

    def check_open_run(self, session: str) -> bool:
        """Whether a session has a run that a dead process left open, and that can go on here; by reading alone.

        Raises BadAgent for an agent that is not found or has other tools, BundleRefused, LogDamaged, NewerWriter.
        """
        store = self._ground.store
        run = view_of(store, session).state.run if session not in self._actors and store.exists(session) else None
        if run is not None:
            agent = self._agent_of(run.agent, session)
            kit = kit_for_open_run(agent, run.config, self._deps, self._ground.clock)
            check_tools(run.tools, {name: tool.spec for name, tool in kit.tools.items()}, run.agent.name)
        return run is not None

    async def send(
        self, session: str, agent: Agent[OutputT], text: str, key: str | None, context: JSON, *, files: Files = ()
    ) -> RunHandle[OutputT]:
        """Start a run; see `SessionHandle.send`. What is refused here has written nothing."""
        beside = attached(files)
        text, key, context = checked_delivery(text, self._ground.ids.fresh() if key is None else key, context)

        def build() -> tuple[Send, Kit]:
            kit = kit_for_new_run(agent, self._deps, self._ground.clock)
            return send_command(agent, kit, text, key, context, parts=beside.parts), kit

        try:
            built = build()
        except SemelError:
            if not is_known(
                self._ground.store, session, key
            ):  # a key is asked first: a finished run needs neither its agent nor its model
                raise
            built = None

        async def begin(actor: SessionActor) -> str:
            known = known_delivery(actor.state, key, text, context, parts=beside.parts)
            if known is not None:
                if actor.state.run is None or actor.state.run.run_id == known:
                    await self._resume_open_run(actor)
                return known
            command, kit = built or build()
            await actor.keep(beside.contents)
            return await actor.send(command, kit)

        handle = await self._behind_open_run(session, begin, agent.output, key=key)
        return need(handle, "a send has a run")

    def status(self, session: str) -> Status | None:
        """See `SessionHandle.state`."""
        store = self._ground.store
        if not store.exists(session):
            return None
        view = view_of(store, session)
        return status_of(view.state, view.frames[-1].digest)

    def events(self, session: str, after: int) -> Iterator[dict[str, Any]]:
        """See `SessionHandle.events`."""
        return events_behind(self._ground.store, session, after)

    async def _behind_open_run(
        self,
        session: str,
        begin: Callable[[SessionActor], Awaitable[str | None]],
        output: type[OutputT] | None = None,
        key: str | None = None,
    ) -> RunHandle[OutputT] | None:
        """Do what is asked, behind a run that a dead process left open: that is carried to its rest first, outside the door.

        A key that was used before does not wait behind it: it is answered with its own run.
        """
        while True:
            stranded = False

            async def either(actor: SessionActor) -> str | None:
                nonlocal stranded
                run = actor.state.run
                used = key is not None and key in actor.state.keys
                stranded = run is not None and not actor.running and not used
                return await (self._resume_open_run(actor) if stranded else begin(actor))

            handle = await self._start(session, either, output)
            if not stranded or handle is None:
                return handle
            ended = (await handle.rest()).ended.get(handle.run_id)
            if ended is None:
                raise stopped(session, handle.run_id)
            if ended.unknown:
                raise OutcomePending(
                    f"session {session!r}: the run before was cut short and the outcome of {len(ended.unknown)} of its calls is "
                    f"unknown. Your request was not accepted. See `semel inbox`, then ask again"
                )

    async def _resume_open_run(self, actor: SessionActor) -> str | None:
        run = actor.state.run
        if actor.running:
            return None if run is None else run.run_id
        if run is None:
            actor.publish_if_stale()
            return None
        agent = self._agent_of(run.agent, actor.state.session)
        return await actor.resume(kit_for_open_run(agent, run.config, self._deps, self._ground.clock))

    async def _continue(self, actor: SessionActor, command: Resolve, run_id: str, key: str) -> str:
        ended = need(actor.state.ended.get(run_id), "an unknown call is of a finished run")
        agent = self._agent_of(ended.agent, actor.state.session)
        kit = kit_for_new_run(agent, self._deps, self._ground.clock)
        go_on = send_command(agent, kit, CONTINUE_INPUT, key, ended.context)
        return await actor.resolve_and_continue(command, go_on, kit)

    def _agent_of(self, ref: AgentRef, session: str) -> AgentAny:
        agent = self._agents.get(ref.name)
        if agent is None and self._find_agent is not None:
            return self._find_agent(ref, session)
        if agent is None:
            raise BadAgent(f"no agent {ref.name!r} is registered here; pass it in `agents`")
        return agent

    async def _start(
        self, session: str, begin: Callable[[SessionActor], Awaitable[str | None]], output: type[OutputT] | None = None
    ) -> RunHandle[OutputT] | None:
        """Open the session, do what is asked, and hand out the run; give the lease back where nothing is under way."""
        async with self._door(session):
            if self._left:
                raise RuntimeLeft("the runtime was left; send within its `async with` block")
            actor = self._actors.get(session)
            if actor is None:
                try:
                    actor = self._actors[session] = await open_actor(self._ground, session)
                except (StoreError, CorruptLog) as error:
                    self._note(session, "recover", error)
                    raise
            subscription, before = actor.feed.subscribe(), actor.state.head
            try:
                run_id = await begin(actor)
                self.diary.recovered(session)  # it is open, and what it began is durable
            except StoreError as error:
                self._note(session, "begin", error)
                raise
            finally:
                minder = await self._mind_or_close(session, actor)
        if run_id is None:
            return None
        rest = minder
        if rest is None or run_id in actor.state.ended:
            rest = asyncio.get_running_loop().create_future()
            rest.set_result(actor.state)
        return RunHandle(
            run_id,
            store=self._ground.store,
            actor=actor,
            rest=rest,
            subscription=subscription,
            output=output or self._output_of(actor.state, run_id),
            before=before,
        )

    def _output_of(self, state: Session, run_id: str) -> type[Any] | None:
        """The output type of a run's agent, if it is registered here."""
        ended = state.ended.get(run_id)
        ref = ended.agent if ended is not None else state.run.agent if state.run is not None else None
        agent = self._agents.get(ref.name) if ref is not None else None
        return agent.output if agent is not None else None

    def _door(self, session: str) -> asyncio.Lock:
        """One at a time may open a session or begin something in it. A door that nobody stands at is forgotten."""
        door = self._doors.get(session)
        if door is None:
            door = self._doors[session] = asyncio.Lock()
        return door

    async def _mind_or_close(self, session: str, actor: SessionActor) -> "asyncio.Future[Session] | None":
        """Someone who closes the actor behind its run; one that has nothing to carry is closed now."""
        if not actor.running and not actor.unheard:
            await self._close(session, actor)
            return None
        minder = asyncio.ensure_future(self._mind(session, actor, actor.carried()))
        self._minders.add(minder)
        minder.add_done_callback(self._minders.discard)
        return minder

    async def _mind(self, session: str, actor: SessionActor, carried: Carried) -> Session:
        try:
            return await carried.to_rest()
        except Exception as error:
            self._note(session, "carry", error)
            raise
        finally:
            async with self._door(session):
                if not actor.running:
                    await self._close(session, actor)

    async def _close(self, session: str, actor: SessionActor) -> None:
        if self._actors.get(session) is actor:
            del self._actors[session]
        try:
            await actor.close()
        except Exception as error:
            self._note(session, "close", error)
            raise

    async def _resume_all(self) -> None:
        """Resume what a dead process left open; what cannot be is in `unrecovered`, by session."""
        for session in self._ground.store.sessions():
            await asyncio.sleep(0)
            try:
                view = view_of(self._ground.store, session)
                run = view.state.run
                if run is not None and view.owner is None and run.agent.name in self._agents:
                    await self.resume(session)
            except Exception as error:  # noqa: BLE001  one session that breaks keeps no other from being resumed
                self.unrecovered[session] = error
                self._note(session, "recover", error)

    def _note(self, session: str, stage: str, error: BaseException) -> None:
        self.diary.write_down(session, stage, self._ground.clock.now_ms(), error)


class SessionHandle(Generic[OutputT]):
    """A session of a runtime, with the agent that answers in it."""

    def __init__(self, runtime: Runtime, session: str, agent: Agent[OutputT], context: JSON) -> None:
        self.id = session
        self._runtime = runtime
        self._agent = agent
        self._context = context

    async def send(self, text: str, *, key: str | None = None, files: Files = ()) -> RunHandle[OutputT]:
        """Start a run with this message and files (paths, or File); answered once it is durable. The same `key`: the same run.

        Raises KeyReuse (same key, other message), SessionBusy (a run is open), OutcomePending (the run before was just found to
        have an unknown call), BadAgent, BadSettings, UnknownModel, LogDamaged, NewerWriter. Where it raises, nothing was sent.
        """
        return await self._runtime.send(self.id, self._agent, text, key, self._context, files=files)

    async def resume(self) -> RunHandle[Any] | None:
        """Carry on the open run, if there is one."""
        return await self._runtime.resume(self.id)

    def state(self) -> Status | None:
        """What the session is doing, by reading its log; None before its first run."""
        return self._runtime.status(self.id)

    def events(self, *, after: int = 0) -> Iterator[dict[str, Any]]:
        """What the log holds with seq > `after`, in order, up to now; `RunHandle.events` goes on while a run works."""
        return self._runtime.events(self.id, after)
