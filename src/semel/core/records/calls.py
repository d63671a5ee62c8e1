"""Control records of tool calls: their approval, plan, intent, and what became of them.

A call is known by (run, step, ordinal), from which `batch_id` and `call_key` derive, so that both exist before the batch does;
`tool_call_id` is the provider's and only for pairing (CON10).
"""

from typing import Literal

from semel.core.outcomes import Outcome
from semel.core.records.content import HookNote, ToolOutput
from semel.core.values import Frozen


class ApprovalRequested(Frozen, frozen=True, kw_only=True, tag="approval_requested"):
    """A call waits for a person. Bound to the digest of the exact arguments; `expires_at_ms` is when silence means no."""

    run_id: str
    step_id: int
    ordinal: int
    tool_call_id: str
    call_key: str
    args_digest: str
    rule: str | None = None
    expires_at_ms: int | None = None


ApprovalDecision = Literal["approved", "denied", "expired", "cancelled"]


class ApprovalResolved(Frozen, frozen=True, kw_only=True, tag="approval_resolved"):
    """The one answer to an approval. Arguments that the person changed are recorded, and `args_digest` is theirs."""

    run_id: str
    step_id: int
    ordinal: int
    tool_call_id: str
    call_key: str
    decision: ApprovalDecision
    args_digest: str
    args: str | None = None
    by: str | None = None
    note: str | None = None


class ApprovalRecorded(Frozen, frozen=True, kw_only=True, tag="approval_recorded"):
    """The decision where its batch has it. With `output` it closes the call, and no other terminal may (CON4, CON12)."""

    batch_id: str
    ordinal: int
    tool_call_id: str
    call_key: str
    decision: ApprovalDecision
    output: ToolOutput | None = None
    closed_at_ms: int | None = None
    tag: int | None = None


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


class SchemaPin(Frozen, frozen=True, kw_only=True):
    """The schema and the semantics of a provider's tool as the call was planned with (R12)."""

    schema_digest: str
    semantics: str


class ToolDispatchIntent(Frozen, frozen=True, kw_only=True, tag="tool_dispatch_intent"):
    """This call is about to leave the process; durable before it does (B3). `args` only where a person or a hook changed them."""

    batch_id: str
    ordinal: int
    tool_call_id: str
    args_digest: str
    args: str | None = None
    module_id: str | None = None
    schema_pin: SchemaPin | None = None
    dispatched_at_ms: int | None = None
    hooks: tuple[HookNote, ...] = ()


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
    hooks: tuple[HookNote, ...] = ()


class ToolCallDeferred(Frozen, frozen=True, kw_only=True, tag="tool_call_deferred"):
    """The call settles now with a stand-in, and its real result comes later under `handle` as a `late_result`."""

    batch_id: str
    ordinal: int
    tool_call_id: str
    call_key: str
    handle: str
    output: ToolOutput
    deferred_at_ms: int | None = None


class ToolCallProviderHeld(Frozen, frozen=True, kw_only=True, tag="tool_call_provider_held"):
    """The provider holds the call and owes its result; the run waits and goes on by itself (R28). Interim text is not kept."""

    batch_id: str
    ordinal: int
    tool_call_id: str
    call_key: str
    module: str
    reason: str
    held_at_ms: int
    sequential: bool
    detail_digest: str | None = None
    until_ms: int | None = None


class ToolNoDispatch(Frozen, frozen=True, kw_only=True, tag="tool_no_dispatch"):
    """This call was not dispatched and never will be; the model reads the message as an error result."""

    batch_id: str
    ordinal: int
    tool_call_id: str
    reason: str
    message: str
    dispatched_at_ms: int | None = None
    hooks: tuple[HookNote, ...] = ()
    tag: int | None = None


class ToolResult(Frozen, frozen=True, kw_only=True, tag="tool_result"):
    """What became of a dispatched call. `output` is absent where an earlier record of the call has brought it already."""

    batch_id: str
    ordinal: int
    tool_call_id: str
    is_error: bool
    outcome: Outcome
    output: ToolOutput | None = None
    reason: str | None = None
    terminate: bool = False
    finished_at_ms: int | None = None
    hooks: tuple[HookNote, ...] = ()
    tag: int | None = None


class ToolBatchFinished(Frozen, frozen=True, kw_only=True, tag="tool_batch_finished"):
    """Every planned call has exactly one terminal (B17)."""

    batch_id: str


ApprovalRecord = ApprovalRequested | ApprovalResolved
OneCallRecord = (
    ToolDispatchIntent
    | ToolProcess
    | ToolCallReturned
    | ToolCallDeferred
    | ToolCallProviderHeld
    | ApprovalRecorded
    | ToolNoDispatch
    | ToolResult
)
BatchRecord = ToolBatchStarted | OneCallRecord | ToolRerun | ToolBatchFinished
