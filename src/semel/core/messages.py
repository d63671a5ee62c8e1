"""Messages to a session: into its run, behind it, instead of it, or for a run of their own (Q1-Q10, CON6, CON7, CON24). Pure.

Each is durable before it is answered, and has exactly one place in the transcript (P9). `decide.known_delivery` is asked first,
so that a message that is sent again is the same message.
"""

from typing import Literal

from msgspec.structs import replace

from semel.core.cancel import cancel
from semel.core.effects import Cancel, Decision, Message, UnderWay
from semel.core.hook_notes import original_input
from semel.core.keys import digests_of_delivery, input_entry_of
from semel.core.records import (
    Delivery,
    Entry,
    FollowUpQueued,
    Queued,
    QueuedRequest,
    Retracted,
    SendDelivered,
    SendFailure,
    Steered,
)
from semel.core.state import QueuedMessage, Session
from semel.core.values import UserMessage, derived_id
from semel.errors import BlankMessage, UnknownMessage, must, need

Route = Literal["run", "queue", "send"]


def route(state: Session, delivery: Delivery) -> Route:
    """Where a message of this delivery goes now: into the open run, into the queue, or to a run that starts with it.

    A run that is to end takes no more messages: they wait for the next one (CON7). Without an open run there is nothing to steer,
    follow or interrupt, so the message is a send under its key (HAZ6).
    """
    run = state.run
    if run is None:
        return "queue" if delivery == "queue" and state.queue else "send"
    return "queue" if delivery in ("queue", "interrupt") or run.ending else "run"


def deliver_message(state: Session, command: Message, under_way: UnderWay | None) -> Decision:
    """The record of a message that goes into the run or the queue. An interrupting one stands before the cancel (Q15).

    Raises BlankMessage.
    """
    if not command.text.strip():
        raise BlankMessage("the message has no text; no model takes one")
    where = route(state, command.delivery)
    must(where != "send", "a message without an open run is a send", delivery=command.delivery)
    said = UserMessage(text=command.text, parts=command.parts)
    entry = Entry(entry_id=input_entry_of(state.lineage, command.key), content=said)
    if where == "queue":
        rest = cancel(state, Cancel(at="now"), under_way) if command.delivery == "interrupt" else Decision()
        return replace(rest, records=(_queued(command, entry), *rest.records))
    run_id = need(state.run, "a message to the run has one").run_id
    digest = _identity(command)
    if command.delivery == "steer":
        steered = Steered(
            run_id=run_id,
            input=(entry,),
            send_id=command.key,
            request_identity_digest=digest,
            title=command.title,
            hooks=command.hooks,
        )
        return Decision(records=(steered,))
    follow_up = FollowUpQueued(
        run_id=run_id,
        input=(entry,),
        send_id=command.key,
        request_identity_digest=digest,
        title=command.title,
        hooks=command.hooks,
    )
    return Decision(records=(follow_up,))


def _queued(command: Message, entry: Entry) -> Queued:
    request = QueuedRequest(
        input=(entry,), agent=command.agent, context=command.context, request_identity_digest=_identity(command)
    )
    delivery = None if command.delivery == "queue" else command.delivery
    return Queued(submission_id=command.key, request=request, title=command.title, delivery=delivery, hooks=command.hooks)


def _identity(command: Message) -> str:
    """What must be equal when the key is used again, as one digest."""
    said = original_input(command.hooks) or (UserMessage(text=command.text, parts=command.parts),)
    parts = tuple(part for message in said for part in message.parts)
    digests = digests_of_delivery("\n".join(message.text for message in said), command.context, parts)
    return derived_id("delivery", command.delivery, digests["input_digest"], digests["context_digest"])


def retract(state: Session, key: str, *, by: str | None = None, failure: SendFailure | None = None) -> Decision:
    """Take a queued message back, or say why it cannot start; empty where it was taken back before. Raises UnknownMessage.

    Which comes first, this or the start of its run, is decided by the order of the log alone (FACT18).
    """
    how = state.taken.get(key)
    if how == "retracted":
        return Decision()
    if key not in state.queue_index or how is not None:
        why = "its run has started" if how == "started" else "it went into a run" if how else "there is none"
        raise UnknownMessage(f"no message of key {key!r} waits in the queue of session {state.session!r}: {why}")
    return Decision(records=(Retracted(submission_id=key, by=by, failure=failure),))


def hand_over(state: Session, key: str, delivery: Literal["steer", "follow_up"]) -> Decision:
    """Put a queued message into the open run instead of starting one with it. Raises UnknownMessage."""
    at = state.queue_index.get(key)
    run = state.run
    if at is None or key in state.taken or run is None or run.ending:
        raise UnknownMessage(f"no message of key {key!r} waits in the queue of session {state.session!r} for a run that takes it")
    names = tuple(entry.entry_id for entry in state.queued[at].request.input)
    return Decision(records=(SendDelivered(submission_id=key, run_id=run.run_id, delivery=delivery, input=names),))


def due_message(state: Session, *, go_on: bool = False) -> QueuedMessage | None:
    """The queued message that starts the next run; None while a run is open or nothing waits.

    While a call of the newest run is unknown the queue waits for a person: for a send, a verdict, or `go_on` (P31).
    """
    if state.run is not None or (state.queue_waits and not go_on):
        return None
    return next(iter(state.queue), None)
