"""What a runtime does in its sessions: enter one, carry a run on, start what waits in the queue, do what is due."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from semel.core.decide import due_message
from semel.core.due import due_at, is_idle, overdue
from semel.core.effects import AnswerApproval, Send
from semel.core.policy import Policy, allow_all
from semel.core.state import QueuedMessage, Run
from semel.core.values import UserMessage
from semel.core.waiting import WaitKind, pause_of
from semel.engine.alarm import FIRST_AGAIN_SECONDS, MOST_AGAIN_SECONDS
from semel.engine.diary import EVERY_SESSION
from semel.engine.inbox import Choose
from semel.engine.kit import Kit, closing_kit
from semel.engine.outside import Doors, Prepared
from semel.engine.resume import Ground
from semel.engine.session import SessionActor, waits_for_somebody
from semel.engine.sessions import Begin, Sessions, StartNext
from semel.errors import BadAgent, OutcomePending, SemelError
from semel.faces.crew import AgentAny, Crew
from semel.faces.run import RunHandle, stopped
from semel.faces.views import check_known, view_of

OutputT = TypeVar("OutputT")


class RunKeeper:
    """The sessions and the agents of a runtime, brought together."""

    def __init__(self, ground: Ground, crew: Crew, *, carries: bool = True, looks: bool = False) -> None:
        """`carries` is False for a process that only records what is asked, and leaves runs to others.

        One that `looks` goes on with what another process has answered in a session that this one gave back.
        """
        self.ground = ground
        self.crew = crew
        look_again = self._look_again if looks else None
        next_run = self.starter if carries else None
        self.sessions = Sessions(ground, next_run=next_run, wake=self.carry_on, look_again=look_again)
        self.carries = carries
        self.deliveries: Doors[tuple[str, str]] = Doors()

    async def enter(self, session: str, begin: Begin, output: type[OutputT] | None = None) -> RunHandle[OutputT] | None:
        """Do something in a session; the handle of the run that it concerns, if there is one. Raises as `Sessions.enter` does."""
        entered = await self.sessions.enter(session, begin)
        if entered.run_id is None:
            return None
        state = entered.actor.state
        return RunHandle(
            entered.run_id,
            entered,
            self.ground,
            output=output or self.crew.output_of(state, entered.run_id),
            left=lambda: self.sessions.left,
        )

    def check_open_run(self, session: str) -> bool:
        """Whether a session has a run that a dead process left open, and that can go on here; by reading alone.

        Raises BadAgent for an agent that is not found or has other tools, BundleRefused, LogDamaged, NewerWriter.
        """
        store = self.ground.store
        run = view_of(store, session).state.run if session not in self.sessions.actors and store.exists(session) else None
        if run is not None:
            self.crew.check(run, session)
        return run is not None

    async def resume_all(self) -> None:
        """Carry on what dead processes left open, and wait for what is due; what cannot be is in `sessions.unrecovered`.

        Raises nothing. What keeps the sessions from being told at all is there as that of `EVERY_SESSION`, and in the diary; they
        are asked for again, later each time.
        """
        for session in await self._sessions_told():
            await asyncio.sleep(0)
            try:
                await self._recover(session)
            except Exception as error:  # noqa: BLE001  one session that breaks keeps no other from being resumed
                self._not_recovered(session, error)
                self.sessions.try_again(session, error)

    async def _sessions_told(self) -> Sequence[str]:
        """All sessions, once they can be told."""
        pause_seconds = FIRST_AGAIN_SECONDS
        while True:
            try:
                strays, sessions = self.ground.store.strays(), self.ground.store.sessions()
            except Exception as error:  # noqa: BLE001  nobody waits for this task, so nobody else would tell of it
                self._not_recovered(EVERY_SESSION, error)
                await self.ground.clock.sleep(pause_seconds)
                pause_seconds = min(2 * pause_seconds, MOST_AGAIN_SECONDS)
                continue
            self.sessions.unrecovered.pop(EVERY_SESSION, None)
            self.sessions.diary.recovered(EVERY_SESSION)  # what each of them owes is told of itself from here on
            for name, stray in strays.items():
                self._not_recovered(name, stray)
            return sessions

    def _not_recovered(self, session: str, error: Exception) -> None:
        self.sessions.unrecovered[session] = error
        self.sessions.write_down(session, "recover", error)

    async def _look_again(self, session: str) -> None:
        """Go on with a session that others have written to. One whose key was refused here is not asked for again by that."""
        await self._recover(session, unless=WaitKind.AUTH_REQUIRED)

    async def _recover(self, session: str, *, unless: WaitKind | None = None) -> None:
        mark = self.ground.store.mark(session)
        view = view_of(self.ground.store, session)
        state, due = view.state, due_message(view.state)
        ref = state.run.agent if state.run is not None else due.request.agent if due is not None else None
        if view.owner is None:
            self.sessions.teller.look_at(state)  # a process that died may have told nobody
        if view.owner is None and (state.run is None or is_idle(state)):
            self.sessions.unrecovered.pop(session, None)  # whatever kept it from being read does so no more
        if ref is None or ref.name not in self.crew.names:
            return
        if view.owner is not None:
            self.sessions.watch(session, None)  # it may be given back before its work is done
        elif state.run is None:
            await self.sessions.enter(session, self._look)  # behind it the queue starts its next run
        elif is_idle(state) or (unless is not None and pause_of(state) is unless):
            self.sessions.alarm.set(session, due_at(state))
            self.sessions.watch(session, mark)
        else:
            self.check_open_run(session)
            await self.sessions.enter(session, self.carry_on)

    async def _look(self, actor: SessionActor) -> None:
        actor.publish_if_stale()

    async def behind_open_run(
        self,
        session: str,
        begin: Begin,
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
                stranded = run is not None and not actor.running and not used and not is_idle(actor.state)
                return await (self.carry_on(actor) if stranded else begin(actor))

            handle = await self.enter(session, either, output)
            if not stranded or handle is None:
                return handle
            state = await handle.rest()
            ended, pause = state.ended.get(handle.run_id), pause_of(state)
            if ended is None and pause is not None and pause is not WaitKind.RESTART:
                raise waits_for_somebody(session, pause)
            if ended is None:
                raise stopped(session, handle.run_id)
            if ended.unknown:
                raise OutcomePending(
                    f"session {session!r}: the run before was cut short and the outcome of {len(ended.unknown)} of its calls is "
                    f"unknown. Your request was not accepted. See `semel inbox`, then ask again"
                )

    async def carry_on(self, actor: SessionActor) -> str | None:
        """Carry the open run on, unless it only waits; its id, None where no run is open. Raises BadAgent, BundleRefused."""
        await self._record_overdue(actor)
        run = actor.state.run
        if run is None:
            actor.publish_if_stale()
            return None
        if not actor.running and not is_idle(actor.state):
            await actor.resume(self.crew.kit_of(run, actor.state.session))
        return run.run_id

    async def tell(self, session: str, ask: Callable[[SessionActor], Choose]) -> RunHandle[Any] | None:
        """Ask something of a session that exists; a run that nobody carried and that can go on now does, if its agent is here."""
        check_known(self.ground.store, session)

        async def begin(actor: SessionActor) -> str | None:
            run = actor.state.run
            await self.ask(actor, ask(actor))
            return None if run is None else run.run_id

        return await self.enter(session, begin)

    async def ask(self, actor: SessionActor, choose: Choose) -> None:
        """Ask something of a session that is held; then a run that nobody carried and that can go on does."""
        if not await actor.ask(choose) and self.carries and actor.state.run is not None and not is_idle(actor.state):
            try:
                await self.carry_on(actor)
            except BadAgent as error:  # what was asked is durable; whoever has the agent goes on
                self.sessions.write_down(actor.state.session, "begin", error)

    def policy_for(self, command: AnswerApproval, actor: SessionActor) -> Policy:
        """What rules on the arguments that a person changed, carried or not. Raises BadAgent, BadSettings."""
        run = actor.state.run
        if command.arguments is None or run is None:
            return allow_all
        return actor.policy if actor.running else self.crew.policy_of(run, actor.state.session)

    def kit_to_close(self, run: Run, session: str) -> Kit:
        """What a cancelled run is closed with: its agent's kit, where that can still carry it."""
        try:
            self.crew.check(run, session)
            return self.crew.kit_of(run, session)
        except SemelError:
            return closing_kit()

    def starter(self, *, go_on: bool = False) -> StartNext:
        """What starts the run of the message whose turn it is in one session; `go_on` passes over an unknown call (P31).

        Raises BadAgent where the message's agent is not at hand, BadSettings, UnknownModel.
        """
        prepared: Prepared[tuple[Send, Kit]] = Prepared()

        async def start(actor: SessionActor) -> bool:
            due = due_message(actor.state, go_on=go_on)
            if due is None:
                return False
            message, agent = due, self.crew.agent_of(due.request.agent, actor.state.session)
            slow = bool(agent.sources())
            command, kit = await prepared.take(due.key, lambda: self._next_run(message, agent), slow=slow)
            await actor.send(command, kit)
            return True

        return start

    async def _next_run(self, due: QueuedMessage, agent: AgentAny) -> tuple[Send, Kit]:
        message = due.request.input[0].content
        said = message if isinstance(message, UserMessage) else UserMessage(text="")
        delivery = due.delivery or "queue"
        return await self.crew.new_run(agent, said.text, due.key, due.request.context, delivery, parts=said.parts)

    async def _record_overdue(self, actor: SessionActor) -> None:
        """What time has decided of a run that waited, one thing after the other."""
        while actor.state.run is not None and not actor.running:
            now_ms, head = self.ground.clock.now_ms(), actor.state.head
            await actor.ask(lambda state, under_way: overdue(state, now_ms, under_way))  # noqa: B023  awaited within its round
            if actor.state.head == head:
                return
