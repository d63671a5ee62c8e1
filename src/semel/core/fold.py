"""The fold: apply one record to the state. Pure, total, one pass that validates and derives (D1, D6).

Any prefix of a legal log folds; what needed an illegal write raises CorruptLog with its reason (K18). The transcript grows by
complete or repaired turns only (P1): an answer without calls commits itself, one with calls when its batch is finished.
"""

from collections.abc import Iterable
from typing import assert_never

from msgspec.structs import replace

from semel.core.corruption import Reason, contradiction
from semel.core.fold_approval import apply_to_approval
from semel.core.fold_batch import apply_to_batch
from semel.core.fold_context import apply_to_context
from semel.core.fold_run import apply_to_run
from semel.core.fold_session import apply_to_session
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
from semel.core.state import Logged, Session


def fold(records: Iterable[Logged], state: Session) -> Session:
    """Apply all records in order, starting from `state`; folding a log in two parts gives what folding it whole gives."""
    for logged in records:
        state = apply(state, logged)
    return state


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


def apply(state: Session, logged: Logged) -> Session:
    """The state after one more record. Raises CorruptLog."""
    if logged.seq != state.head + 1:
        raise contradiction(state, logged, Reason.NON_CONSECUTIVE_SEQ, f"expected record {state.head + 1}")
    state = _advance(state, logged)
    record = logged.record
    match record:
        case None | ModelAttemptFinished():
            return state
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
            return apply_to_batch(state, logged, record)
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
            | RunPaused()
            | RunRefrozen()
            | OpaqueStateVoided()
            | BudgetFired()
        ):
            return apply_to_run(state, logged, record)
        case ApprovalRequested() | ApprovalResolved():
            return apply_to_approval(state, logged, record)
        case Queued() | Retracted() | LateResult() | IndeterminateResolved() | HistorySupplied():
            return apply_to_session(state, logged, record)
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
            return apply_to_context(state, logged, record)
    assert_never(record)


def _advance(state: Session, logged: Logged) -> Session:
    """Position, clocks and features. Time between two records of one tenure is time in which the run was running."""
    run = state.run
    if run is not None and logged.fence == state.last_fence and logged.at_ms > state.last_at_ms:
        run = replace(run, running_ms=run.running_ms + logged.at_ms - state.last_at_ms)
    features = state.features
    if logged.requires and not features.issuperset(logged.requires):
        features = features.union(logged.requires)
    return replace(
        state,
        head=logged.seq,
        digest=logged.digest,
        last_at_ms=logged.at_ms,
        last_fence=logged.fence,
        run=run,
        features=features,
    )
