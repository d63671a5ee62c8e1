"""Every durable fact, as one tagged union.

Two families (R45). *Entries* are content: what the model sees, or what decides how it sees it; found by `entry_id`. *Records* are
the ordered facts that are folded; a record may carry the entries it brings. Names and type tags are the contract's own.

A record of a batch names its `batch_id`, which derives from lineage, run and step; a record of a step or run names its
`run_id`. `indeterminate_resolved` belongs to the session and structurally has no run id, so that K3 cannot touch it.
Sync: every record is durable with the barrier that carries it; `tool_process` alone is written without a sync.
"""

from typing import Literal

from semel.core.limits import Limits
from semel.core.outcomes import Outcome
from semel.core.values import JSON, AssistantMessage, Bundle, Frozen, Stop, ToolSpec, Usage, UserMessage


class Config(Frozen, frozen=True, kw_only=True, tag="config"):
    """What a run is frozen to: its render bundle, limits, and the schema of its typed output (canonical JSON text)."""

    bundle: Bundle
    limits: Limits
    output_schema: str | None = None


class Instructions(Frozen, frozen=True, kw_only=True, tag="instructions"):
    """The rendered instructions of a run."""

    text: str


class ToolSet(Frozen, frozen=True, kw_only=True, tag="tools"):
    """The tools offered in a run, in the order the model sees them."""

    tools: tuple[ToolSpec, ...]


class ToolOutput(Frozen, frozen=True, kw_only=True, tag="tool_output"):
    """What a call gave, as the model reads it."""

    text: str


Content = UserMessage | AssistantMessage | ToolOutput | Config | Instructions | ToolSet


class Entry(Frozen, frozen=True, kw_only=True):
    """A piece of content under its id. An id names one content for ever (K15)."""

    entry_id: str
    content: Content


class AgentRef(Frozen, frozen=True, kw_only=True):
    """Where the agent of a run came from: its name, an absolute path or module:name, and a digest of its definition."""

    name: str
    source: str | None = None
    digest: str | None = None


class Failure(Frozen, frozen=True, kw_only=True):
    """Why a run failed, for people and for status.json. `kind` is `model`, `limit`, `output`, `tool` or `semel`."""

    kind: str
    code: str
    message: str
    provider: str | None = None


class RunStarted(Frozen, frozen=True, kw_only=True, tag="run_started"):
    """A run begins. `config`, `instructions`, `tools` and `input` name entries; those that are new ride along (P10)."""

    run_id: str
    session: str
    key: str
    agent: AgentRef
    config: str
    instructions: str
    tools: str
    input: tuple[str, ...]
    entries: tuple[Entry, ...]
    context: JSON = None
    continues: str | None = None


class StepStarted(Frozen, frozen=True, kw_only=True, tag="step_started"):
    """A step is about to ask the model; names the entry its answer will be, and what it renders for the first time."""

    run_id: str
    step_id: int
    attempt: int
    result_entry: str
    drained: tuple[str, ...]


class ModelAttemptFinished(Frozen, frozen=True, kw_only=True, tag="model_attempt_finished"):
    """One HTTP exchange ended. Informational: no fold depends on it (R8)."""

    step_id: int
    attempt: int
    http_attempt: int
    request_body_len: int
    request_body_sha256: str
    response_body_len: int
    outcome: str
    ts_ms: int
    response_body_sha256: str | None = None
    http_status: int | None = None
    content_type: str | None = None


class ModelRetry(Frozen, frozen=True, kw_only=True, tag="model_retry"):
    """Before a wait of more than a second: how many redeliveries are used, and when the next may leave."""

    run_id: str
    step_id: int
    used: int
    not_before_ms: int


class ModelStepFinished(Frozen, frozen=True, kw_only=True, tag="model_step_finished"):
    """The model answered, up to its terminal event."""

    run_id: str
    step_id: int
    assistant_message: Entry
    stop: Stop
    usage: Usage
    raw_stop: str | None = None


class Refused(Frozen, frozen=True, kw_only=True):
    """Why a call is not dispatched: a stable name, and what the model is told."""

    reason: str
    message: str


class PlannedCall(Frozen, frozen=True, kw_only=True):
    """One call of a batch as planned. `ordinal` is its place in the answer; `call_key` its public name and its result entry."""

    ordinal: int
    tool_call_id: str
    call_key: str
    tool: str
    args_digest: str
    refused: Refused | None = None


class ToolBatchStarted(Frozen, frozen=True, kw_only=True, tag="tool_batch_started"):
    """The durable plan for the calls of one answer."""

    run_id: str
    batch_id: str
    step_id: int
    planned_calls: tuple[PlannedCall, ...]


class ToolDispatchIntent(Frozen, frozen=True, kw_only=True, tag="tool_dispatch_intent"):
    """This call is about to leave the process; durable before it does (B3)."""

    batch_id: str
    ordinal: int
    tool_call_id: str
    args_digest: str


class ToolProcess(Frozen, frozen=True, kw_only=True, tag="tool_process"):
    """The process that serves a call. Informational; unsynced, since a power loss ends the process too."""

    batch_id: str
    ordinal: int
    pid: int
    started: int
    boot: str


class ToolRerun(Frozen, frozen=True, kw_only=True, tag="tool_rerun"):
    """A read or idempotent call runs again after a crash, for the n-th time. Informational."""

    call_key: str
    n: int


class ToolCallReturned(Frozen, frozen=True, kw_only=True, tag="tool_call_returned"):
    """A call came back while others of its batch are open (early-return/v1); `tool_result` follows and does not repeat it."""

    step_id: int
    batch_id: str
    ordinal: int
    call_key: str
    output: ToolOutput
    is_error: bool
    outcome: Outcome
    reason: str | None = None
    terminate: bool = False


class ToolNoDispatch(Frozen, frozen=True, kw_only=True, tag="tool_no_dispatch"):
    """This call was not dispatched and never will be; the model reads the message as an error result."""

    batch_id: str
    ordinal: int
    tool_call_id: str
    reason: str
    message: str


class ToolResult(Frozen, frozen=True, kw_only=True, tag="tool_result"):
    """What became of a dispatched call. `output` is absent where `tool_call_returned` has brought it already."""

    batch_id: str
    ordinal: int
    tool_call_id: str
    is_error: bool
    outcome: Outcome
    output: ToolOutput | None = None
    reason: str | None = None
    terminate: bool = False


class ToolBatchFinished(Frozen, frozen=True, kw_only=True, tag="tool_batch_finished"):
    """Every planned call has exactly one terminal (B17)."""

    batch_id: str


class TurnFinished(Frozen, frozen=True, kw_only=True, tag="turn_finished"):
    """The step and its batch are complete; written for every step, also one without calls."""

    run_id: str
    step_id: int


class Replayed(Frozen, frozen=True, kw_only=True):
    """How much a resume rebuilt from the log."""

    messages: int
    model_steps: int
    tool_results: int


class ResumeStarted(Frozen, frozen=True, kw_only=True, tag="resume_started"):
    """A resume of an open run says what it found. Informational: nothing depends on it (R20, HAZ4)."""

    episode: str
    resumed_from_seq: int
    replayed: Replayed
    redone: tuple[str, ...]
    indeterminate: tuple[str, ...]


class RunFinished(Frozen, frozen=True, kw_only=True, tag="run_finished"):
    """The one terminal of a run."""

    run_id: str
    reason: str
    usage: Usage
    error: Failure | None = None


Verdict = Literal["happened", "did_not_happen", "abandoned"]


class IndeterminateResolved(Frozen, frozen=True, kw_only=True, tag="indeterminate_resolved"):
    """What a person found out about an unknown call (resolution/v1). It never touches the sealed run."""

    call_key: str
    verdict: Verdict
    by: str
    output: str | None = None
    note: str | None = None


Record = (
    RunStarted
    | StepStarted
    | ModelAttemptFinished
    | ModelRetry
    | ModelStepFinished
    | ToolBatchStarted
    | ToolDispatchIntent
    | ToolProcess
    | ToolRerun
    | ToolCallReturned
    | ToolNoDispatch
    | ToolResult
    | ToolBatchFinished
    | TurnFinished
    | ResumeStarted
    | RunFinished
    | IndeterminateResolved
)
