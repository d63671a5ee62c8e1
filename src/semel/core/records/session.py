"""Control records that belong to the session.

None has a field for a run, so that no rule about an ended or aborted run can touch them: a message queued behind a cancel is
legal, and so is a verdict on a sealed run (R48, K3, K6).
"""

from typing import Literal

from semel.core.records.content import AgentRef, Entry, Failure, HookNote, ToolOutput
from semel.core.records.run import Delivery, Tags
from semel.core.values import JSON, Frozen


class QueuedRequest(Frozen, frozen=True, kw_only=True):
    """What a queued message will start: its messages, the agent it was sent to, and the durable context."""

    input: tuple[Entry, ...]
    agent: AgentRef
    context: JSON = None
    request_identity_digest: str | None = None


class Queued(Frozen, frozen=True, kw_only=True, tag="queued"):
    """A message for the next run; `submission_id` is its key. An interrupting one drains ahead of the others (Q3)."""

    submission_id: str
    request: QueuedRequest
    title: str | None = None
    delivery: Delivery | None = None
    hooks: tuple[HookNote, ...] = ()


class SendFailure(Frozen, frozen=True, kw_only=True):
    """Why a queued message could not start its run."""

    error: Failure


class Retracted(Frozen, frozen=True, kw_only=True, tag="retracted"):
    """A queued message will not start: it was taken back, or `failure` says why it cannot."""

    submission_id: str
    by: str | None = None
    failure: SendFailure | None = None


LateKind = Literal["delivered", "not_started", "expired", "reduced"]


class LateResult(Frozen, frozen=True, kw_only=True, tag="late_result"):
    """The real result of a call that was settled without it; a notice of the next step or run, never a second result."""

    call_key: str
    output: ToolOutput
    is_error: bool
    handle: str | None = None
    kind: LateKind = "delivered"
    event_id: str | None = None


Verdict = Literal["happened", "did_not_happen", "abandoned"]


class IndeterminateResolved(Frozen, frozen=True, kw_only=True, tag="indeterminate_resolved"):
    """What a person found out about an unknown call (resolution/v1). It never touches the sealed run."""

    call_key: str
    verdict: Verdict
    by: str
    output: str | None = None
    note: str | None = None


class HistorySupplied(Frozen, frozen=True, kw_only=True, tag="history_supplied"):
    """Messages from elsewhere that open the session's transcript. History is no evidence that anything was executed (T11)."""

    format: str
    entries: tuple[Entry, ...]
    source_sha256: str | None = None
    tags: Tags = ()


SessionRecord = Queued | Retracted | LateResult | IndeterminateResolved | HistorySupplied
