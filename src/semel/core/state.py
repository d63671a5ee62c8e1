"""The state of a session: what the fold derives, frozen, equal for equal logs (design 5)."""

import enum
from typing import Protocol

from msgspec import field

from semel.core.calls import Approval, Batch, CallState, Step
from semel.core.conversation import Transcript, View
from semel.core.limits import Limits
from semel.core.persistent import Chain, Names, Table
from semel.core.records import (
    AgentRef,
    CeilingDetail,
    CeilingPolicy,
    Config,
    Delivery,
    Failure,
    Instructions,
    LateResult,
    QueuedRequest,
    Record,
    RunCancelRequested,
    RunPaused,
    Scope,
    ToolOutput,
    ToolSet,
    Verdict,
    ViewOutcome,
)
from semel.core.values import JSON, Frozen, Stop, ToolCall, ToolSpec, Usage

__all__ = [
    "Approval",
    "Batch",
    "CacheProof",
    "CallState",
    "Ceiling",
    "Compaction",
    "Ended",
    "KeyUse",
    "Logged",
    "OwedCall",
    "Pending",
    "PendingKind",
    "Position",
    "QueuedMessage",
    "Resolved",
    "Run",
    "Session",
    "Step",
    "UnknownCall",
    "View",
]


class Logged(Frozen, frozen=True, kw_only=True):
    """A record where it stands. `torn` marks one whose write never became whole: it was never acknowledged (design 3).

    `requires` are the features that its frame names. `digest` names the history up to it; it is empty for a record that is not in
    a log yet.
    """

    seq: int
    at_ms: int
    fence: int
    record: Record | None
    torn: bool = False
    requires: tuple[str, ...] = ()
    digest: str = ""


class Position(Protocol):
    """Where a record stands, without the record: what a `Logged` says of it, and a frame says too."""

    @property
    def seq(self) -> int:
        """Its number."""

    @property
    def at_ms(self) -> int:
        """When it was written."""

    @property
    def fence(self) -> int:
        """The tenure that wrote it."""

    @property
    def torn(self) -> bool:
        """Whether its write never became whole."""

    @property
    def requires(self) -> tuple[str, ...]:
        """The features that its frame names."""

    @property
    def digest(self) -> str:
        """The history up to it, empty for a record that is not in a log yet."""


class Ceiling(Frozen, frozen=True, kw_only=True):
    """What a step has come to below the context ceiling: until when it waits, and what was decided (C13, C14)."""

    step_id: int
    deadline_ms: int | None = None
    unavailable: bool | None = None
    decided: bool = False
    detail: CeilingDetail | None = None


class CacheProof(Frozen, frozen=True, kw_only=True):
    """What the provider's cache served of the first request behind a resume or of a later run, and what changed before it.

    `read` is None where it was not reported. Without `broken`, the request starts with the very bytes of the last one that was
    answered, or of an earlier attempt: all that stands before the first new message, tools and options included.
    """

    step_id: int
    read: int | None = None
    broken: tuple[str, ...] = ()


class Run(Frozen, frozen=True, kw_only=True):
    """The open run. `running_ms` counts the time between records of one writer, so that time while nothing ran does not count.

    `last_calls` are those of the newest answer, and `repeats` counts the turns in a row, up to now, that made the same ones;
    `unpriced` says that some answer told no cost. `cancels` are the requests to end it, as recorded: aborting is derived from
    them and stored nowhere (D2, Q14). `stopping` says that it was asked to end as at a limit. `cache` proves what resumes saved;
    `asked_fence` and `asks_again` say whether its next answer makes such a proof.
    """

    run_id: str
    key: str
    agent: AgentRef
    config: Config
    instructions: str
    tools: tuple[ToolSpec, ...]
    started_seq: int
    started_at_ms: int
    context: JSON = None
    continues: str | None = None
    scope: Scope | None = None
    step: Step | None = None
    usage: Usage = Usage()
    running_ms: int = 0
    truncations: int = 0
    last_truncated: str | None = None
    repeats: int = 0
    last_calls: tuple[ToolCall, ...] = ()
    unpriced: bool = False
    output_misses: int = 0
    output: str | None = None
    model_steps: int = 0
    tool_results: int = 0
    remind: bool = False
    cancels: tuple[RunCancelRequested, ...] = ()
    stopping: bool = False
    pause: RunPaused | None = None
    ceiling: Ceiling | None = None
    compaction_wait_ms: int | None = None
    budgets: tuple[str, ...] = ()
    state_rejected: bool = False
    asked_fence: int = 0
    asks_again: bool = False
    cache: tuple[CacheProof, ...] = ()

    @property
    def limits(self) -> Limits:
        """The frozen limits."""
        return self.config.limits

    @property
    def in_flight(self) -> Step | None:
        """The step whose answer is not there; None once it is, while `step` stays the newest one (D4)."""
        return self.step if self.step is not None and self.step.answer is None else None

    @property
    def aborting(self) -> bool:
        """Whether somebody asked to end it (D2)."""
        return bool(self.cancels)

    @property
    def aborting_now(self) -> bool:
        """Whether it is to end without waiting for the boundary of its step."""
        return any(cancel.at == "now" for cancel in self.cancels)

    @property
    def ending(self) -> bool:
        """Whether it is to end, cancelled or stopped: no step of it begins any more, and no message goes into it."""
        return self.stopping or bool(self.cancels)

    def tool(self, name: str) -> ToolSpec | None:
        """The offered tool of that name."""
        for spec in self.tools:
            if spec.name == name:
                return spec
        return None


class UnknownCall(Frozen, frozen=True, kw_only=True):
    """A call of a sealed run whose outcome nobody knows yet. `at` is its place in the transcript.

    `why` is what is known of it, in a line, and `reconciles` says that its tool can ask the outside about it.
    """

    call_key: str
    tool: str
    arguments: str
    run_id: str
    step_id: int
    ordinal: int
    tool_call_id: str
    since_ms: int
    at: int
    why: str
    reconciles: bool


class Resolved(Frozen, frozen=True, kw_only=True):
    """A verdict. `pending` until a step has rendered it."""

    call: UnknownCall
    verdict: Verdict
    by: str
    entry_id: str
    output: str | None = None
    note: str | None = None


class OwedCall(Frozen, frozen=True, kw_only=True):
    """A call that was settled or left open without its result, which may still come. `handle` is None for one that was held."""

    call_key: str
    tool: str
    arguments: str
    run_id: str
    since_ms: int
    handle: str | None = None


class PendingKind(enum.StrEnum):
    """What waits to be rendered for the first time."""

    VERDICT = "verdict"
    LATE = "late"
    NOTICE = "notice"
    STEER = "steer"
    FOLLOW_UP = "follow_up"


TO_THE_RUN = frozenset({PendingKind.STEER, PendingKind.FOLLOW_UP})


class Pending(Frozen, frozen=True, kw_only=True):
    """An entry that no step has drained yet. `source` is the call or the key that it belongs to.

    `place` is where its message stands; a verdict or a late result is composed when it is drained, and has none.
    """

    entry_id: str
    kind: PendingKind
    source: str
    place: int = 0
    tags: tuple[int, ...] = ()


class QueuedMessage(Frozen, frozen=True, kw_only=True):
    """A message that starts a run of its own when its turn comes."""

    key: str
    seq: int
    request: QueuedRequest
    delivery: Delivery | None = None
    title: str | None = None


class Ended(Frozen, frozen=True, kw_only=True):
    """A finished run. `unanswered` are the keys of the messages to it that no answer of it has taken into account."""

    run_id: str
    key: str
    agent: AgentRef
    reason: str
    usage: Usage
    started_at_ms: int
    finished_at_ms: int
    head: int
    error: Failure | None = None
    output: str | None = None
    unknown: tuple[str, ...] = ()
    continues: str | None = None
    context: JSON = None
    stop: Stop | None = None
    unanswered: tuple[str, ...] = ()
    cache: tuple[CacheProof, ...] = ()


class KeyUse(Frozen, frozen=True, kw_only=True):
    """What a key was first used for (L5, FACT18). `kind` is the delivery that was asked for; a plain send is `send`."""

    kind: str
    input_digest: str
    context_digest: str
    run_id: str


class Compaction(Frozen, frozen=True, kw_only=True):
    """The compaction facts of a lineage: small, and apart from the conversation (C34)."""

    setup: bool = False
    policy: CeilingPolicy | None = None
    version: int = 0
    view: View | None = None
    estimate_tokens: int | None = None
    request_id: str | None = None
    next_notice: int = 1
    outcomes: tuple[ViewOutcome, ...] = ()


Definition = Config | Instructions | ToolSet | ToolOutput
"""Content that decides how a model sees a conversation, and is named again by later records."""


class Session(Frozen, frozen=True, kw_only=True):
    """All that is derived of a session.

    `transcript` says where each message of the conversation stands in the log: content is not kept, so that memory does not grow
    with it. `entries` are the definitions themselves, and of each message its digests and place. `tag_family` is the
    family whose requests show tags, None where they show none. `rendered` counts the messages that some request has rendered.
    `target` names the model that the newest run asks: opaque provider state goes back to that model only, so a run that asks
    another starts without it (M4, wire 0.2).
    `prefix` names what stands before the first message of its requests: some models bind their state to that, too.
    `manner` is how its requests are written beside that. `answered` are the target, the prefix, the manner and whether tags were
    shown, of the last request that was answered; `changed` is what else is not as it was then.
    `decisions` counts the approvals that were answered, or whose time is over.
    """

    session: str
    lineage: str = ""
    target: str = ""
    prefix: str = ""
    manner: str = ""
    answered: tuple[str, str, str, str] | None = None
    changed: tuple[str, ...] = ()
    head: int = 0
    digest: str = ""
    last_at_ms: int = 0
    last_fence: int = 0
    features: frozenset[str] = frozenset()
    transcript: Transcript = field(default_factory=Transcript)
    rendered: int = 0
    run: Run | None = None
    ended: Table[Ended] = field(default_factory=Table)
    newest: str | None = None
    keys: Table[KeyUse] = field(default_factory=Table)
    entries: Table[Definition | bytes] = field(default_factory=Table)
    call_ids: Names = field(default_factory=Names)
    model_steps: int = 0
    unknown: tuple[UnknownCall, ...] = ()
    resolved: Table[Resolved] = field(default_factory=Table)
    pending: tuple[Pending, ...] = ()
    continued: Table[str] = field(default_factory=Table)
    queued: Chain[QueuedMessage] = field(default_factory=Chain)
    queue_index: Table[int] = field(default_factory=Table)
    queue_from: int = 0
    taken: Table[str] = field(default_factory=Table)
    owed: Table[OwedCall] = field(default_factory=Table)
    handles: Table[str] = field(default_factory=Table)
    late: Table[LateResult] = field(default_factory=Table)
    decisions: int = 0
    next_tag: int = 1
    tag_family: str | None = None
    compaction: Compaction = Compaction()

    @property
    def steers(self) -> tuple[Pending, ...]:
        """Messages to the open run that its next step takes up; none once it is aborting (D3)."""
        return self._to_the_run(PendingKind.STEER)

    @property
    def follow_ups(self) -> tuple[Pending, ...]:
        """Messages to the open run for when it would otherwise stop; none once it is aborting (D3)."""
        return self._to_the_run(PendingKind.FOLLOW_UP)

    @property
    def queue(self) -> tuple[QueuedMessage, ...]:
        """Messages that start runs of their own, in the order in which they do: interrupting ones first (Q3)."""
        waiting = [message for message in self.queued[self.queue_from :] if message.key not in self.taken]
        urgent = [message for message in waiting if message.delivery == "interrupt"]
        return (*urgent, *(message for message in waiting if message.delivery != "interrupt"))

    @property
    def queue_waits(self) -> bool:
        """Whether the queue waits for a person: a call of the newest run is unknown, and nobody has gone on since (P31)."""
        return any(call.run_id == self.newest for call in self.unknown)

    def _to_the_run(self, kind: PendingKind) -> tuple[Pending, ...]:
        if self.run is None or self.run.aborting:
            return ()
        return tuple(item for item in self.pending if item.kind is kind)
