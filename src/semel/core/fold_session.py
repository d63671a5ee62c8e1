"""The part of the fold that follows the session itself: its queue, verdicts, late results, and history from elsewhere."""

from typing import assert_never

from msgspec.structs import replace

from semel.core.corruption import Reason, contradiction
from semel.core.fold_batch import Handler
from semel.core.fold_queue import queued, retracted
from semel.core.pairing import fault_of
from semel.core.places import place_of
from semel.core.records import (
    HistorySupplied,
    IndeterminateResolved,
    LateResult,
    Queued,
    Retracted,
    SessionRecord,
)
from semel.core.referring import keep_entries, messages_in, use_tags
from semel.core.state import Pending, PendingKind, Position, Resolved, Session
from semel.core.transcript import grown
from semel.core.values import AssistantMessage, derived_id


def session_handler(record: SessionRecord) -> Handler:
    """What a record of this type does; all of these raise CorruptLog."""
    match record:
        case Queued():
            return queued
        case Retracted():
            return retracted
        case LateResult():
            return _late
        case IndeterminateResolved():
            return _resolved
        case HistorySupplied():
            return _supplied
    assert_never(record)


def _late(state: Session, logged: Position, record: LateResult) -> Session:
    """The result that a call still owed. A deferred one becomes a notice.

    One of a held call is kept: the resume that takes the run up makes it the call's terminal; if the call was closed out
    meanwhile, no model is told.
    """
    owed = state.owed.get(record.call_key)
    if owed is None or owed.handle != record.handle:
        raise contradiction(
            state, logged, Reason.INVALID_DEFERRED_HANDLE, f"handle {record.handle!r} is not of call {record.call_key}"
        )
    if record.call_key in state.late:
        raise contradiction(state, logged, Reason.INVALID_DEFERRED_HANDLE, f"call {record.call_key} owes no result any more")
    state = replace(state, late=state.late.plus(record.call_key, record))
    if owed.handle is None:
        return state
    notice = Pending(entry_id=late_entry_of(record.call_key), kind=PendingKind.LATE, source=record.call_key)
    return replace(state, pending=(*state.pending, notice))


def late_entry_of(call_key: str) -> str:
    """The entry of the notice that tells of a late result."""
    return derived_id("late", call_key)


def _resolved(state: Session, logged: Position, record: IndeterminateResolved) -> Session:
    call = next((call for call in state.unknown if call.call_key == record.call_key), None)
    if call is None:
        raise contradiction(state, logged, Reason.UNKNOWN_OPERATION, f"call {record.call_key} is not unknown")
    entry_id = derived_id("verdict", record.call_key)
    found = Resolved(call=call, verdict=record.verdict, by=record.by, entry_id=entry_id, output=record.output, note=record.note)
    pending = Pending(entry_id=entry_id, kind=PendingKind.VERDICT, source=record.call_key)
    return replace(
        state,
        unknown=tuple(other for other in state.unknown if other.call_key != record.call_key),
        resolved=state.resolved.plus(record.call_key, found),
        pending=(*state.pending, pending),
    )


def _supplied(state: Session, logged: Position, record: HistorySupplied) -> Session:
    """A history opens the transcript, if it keeps the contract that every history keeps (T7, T11)."""
    if state.newest is not None or len(state.transcript):
        raise contradiction(state, logged, Reason.INCONSISTENT_STEP, "a history is supplied behind a conversation")
    messages = messages_in(state, logged, record.entries)
    fault = fault_of(messages)
    if fault is not None:
        raise contradiction(state, logged, Reason.TOOL_CALL_MISMATCH, f"the supplied history: {fault}")
    state = keep_entries(state, logged, record.entries)
    state = use_tags(state, logged, (tag for one in record.tags for tag in one))
    answers = (message for message in messages if isinstance(message, AssistantMessage))
    state = replace(state, call_ids=state.call_ids.plus(call.id for answer in answers for call in answer.calls))
    places = [place_of(logged.seq, message, within) for within, message in enumerate(messages)]
    return grown(state, places, record.tags)
