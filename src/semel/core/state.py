"""The state of a session: what the fold derives, frozen, equal for equal logs (design 5)."""

from msgspec import field

from semel.core.limits import Limits
from semel.core.outcomes import Outcome, Settlement
from semel.core.persistent import Chain, Table
from semel.core.records import AgentRef, Config, Content, Failure, PlannedCall, Record, ToolProcess, Verdict
from semel.core.values import JSON, AssistantMessage, Frozen, Message, Stop, ToolSpec, Usage


class Logged(Frozen, frozen=True, kw_only=True):
    """A record where it stands. `torn` marks one whose write never became whole: it was never acknowledged (design 3)."""

    seq: int
    at_ms: int
    fence: int
    record: Record | None
    torn: bool = False


class CallState(Frozen, frozen=True, kw_only=True):
    """One call of the open batch. At most one of `refusal` and `result` ends it; `returned` is an early return."""

    planned: PlannedCall
    intent: bool = False
    torn_intent: bool = False
    returned: Settlement | None = None
    result: Settlement | None = None
    refusal: str | None = None
    reruns: int = 0
    process: ToolProcess | None = None

    @property
    def settled(self) -> Settlement | None:
        """What is known to have become of a dispatched call."""
        return self.result or self.returned

    @property
    def terminal(self) -> bool:
        """Whether its one terminal is in the log."""
        return self.result is not None or self.refusal is not None


class Batch(Frozen, frozen=True, kw_only=True):
    """The calls of one answer."""

    batch_id: str
    step_id: int
    calls: tuple[CallState, ...]
    finished: bool = False

    @property
    def unknown(self) -> tuple[CallState, ...]:
        """Calls whose outcome nobody knows."""
        return tuple(call for call in self.calls if call.settled and call.settled.outcome is Outcome.UNKNOWN)


class Step(Frozen, frozen=True, kw_only=True):
    """The newest step of a run. `answer` is None while it is in flight (D4)."""

    step_id: int
    attempt: int
    result_entry: str
    drained: tuple[str, ...]
    answer: AssistantMessage | None = None
    stop: Stop | None = None
    batch: Batch | None = None
    finished: bool = False
    redeliveries: int = 0
    not_before_ms: int | None = None


class Run(Frozen, frozen=True, kw_only=True):
    """The open run. `running_ms` counts the time between records of one writer, so that time while nothing ran does not count."""

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
    step: Step | None = None
    usage: Usage = Usage()
    running_ms: int = 0
    truncations: int = 0
    last_truncated: str | None = None
    output_misses: int = 0
    output: str | None = None
    model_steps: int = 0
    tool_results: int = 0
    remind: bool = False

    @property
    def limits(self) -> Limits:
        """The frozen limits."""
        return self.config.limits

    def tool(self, name: str) -> ToolSpec | None:
        """The offered tool of that name."""
        return next((spec for spec in self.tools if spec.name == name), None)


class UnknownCall(Frozen, frozen=True, kw_only=True):
    """A call of a sealed run whose outcome nobody knows yet. `at` is its place in the transcript."""

    call_key: str
    tool: str
    arguments: str
    run_id: str
    step_id: int
    ordinal: int
    tool_call_id: str
    since_ms: int
    at: int


class Resolved(Frozen, frozen=True, kw_only=True):
    """A verdict. `pending` until a step has rendered it."""

    call: UnknownCall
    verdict: Verdict
    by: str
    entry_id: str
    output: str | None = None
    note: str | None = None


class Ended(Frozen, frozen=True, kw_only=True):
    """A finished run."""

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


class KeyUse(Frozen, frozen=True, kw_only=True):
    """What a key was first used for (L5, FACT18)."""

    kind: str
    input_digest: str
    context_digest: str
    run_id: str


class Session(Frozen, frozen=True, kw_only=True):
    """All that is derived of a session.

    `rendered` counts the messages that some request has rendered. `target` names the model that the newest run asks: opaque
    provider state goes back to that model only, so a run that asks another starts without it (M4, wire 0.2).
    """

    session: str
    lineage: str = ""
    target: str = ""
    head: int = 0
    last_at_ms: int = 0
    last_fence: int = 0
    transcript: Chain[Message] = field(default_factory=Chain)
    rendered: int = 0
    run: Run | None = None
    ended: Table[Ended] = field(default_factory=Table)
    newest: str | None = None
    keys: Table[KeyUse] = field(default_factory=Table)
    entries: Table[Content] = field(default_factory=Table)
    call_ids: Table[bool] = field(default_factory=Table)
    model_steps: int = 0
    unknown: tuple[UnknownCall, ...] = ()
    resolved: Table[Resolved] = field(default_factory=Table)
    pending: tuple[str, ...] = ()
    continued: Table[str] = field(default_factory=Table)
