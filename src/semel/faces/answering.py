"""What a process that holds sessions does for others: one table of verbs, for those who ask over its socket and for itself.

The command line uses the same table where nobody holds a session: then it takes the lease, and answers itself.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from semel.core.records import Delivery, LateKind, Verdict
from semel.core.values import Frozen
from semel.errors import BadAgent, RuntimeLeft, StoreError, UsageError
from semel.faces.crew import AgentFinder
from semel.faces.run import RunHandle, follow
from semel.faces.views import frame_event, last_agent
from semel.ports.control import Item, Leaving, NotReached, Request, Served
from semel.ports.log import SessionStore

if TYPE_CHECKING:
    from semel.engine.session import SessionActor
    from semel.faces.api import Runtime
    from semel.faces.run_keeper import RunKeeper


class Arguments(Frozen, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a verb takes; this one takes nothing."""


class SendArgs(Arguments, frozen=True, kw_only=True):
    """A message; `key` is made once by whoever sends it, so that asking again is the same message."""

    text: str
    key: str
    delivery: Delivery | None = None


class KeyArgs(Arguments, frozen=True, kw_only=True):
    """A message that waits in the queue."""

    key: str
    by: str | None = None


class CancelArgs(Arguments, frozen=True, kw_only=True):
    """When a run is to end."""

    at: Literal["now", "step_boundary"] = "now"
    by: str | None = None


class StopArgs(Arguments, frozen=True, kw_only=True):
    """Who ends a run behind its turn."""

    by: str | None = None


class ApproveArgs(Arguments, frozen=True, kw_only=True):
    """A call that waits for an approval, by its whole key; `arguments` are changed ones, as JSON text."""

    call: str
    arguments: str | None = None
    note: str | None = None
    by: str | None = None


class DenyArgs(Arguments, frozen=True, kw_only=True):
    """A call that waits for an approval."""

    call: str
    note: str | None = None
    by: str | None = None


class DeliverArgs(Arguments, frozen=True, kw_only=True):
    """The result that a call owes."""

    call: str
    text: str
    is_error: bool = False
    kind: LateKind = "delivered"
    event_id: str | None = None


class ResolveArgs(Arguments, frozen=True, kw_only=True):
    """What became of an unknown call."""

    call: str
    verdict: Verdict
    output: str | None = None
    note: str | None = None
    by: str = "operator"
    go_on: bool = False


class TailArgs(Arguments, frozen=True, kw_only=True):
    """Records with a seq above `after`; with `live`, also what is not durable yet."""

    after: int = 0
    live: bool = True


@dataclass(frozen=True)
class Desk:
    """Does what is asked of a runtime. `find` gives the agent that a message needs, which the runtime need not know itself."""

    runtime: "Runtime"
    store: SessionStore
    find: AgentFinder

    async def perform(self, session: str, verb: str, args: Item) -> RunHandle[Any] | None:
        """Carry out a verb; it is durable when this returns. The handle is of the run that it concerns, if there is one.

        Raises UsageError for a verb or arguments that are none, and what the verb raises.
        """
        if verb not in VERBS:
            raise UsageError(f"there is no verb {verb!r}; it may be one of another version of semel. Use the same for both.")
        form, act = VERBS[verb]
        return await act(self, session, arguments_of(verb, args, form))

    async def send(self, session: str, args: SendArgs) -> RunHandle[Any] | None:
        """Deliver a message with the agent of the newest run. Raises UnknownSession, BadAgent, and what a send raises."""
        ref = last_agent(self.store, session)
        if ref is None:
            raise BadAgent(f"session {session!r} never had a run, so it has no agent yet; start one with `semel run`")
        agent = self.find(ref, session)
        return await self.runtime.send(session, agent, args.text, key=args.key, delivery=args.delivery)


Act = Callable[[Desk, str, Any], Awaitable[RunHandle[Any] | None]]


async def _retract(desk: Desk, session: str, args: KeyArgs) -> None:
    await desk.runtime.retract(session, args.key, by=args.by)


async def _resolve(desk: Desk, _session: str, args: ResolveArgs) -> RunHandle[Any] | None:
    return await desk.runtime.resolve(args.call, args.verdict, output=args.output, note=args.note, by=args.by, go_on=args.go_on)


async def _deliver(desk: Desk, _session: str, args: DeliverArgs) -> RunHandle[Any] | None:
    return await desk.runtime.deliver(args.call, args.text, is_error=args.is_error, kind=args.kind, event_id=args.event_id)


VERBS: dict[str, tuple[type[Arguments], Act]] = {
    "send": (SendArgs, Desk.send),
    "retract": (KeyArgs, _retract),
    "cancel": (CancelArgs, lambda desk, session, args: desk.runtime.cancel(session, at=args.at, by=args.by)),
    "stop": (StopArgs, lambda desk, session, args: desk.runtime.stop(session, by=args.by)),
    "resume": (Arguments, lambda desk, session, _: desk.runtime.resume(session)),
    "approve": (
        ApproveArgs,
        lambda desk, _, args: desk.runtime.approve(args.call, by=args.by, arguments=args.arguments, note=args.note),
    ),
    "deny": (DenyArgs, lambda desk, _, args: desk.runtime.deny(args.call, by=args.by, note=args.note)),
    "deliver": (DeliverArgs, _deliver),
    "resolve": (ResolveArgs, _resolve),
}
"""What can be asked of whoever holds a session, with its arguments. `state` and `tail`, which only read, are apart."""


def arguments_of(verb: str, args: Item, form: Any) -> Any:
    """The arguments of a verb. Raises UsageError, which names the field."""
    try:
        return msgspec.convert(args, form)
    except msgspec.ValidationError as error:
        raise UsageError(f"the arguments of {verb!r} cannot be used: {error}") from None


async def answer_others(runtime: "Runtime", keeper: "RunKeeper") -> tuple[Served | None, str | None]:
    """Let other processes of this user ask for something; the other value says why they cannot, where there is no place for that.

    The sessions work all the same then, and others wait until they are given back.
    """
    control = keeper.ground.control
    if control is None:
        return None, None
    desk = Desk(runtime, keeper.ground.store, keeper.crew.agent_of)

    async def handle(request: Request) -> Item | AsyncGenerator[Item, None]:
        actor = keeper.sessions.actors.get(request.session)
        if actor is None or (actor.fence, actor.state.lineage) != (request.fence, request.lineage):
            raise NotReached("this process does not hold that session so; look at its lease again")
        if request.verb == "tail":
            return tail(desk.store, actor, arguments_of("tail", request.args, TailArgs))
        if request.verb == "state":
            return {"status": msgspec.to_builtins(runtime.status(request.session))}
        try:
            run = await desk.perform(request.session, request.verb, request.args)
        except RuntimeLeft:
            raise Leaving("it is stopping, and takes nothing more") from None
        holds = keeper.sessions.actors.get(request.session, actor)  # it may have been given back meanwhile, and taken again
        return {"run_id": None if run is None else run.run_id, "head_seq": holds.state.head}

    try:
        return await control.serve(handle), None
    except StoreError as error:
        return None, str(error)


async def tail(store: SessionStore, actor: "SessionActor", args: TailArgs) -> AsyncGenerator[Item, None]:
    """Everything of a session behind a seq, as it becomes durable, until this process gives the session back."""
    session = actor.state.session

    def from_log(after: int) -> list[Item]:
        return [frame_event(frame) for frame in store.read(session, after).frames if frame.seq > max(0, after)]

    subscription, seen = actor.feed.subscribe(), args.after
    for event in await asyncio.to_thread(from_log, seen):  # it may be long, and the session goes on meanwhile
        seen = event["seq"]
        yield event
    async for event in follow(subscription, actor.closed, from_log, seen):
        if args.live or "seq" in event:
            yield event
