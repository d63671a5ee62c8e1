"""Control records about how much of the transcript the model sees: compaction, its views and notices, the ceiling.

Ranges are half-open over the messages of the lineage; [0, 0) puts the replacement in front, and only the newest applies
(FACT23). A view and a Setup belong to the session, since an idle session takes them too (C32).
"""

from typing import Literal

from semel.core.records.content import Entry
from semel.core.values import Frozen

CompactionReason = Literal["setup", "threshold", "ceiling", "manual"]


class CeilingPolicy(Frozen, frozen=True, kw_only=True):
    """How a provider wants the ceiling kept. `wait_ms` is at most 300,000 (C16)."""

    wait_ms: int


class CompactionMessage(Frozen, frozen=True, kw_only=True, tag="compaction_message"):
    """A replacement for a range of the transcript, or the message that Setup puts in front of it. Summaries are content (C53)."""

    reason: CompactionReason
    version: int
    start: int
    end: int
    replacement: tuple[Entry, ...]
    request_id: str | None = None
    ceiling: CeilingPolicy | None = None


class CompactionRequest(Frozen, frozen=True, kw_only=True, tag="compaction_request"):
    """A step asks for a compaction of a range, and until when it wants the answer."""

    run_id: str
    step_id: int
    request_id: str
    reason: CompactionReason
    start: int
    end: int
    deadline_ms: int


class CompactionAnswer(Frozen, frozen=True, kw_only=True, tag="compaction_answer"):
    """What the newest request was answered with; a message itself is a `compaction_message`."""

    request_id: str
    answer: Literal["message", "nothing", "refused", "late"]
    code: str | None = None


class CompactionWait(Frozen, frozen=True, kw_only=True, tag="compaction_wait"):
    """A step waits for a compaction, until then."""

    run_id: str
    step_id: int
    deadline_ms: int


class CompactionViewApplied(Frozen, frozen=True, kw_only=True, tag="compaction_view_applied"):
    """A provider's view of a range, before the step that first renders it; a resume renders it from this alone (C3, C4)."""

    version: int
    start: int
    end: int
    replacement: tuple[Entry, ...]
    applied: Literal["as_published", "stripped"]
    digest: str
    estimate_tokens: int | None = None


class ViewOutcome(Frozen, frozen=True, kw_only=True):
    """What became of an announced view."""

    version: int
    outcome: Literal["applied", "refused", "superseded"]
    code: str | None = None


class CompactionNotice(Frozen, frozen=True, kw_only=True, tag="compaction_notice"):
    """An advance notice for the compaction provider, before it is published; a republish keeps its number (C8)."""

    notice_seq: int
    headers: dict[str, str]
    view: ViewOutcome | None = None


class ContextCeilingWait(Frozen, frozen=True, kw_only=True, tag="context_ceiling_wait"):
    """A step waits below the ceiling, until then; `unavailable`, written later, says whether the ride reached the provider."""

    run_id: str
    step_id: int
    deadline_ms: int
    unavailable: bool | None = None


class CeilingDetail(Frozen, frozen=True, kw_only=True):
    """Why a request was refused: the window and the size in tokens, and what stood in the way."""

    window: int
    size: int
    cause: str


class ContextCeilingDecided(Frozen, frozen=True, kw_only=True, tag="context_ceiling_decided"):
    """Before the request: it may leave (`detail` null), or the run ends as `context_ceiling` (C14)."""

    run_id: str
    step_id: int
    detail: CeilingDetail | None


ContextRecord = (
    CompactionMessage
    | CompactionRequest
    | CompactionAnswer
    | CompactionWait
    | CompactionViewApplied
    | CompactionNotice
    | ContextCeilingWait
    | ContextCeilingDecided
)
