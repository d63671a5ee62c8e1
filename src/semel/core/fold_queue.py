"""The part of the fold that follows messages from their acknowledgement to their one place in the transcript (Q1-Q10, P9)."""

from msgspec.structs import replace

from semel.core.corruption import Reason, contradiction
from semel.core.keys import run_id_of
from semel.core.records import FollowUpQueued, Queued, Retracted, RunStarted, SendDelivered, Steered
from semel.core.records.run import Tags
from semel.core.referring import keep_entries, message_place, messages_in, open_run, use_key, use_of, use_tags
from semel.core.state import TO_THE_RUN, Pending, PendingKind, Position, QueuedMessage, Run, Session
from semel.core.texts import late_message, verdict_message, verdict_result
from semel.core.transcript import corrected, grown

Named = tuple[str, int, tuple[int, ...]]
STARTED, RETRACTED, DELIVERED = "started", "retracted", "delivered"


def on_queue(state: Session, logged: Position, record: Steered | FollowUpQueued | SendDelivered) -> Session:
    """A message to the running run is acknowledged; it waits for the step that drains it."""
    run = open_run(state, logged, record.run_id)
    if run.ending:
        raise contradiction(state, logged, Reason.QUEUE_AFTER_ABORT, f"run {run.run_id} is to end and takes no more messages")
    state = use_tags(state, logged, (tag for one in record.tags for tag in one))
    if isinstance(record, SendDelivered):
        return _delivered(state, logged, record)
    state = keep_entries(state, logged, record.input)
    names = tuple(entry.entry_id for entry in record.input)
    messages = messages_in(state, logged, record.input)
    kind = PendingKind.STEER if isinstance(record, Steered) else PendingKind.FOLLOW_UP
    asked = record.delivery if isinstance(record, Steered) else None
    state = use_key(state, logged, record.send_id, use_of(asked or kind, messages, None, run.run_id, record.hooks))
    return _waiting(state, kind, record.send_id or names[0], _named(state, logged, names, record.tags)) if names else state


def _delivered(state: Session, logged: Position, record: SendDelivered) -> Session:
    state = keep_entries(state, logged, record.entries)
    _queued_message(state, logged, record.submission_id, record.input, "is delivered to a run")
    state = _taken(state, record.submission_id, DELIVERED)
    named = _named(state, logged, record.input, record.tags)
    return _waiting(state, PendingKind(record.delivery), record.submission_id, named)


def _named(state: Session, logged: Position, names: tuple[str, ...], tags: Tags) -> list[Named]:
    """The messages of these names: the name, the place and the tags of each."""
    return [(name, message_place(state, logged, name), tags[at] if at < len(tags) else ()) for at, name in enumerate(names)]


def _waiting(state: Session, kind: PendingKind, source: str, named: list[Named]) -> Session:
    waiting = tuple(Pending(entry_id=name, kind=kind, source=source, place=place, tags=tags) for name, place, tags in named)
    return replace(state, pending=(*state.pending, *waiting))


def queued(state: Session, logged: Position, record: Queued) -> Session:
    """A message for a run of its own is acknowledged. It belongs to the session: no rule about a run can touch it (K6)."""
    request = record.request
    state = keep_entries(state, logged, request.input)
    messages = messages_in(state, logged, request.input)
    kind = record.delivery or "queue"
    run_id = run_id_of(state.lineage, record.submission_id)
    state = use_key(state, logged, record.submission_id, use_of(kind, messages, request.context, run_id, record.hooks))
    message = QueuedMessage(
        key=record.submission_id, seq=logged.seq, request=request, delivery=record.delivery, title=record.title
    )
    index = state.queue_index.plus(record.submission_id, len(state.queued))
    return replace(state, queued=state.queued.plus(message), queue_index=index)


def retracted(state: Session, logged: Position, record: Retracted) -> Session:
    """A queued message is taken back; only one that is there and pending can be (K7)."""
    _queued_message(state, logged, record.submission_id, None, "is taken back")
    return _taken(state, record.submission_id, RETRACTED)


def start_of_queued(state: Session, logged: Position, record: RunStarted) -> Session:
    """A run that starts under the key of a queued message consumes it; its input must be the queued one."""
    if record.key not in state.queue_index:
        return state
    _queued_message(state, logged, record.key, record.input, "starts a run")
    return _taken(state, record.key, STARTED)


def _queued_message(state: Session, logged: Position, key: str, names: tuple[str, ...] | None, what: str) -> None:
    """Refuse what names no pending message of the queue: none recorded, one of a run, one consumed or taken back (K7)."""
    why = _why_not_pending(state, key)
    if why is not None:
        raise contradiction(state, logged, Reason.INVALID_QUEUE_CANCELLATION, f"{key!r} {what}, but {why}")
    queued_names = tuple(entry.entry_id for entry in state.queued[state.queue_index[key]].request.input)
    if names is not None and names != queued_names:
        raise contradiction(state, logged, Reason.PROVISIONED_ENTRY_MISMATCH, f"{key!r} {what} with another input than queued")


def _why_not_pending(state: Session, key: str) -> str | None:
    if key not in state.queue_index:
        return "it belongs to a run" if key in state.keys else "nothing was queued as it"
    return f"it was {state.taken[key]} before" if key in state.taken else None


def _taken(state: Session, key: str, how: str) -> Session:
    taken, start = state.taken.plus(key, how), state.queue_from
    while start < len(state.queued) and state.queued[start].key in taken:
        start += 1
    return replace(state, taken=taken, queue_from=start)


def drained(state: Session, logged: Position, names: tuple[str, ...]) -> Session:
    """The state in which these entries have their place in the transcript, in this order. Only what is pending can be drained."""
    waiting = {item.entry_id: item for item in state.pending}
    for name in names:
        item = waiting.pop(name, None)
        if item is None:
            raise contradiction(state, logged, Reason.INCONSISTENT_STEP, f"{name} is drained but not pending")
        state = _placed(state, item)
    return replace(state, pending=tuple(waiting.values())) if names else state


def left_behind(state: Session, logged: Position, run: Run) -> tuple[Session, tuple[str, ...]]:
    """What a run leaves unanswered takes its place in the transcript at the run's end (Q1, CON7).

    Unanswered are the messages that no step drained, and those of a step that the model did not answer.
    """
    rest = [item for item in state.pending if item.kind in TO_THE_RUN]
    asked = run.in_flight.messages if run.in_flight is not None else ()
    keys = dict.fromkeys([*asked, *(item.source for item in rest)])
    return drained(state, logged, tuple(item.entry_id for item in rest)), tuple(keys)


def _placed(state: Session, item: Pending) -> Session:
    match item.kind:
        case PendingKind.VERDICT:
            return _place_verdict(state, item)
        case PendingKind.LATE:
            owed, late = state.owed[item.source], state.late[item.source]
            text = late_message(owed.tool, owed.arguments, late.kind, late.output.text, late.output.parts, is_error=late.is_error)
            return grown(state, (text,))
        case PendingKind.NOTICE | PendingKind.STEER | PendingKind.FOLLOW_UP:
            return grown(state, (item.place,), (item.tags,))


def _place_verdict(state: Session, item: Pending) -> Session:
    """A verdict takes the place of the unknown result while no request has shown it; else it is a message of its own."""
    found = state.resolved[item.source]
    call = found.call
    if call.at >= state.rendered:
        return corrected(state, call.at, verdict_result(call.tool_call_id, found.verdict, found.output))
    return grown(state, (verdict_message(call.tool, call.arguments, found.verdict, found.output),))
