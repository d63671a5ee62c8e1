"""The part of the fold that follows compaction and the ceiling: how much of the transcript the model sees (C1-C23, K13).

Ranges count the messages of the transcript, and only the newest replacement applies. A replacement may never separate a call
from its result, so what the model sees always keeps the history contract.
"""

from typing import assert_never

from msgspec.structs import replace

from semel.core.corruption import Reason, contradiction
from semel.core.pairing import fault_of
from semel.core.places import RESULT
from semel.core.records import (
    CompactionAnswer,
    CompactionMessage,
    CompactionNotice,
    CompactionRequest,
    CompactionViewApplied,
    CompactionWait,
    ContextCeilingDecided,
    ContextCeilingWait,
    ContextRecord,
)
from semel.core.referring import in_flight, keep_entries, messages_in, open_run
from semel.core.state import Ceiling, Position, Session, View
from semel.core.targets import OTHER_VIEW, STATE_LEFT_OUT, is_bound
from semel.core.transcript import changed, showing, without_opaque
from semel.errors import CorruptLog


def apply_to_context(state: Session, logged: Position, record: ContextRecord) -> Session:
    """The state after one record about the context. Raises CorruptLog."""
    match record:
        case CompactionMessage():
            return _message(state, logged, record)
        case CompactionViewApplied():
            state = _seen(state, logged, record)
            return _with_facts(state, estimate_tokens=record.estimate_tokens)
        case CompactionRequest():
            open_run(state, logged, record.run_id)
            if record.reason == "setup" or not 0 <= record.start < record.end <= len(state.transcript):
                raise _disagree(state, logged, "a request for no range, or for Setup")
            return _with_facts(state, request_id=record.request_id)
        case CompactionAnswer():
            if record.request_id != state.compaction.request_id:
                raise contradiction(state, logged, Reason.UNKNOWN_OPERATION, f"request {record.request_id} is not the newest")
            return _with_facts(state, request_id=None)
        case CompactionWait():
            run, _ = in_flight(state, logged, record.run_id, record.step_id)
            return replace(state, run=replace(run, compaction_wait_ms=record.deadline_ms))
        case CompactionNotice():
            return _notice(state, logged, record)
        case ContextCeilingWait() | ContextCeilingDecided():
            return _ceiling(state, logged, record)
    assert_never(record)


def _message(state: Session, logged: Position, record: CompactionMessage) -> Session:
    """A replacement for the reason that it states. Setup puts its message in front, once, before any model has answered."""
    setup = record.reason == "setup"
    if setup != (record.start == record.end == 0) or (setup and (state.compaction.setup or state.model_steps)):
        raise _disagree(state, logged, f"the reason {record.reason} and the range [{record.start}, {record.end}) disagree")
    if record.ceiling is not None and not setup:
        raise _disagree(state, logged, "only Setup states the provider's ceiling policy")
    if not setup and not record.replacement:
        raise _disagree(state, logged, f"a compaction for {record.reason} leaves nothing in the place of its range")
    state = _seen(state, logged, record)
    return _with_facts(state, setup=True, policy=record.ceiling) if setup else state


def _seen(state: Session, logged: Position, record: CompactionMessage | CompactionViewApplied) -> Session:
    """The state in which the model sees the range replaced. A view that no longer assembles is refused, never repaired (C7)."""
    start, end, version = record.start, record.end, record.version
    if version <= state.compaction.version:
        raise _disagree(state, logged, f"version {version} follows version {state.compaction.version}")
    if not 0 <= start <= end <= len(state.transcript) or _inside_exchange(state, start) or _inside_exchange(state, end):
        raise _disagree(state, logged, f"the range [{start}, {end}) is not of whole exchanges of the transcript")
    state = keep_entries(state, logged, record.replacement)
    messages = tuple(messages_in(state, logged, record.replacement))
    fault = fault_of(messages, opens=start == 0)
    if fault is not None:
        raise _disagree(state, logged, f"the replacement: {fault}")
    view = View(start=start, end=end, replacement=messages, version=version)
    state = changed(showing(state, view=view), OTHER_VIEW)
    if is_bound(state.target.partition("\n")[0]):
        state = without_opaque(state, STATE_LEFT_OUT)  # what stands before it is not what it was
    return _with_facts(state, version=version)


def _inside_exchange(state: Session, at: int) -> bool:
    """Whether a cut there would separate a call from its result."""
    return at < len(state.transcript) and state.transcript.kind(at) == RESULT


def _notice(state: Session, logged: Position, record: CompactionNotice) -> Session:
    if record.notice_seq < state.compaction.next_notice:
        raise _disagree(state, logged, f"notice {record.notice_seq} is given twice")
    outcomes = state.compaction.outcomes if record.view is None else (*state.compaction.outcomes[-7:], record.view)
    return _with_facts(state, next_notice=record.notice_seq + 1, outcomes=outcomes)


def _ceiling(state: Session, logged: Position, record: ContextCeilingWait | ContextCeilingDecided) -> Session:
    run, step = in_flight(state, logged, record.run_id, record.step_id)
    found = run.ceiling if run.ceiling is not None and run.ceiling.step_id == step.step_id else Ceiling(step_id=step.step_id)
    if found.decided:
        raise contradiction(state, logged, Reason.INCONSISTENT_STEP, f"the ceiling of step {step.step_id} was decided before")
    if isinstance(record, ContextCeilingDecided):
        found = replace(found, decided=True, detail=record.detail)
    else:
        if found.deadline_ms not in (None, record.deadline_ms):
            raise contradiction(state, logged, Reason.INCONSISTENT_STEP, f"the wait of step {step.step_id} has two deadlines")
        found = replace(found, deadline_ms=record.deadline_ms, unavailable=record.unavailable)
    return replace(state, run=replace(run, ceiling=found))


def _with_facts(state: Session, **facts: object) -> Session:
    return replace(state, compaction=replace(state.compaction, **facts))


def _disagree(state: Session, logged: Position, detail: str) -> CorruptLog:
    return contradiction(state, logged, Reason.INVALID_COMPACTION_REASON, detail)
