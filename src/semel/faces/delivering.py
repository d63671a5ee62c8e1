"""A message on its way into a session: made ready outside the session's door, placed within it.

Its hooks and the servers of its agent's tools may take their time, and what they saw may be stale then. So the key is looked up
and the way is chosen anew each time it is let in, and its place in the log is that where it became durable.
"""

from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from semel.core.decide import known_delivery, route
from semel.core.effects import Message, Send
from semel.core.hook_notes import HookNote
from semel.core.records import Delivery
from semel.core.state import Session
from semel.core.values import JSON
from semel.engine.hooks import Asker
from semel.engine.kit import Kit
from semel.engine.outside import NotReady
from semel.engine.session import SessionActor
from semel.faces.agent import Agent
from semel.faces.asking import RouteChanged, message_of
from semel.faces.files import Attached, check_files
from semel.faces.run_keeper import RunKeeper

Built = tuple[Send, Kit]


@dataclass(kw_only=True)
class Delivering:
    """One message, as the log will hold it; its hooks are asked once, however often it is let in. `beside` are its files."""

    keeper: RunKeeper
    agent: Agent[Any]
    text: str
    key: str
    context: JSON
    delivery: Delivery | None
    beside: Attached
    _built: dict[bool, Built] = field(default_factory=dict)
    _checked: tuple[str, tuple[HookNote, ...]] | None = None

    async def build(self, *, starts: bool) -> Built:
        """What it takes to place it, in a run that `starts` with it or one that is open. Raises as `Crew.new_run` does."""
        if starts not in self._built:
            command, kit = await self.keeper.crew.new_run(
                self.agent, self.text, self.key, self.context, self.delivery, parts=self.beside.parts, starts=starts
            )
            check_files(self.beside.parts, kit.model.bundle)
            self._built[starts] = command, kit
        return self._built[starts]

    async def into(self, actor: SessionActor) -> str:
        """Place it where it belongs now; the id of the run that has it or will have it.

        Raises KeyReuse, SendRetracted, SessionBusy, and NotReady where something is to be made or asked first.
        """
        while True:
            known = self._known(actor.state)
            if known is not None:
                if self.keeper.carries and (actor.state.run is None or actor.state.run.run_id == known):
                    await self.keeper.carry_on(actor)
                return known
            starts = self.delivery is None or route(actor.state, self.delivery) == "send"
            if starts:
                actor.refuse_second_run()  # before anybody is asked about it
            command, kit = await self._ready(actor.state.session, starts=starts)
            await actor.keep(self.beside.contents)
            if self.delivery is None or starts:
                return await actor.send(command, kit)
            try:
                await self.keeper.ask(actor, message_of(self._message(command, self.delivery)))
            except RouteChanged:
                continue
            return actor.state.keys[self.key].run_id

    def _known(self, state: Session) -> str | None:
        delivery = self.delivery or "send"
        return known_delivery(state, self.key, self.text, self.context, delivery, parts=self.beside.parts)

    def _message(self, command: Send, delivery: Delivery) -> Message:
        return Message(
            key=self.key,
            text=command.text,
            delivery=delivery,
            agent=command.agent,
            context=self.context,
            parts=self.beside.parts,
            hooks=command.hooks,
        )

    async def _ready(self, session: str, *, starts: bool) -> Built:
        """What it takes, as the hooks left it. Nothing that may take its time is asked here."""
        takes_time = starts and bool(self.agent.sources())
        if takes_time and starts not in self._built:
            raise NotReady(lambda: self._make_ready(session, starts=starts))
        command, kit = await self.build(starts=starts)
        if not kit.hooks.pre_user:
            return command, kit
        if self._checked is None:
            raise NotReady(lambda: self._make_ready(session, starts=starts))
        text, notes = self._checked
        return replace(command, text=text, hooks=notes), kit

    async def _make_ready(self, session: str, *, starts: bool) -> None:
        """Raises HookRefused, and what `build` raises: then nothing was accepted."""
        _command, kit = await self.build(starts=starts)
        if self._checked is None and kit.hooks.pre_user:
            asker = Asker(hooks=kit.hooks, clock=self.keeper.ground.clock, session=session, context=self.context)
            self._checked = await asker.message(self.text, self.beside.parts)
