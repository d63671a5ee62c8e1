"""The fourteen ways in which a log can contradict itself (K1-K14), and the one comparison of named entries (K15-K17)."""

import enum
import hashlib

import msgspec

from semel.core.records import Content
from semel.core.state import Position, Session
from semel.errors import CorruptLog


class Reason(enum.StrEnum):
    """Each names a distinct bug of a writer; none is ever repaired."""

    MULTIPLE_OPEN_OPERATIONS = "multiple_open_operations"
    UNKNOWN_OPERATION = "unknown_operation"
    RECORD_AFTER_FINISH = "record_after_finish"
    NON_CONSECUTIVE_SEQ = "non_consecutive_seq"
    NON_CONSECUTIVE_ATTEMPT = "non_consecutive_attempt"
    QUEUE_AFTER_ABORT = "queue_after_abort"
    INVALID_QUEUE_CANCELLATION = "invalid_queue_cancellation"
    INCONSISTENT_STEP = "inconsistent_step"
    TOOL_CALL_MISMATCH = "tool_call_mismatch"
    DUPLICATE_TOOL_INVOCATION = "duplicate_tool_invocation"
    PROVISIONED_ENTRY_MISMATCH = "provisioned_entry_mismatch"
    INVALID_DEFERRED_HANDLE = "invalid_deferred_handle"
    INVALID_COMPACTION_REASON = "invalid_compaction_reason"
    INCONSISTENT_COST = "inconsistent_cost"


def contradiction(state: Session, logged: Position, reason: Reason, detail: str) -> CorruptLog:
    """The error for a record that contradicts the log before it; the caller raises it."""
    run_id = state.run.run_id if state.run else None
    return CorruptLog(reason.value, session=state.session, run_id=run_id, seq=logged.seq, detail=detail)


def same_entry(declared: Content, found: Content | bytes) -> bool:
    """Whether an entry that exists holds what was declared for it. `found` is its content, or the digest of it.

    Contents carry nothing that the store assigns (that is in the frame header), so equality is the whole comparison (K16).
    """
    return entry_digest(declared) == found if isinstance(found, bytes) else declared == found


def entry_digest(content: Content) -> bytes:
    """What stands for a content whose text is not kept: 16 bytes of the sha256 of its encoding, which is deterministic."""
    return hashlib.sha256(msgspec.json.encode(content)).digest()[:16]
