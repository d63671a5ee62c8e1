"""What a process that holds sessions does for others: one table of verbs, for those who ask over its socket and for itself.

The command line uses the same table where nobody holds a session: then it takes the lease, and answers itself.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any

import msgspec

from semel.core.records import Verdict
from semel.core.values import Frozen
from semel.errors import BadAgent, StoreError, UsageError
from semel.faces.run import follow
from semel.faces.views import frame_event, last_agent
from semel.ports.control import Control, Handler, Item, NotReached, Request, Served

if TYPE_CHECKING:
    from semel.engine.session import SessionActor
    from semel.faces.api import Runtime
    from semel.faces.handle import SessionHandle

Act = Callable[["Runtime", str, Any], Awaitable[Item]]


class Nothing(Frozen, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A verb that takes no arguments."""


class SendArgs(Frozen, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A message; `key` is made once by whoever sends it, so that asking again is the same message."""

    text: str
    key: str


class ResolveArgs(Frozen, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What became of an unknown call, by its whole key."""

    call: str
    verdict: Verdict
    output: str | None = None
    note: str | None = None
    by: str = "operator"
    go_on: bool = False


class TailArgs(Frozen, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Records with a seq above `after`; with `live`, also what is not durable yet."""

    after: int = 0
    live: bool = True


async def answer_others(runtime: "Runtime", control: Control | None) -> tuple[Served | None, str | None]:
    """Let other processes of this user ask a runtime; the other value says why they cannot, where there is no place for that.

    The sessions of the runtime work all the same then, and others wait until they are given back.
    """
    if control is None:
        return None, None
    try:
        return await control.serve(handler_of(runtime)), None
    except StoreError as error:
        return None, str(error)


def handler_of(runtime: "Runtime") -> Handler:
    """Answers requests for the sessions that a runtime holds, each under the tenure that the request names."""

    async def handle(request: Request) -> Item | AsyncIterator[Item]:
        actor = runtime.held(request.session)
        if actor is None or (actor.fence, actor.state.lineage) != (request.fence, request.lineage):
            raise NotReached
        if request.verb == "tail":
            return tail(runtime, actor, _arguments(request.verb, request.args, TailArgs))
        return await perform(runtime, request.session, request.verb, request.args)

    return handle


async def perform(runtime: "Runtime", session: str, verb: str, args: Item) -> Item:
    """Carry out a verb; what it answers is durable. Raises UsageError for a verb or arguments that are none."""
    if verb not in VERBS:
        raise UsageError(f"this process knows no verb {verb!r}; it may be another version of semel. Use the same for both.")
    form, act = VERBS[verb]
    return await act(runtime, session, _arguments(verb, args, form))


async def tail(runtime: "Runtime", actor: "SessionActor", args: TailArgs) -> AsyncIterator[Item]:
    """Everything of a session behind a seq, as it becomes durable, until this process gives the session back."""
    session, store = actor.state.session, runtime.store

    def from_log(after: int) -> list[Item]:
        return [frame_event(frame) for frame in store.read(session, after).frames if frame.seq > max(0, after)]

    subscription, seen = actor.feed.subscribe(), args.after
    for event in await asyncio.to_thread(from_log, seen):  # it may be long, and the session goes on meanwhile
        seen = event["seq"]
        yield event
    async for event in follow(subscription, actor.closed, from_log, seen):
        if args.live or "seq" in event:
            yield event


def _arguments(verb: str, args: Item, form: Any) -> Any:
    try:
        return msgspec.convert(args, form)
    except msgspec.ValidationError as error:
        raise UsageError(f"the arguments of {verb!r} cannot be used: {error}") from None


def _handle(runtime: "Runtime", session: str) -> "SessionHandle[Any]":
    """The session with the agent of its newest run. Raises UnknownSession, BadAgent."""
    ref = last_agent(runtime.store, session)
    if ref is None:
        raise BadAgent(f"session {session!r} never had a run, so it has no agent yet; start one with `semel run`")
    return runtime.session(session, agent=runtime.agent_of(ref, session))


async def _state(runtime: "Runtime", session: str, _args: Nothing) -> Item:
    return {"status": msgspec.to_builtins(runtime.status(session))}


async def _resume(runtime: "Runtime", session: str, _args: Nothing) -> Item:
    run = await runtime.resume(session)
    return {"run_id": None if run is None else run.run_id}


async def _send(runtime: "Runtime", session: str, args: SendArgs) -> Item:
    run = await _handle(runtime, session).send(args.text, key=args.key)
    return {"run_id": run.run_id}


async def _resolve(runtime: "Runtime", _session: str, args: ResolveArgs) -> Item:
    run = await runtime.resolve(args.call, args.verdict, output=args.output, note=args.note, by=args.by, go_on=args.go_on)
    return {"run_id": None if run is None else run.run_id}


VERBS: dict[str, tuple[type[Frozen], Act]] = {
    "state": (Nothing, _state),
    "resume": (Nothing, _resume),
    "send": (SendArgs, _send),
    "resolve": (ResolveArgs, _resolve),
}
"""Every verb with the form of its arguments. `tail` is apart: it answers with a stream."""
