"""The fold: apply one record to the state. Pure, total, one pass that validates and derives (D1, D6).

Any prefix of a legal log folds; what needed an illegal write raises CorruptLog with its reason (K18). The transcript grows by
complete or repaired turns only (P1): an answer without calls commits itself, one with calls when its batch is finished.
"""

from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import assert_never

from semel.core.corruption import Reason, contradiction
from semel.core.fold_approval import apply_to_approval
from semel.core.fold_batch import Handler, batch_handler
from semel.core.fold_context import apply_to_context
from semel.core.fold_run import run_handler
from semel.core.fold_session import session_handler
from semel.core.fold_turn import fold_turns
from semel.core.owned import change, owned, put
from semel.core.records import (
    ApprovalRecorded,
    ApprovalRequested,
    ApprovalResolved,
    BudgetFired,
    CompactionAnswer,
    CompactionMessage,
    CompactionNotice,
    CompactionRequest,
    CompactionViewApplied,
    CompactionWait,
    ContextCeilingDecided,
    ContextCeilingWait,
    FollowUpQueued,
    HistorySupplied,
    IndeterminateResolved,
    LateResult,
    ModelAttemptFinished,
    ModelRetry,
    ModelStepFinished,
    OpaqueStateVoided,
    Queued,
    Record,
    ResumeStarted,
    Retracted,
    RunCancelRequested,
    RunFinished,
    RunPaused,
    RunRefrozen,
    RunStarted,
    RunStopRequested,
    SendDelivered,
    Steered,
    StepStarted,
    ToolBatchFinished,
    ToolBatchStarted,
    ToolCallDeferred,
    ToolCallProviderHeld,
    ToolCallReturned,
    ToolDispatchIntent,
    ToolNoDispatch,
    ToolProcess,
    ToolRerun,
    ToolResult,
    TurnFinished,
)
from semel.core.state import Logged, Position, Session


def _handler(record: Record) -> Handler:
    match record:
        case ModelAttemptFinished():
            return _nothing
        case (
            ToolDispatchIntent()
            | ToolResult()
            | ToolCallReturned()
            | ToolNoDispatch()
            | ToolBatchStarted()
            | ToolBatchFinished()
            | ToolProcess()
            | ToolRerun()
            | ToolCallDeferred()
            | ToolCallProviderHeld()
            | ApprovalRecorded()
        ):
            return batch_handler(record)
        case (
            StepStarted()
            | ModelStepFinished()
            | TurnFinished()
            | RunStarted()
            | RunFinished()
            | ModelRetry()
            | ResumeStarted()
            | Steered()
            | FollowUpQueued()
            | SendDelivered()
            | RunCancelRequested()
            | RunStopRequested()
            | RunPaused()
            | RunRefrozen()
            | OpaqueStateVoided()
            | BudgetFired()
        ):
            return run_handler(record)
        case ApprovalRequested() | ApprovalResolved():
            return apply_to_approval
        case Queued() | Retracted() | LateResult() | IndeterminateResolved() | HistorySupplied():
            return session_handler(record)
        case (
            CompactionMessage()
            | CompactionRequest()
            | CompactionAnswer()
            | CompactionWait()
            | CompactionViewApplied()
            | CompactionNotice()
            | ContextCeilingWait()
            | ContextCeilingDecided()
        ):
            return apply_to_context
    assert_never(record)


def _nothing(state: Session, _place: Position, _record: ModelAttemptFinished) -> Session:
    return state


_requires = attrgetter("requires")
_HANDLERS: dict[type[Record], Handler] = {}
"""What a record of each type does to the state, once it was asked."""


def fold(records: Iterable[Logged], state: Session) -> Session:
    """Apply all records in order, starting from `state`; folding a log in two parts gives what folding it whole gives.

    Raises CorruptLog.
    """
    places = list(records)
    return fold_placed(places, [place.record for place in places], state, torn=any(place.torn for place in places))


def fold_placed(places: Sequence[Position], records: Sequence[Record | None], state: Session, *, torn: bool) -> Session:
    """As `fold`, of records beside where they stand; `torn` says whether any of them is. There may be more places than records.

    Position, clocks and features are what every record moves, so they are kept beside the state until the last one. Time between
    two records of one tenure is time in which the run was running.
    """
    state, handlers, last = owned(state), _HANDLERS, None
    start = head = state.head
    at_ms, ran_ms = state.last_at_ms, 0
    turns_upto = 0  # the seq up to which turns were folded as wholes
    for place, record in zip(places, records, strict=False):
        head += 1
        if place.seq != head:
            raise contradiction(state, place, Reason.NON_CONSECUTIVE_SEQ, f"expected record {head}")
        now_ms = place.at_ms
        if now_ms > at_ms and state.run is not None and place.fence == (state.last_fence if last is None else last.fence):
            ran_ms += now_ms - at_ms
        at_ms, last = now_ms, place
        if head <= turns_upto or record is None:
            continue
        kind = type(record)
        if kind is ModelStepFinished and not torn:
            turns_upto = start + fold_turns(state, places, records, head - start - 1)
            if head <= turns_upto:
                continue
        handler = handlers.get(kind)
        if handler is None:
            handler = handlers[kind] = _handler(record)
        state = handler(state, place, record)
        if ran_ms and state.run is None:
            ran_ms = 0
    if last is not None:
        features = state.features.union(*set(map(_requires, places[: len(records)])))
        change(state, head=head, digest=last.digest, last_at_ms=at_ms, last_fence=last.fence, features=features)
    if ran_ms and state.run is not None:
        put(state.run, "running_ms", state.run.running_ms + ran_ms)
    return state


def apply(state: Session, logged: Logged) -> Session:
    """The state after one more record. Raises CorruptLog."""
    return fold((logged,), state)


def ahead(state: Session, records: Iterable[Record]) -> Session:
    """The state as it will be after these records, for a decision that looks past the barrier it is about to ask for."""
    at_ms, fence = state.last_at_ms, state.last_fence
    return fold(
        (
            Logged(seq=seq, at_ms=at_ms, fence=fence, record=record, digest=state.digest)
            for seq, record in enumerate(records, start=state.head + 1)
        ),
        state,
    )
