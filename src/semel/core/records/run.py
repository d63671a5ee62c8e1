"""Control records of a run and its steps. Each names its run, so that none can follow its settlement (K3)."""

from typing import Literal

from semel.core.records.content import AgentRef, Entry, Failure, HookNote
from semel.core.values import JSON, Frozen, Stop, Usage

Tags = tuple[tuple[int, ...], ...]
"""The tag numbers of a record's messages, one array for each (C45)."""


class Scope(Frozen, frozen=True, kw_only=True):
    """The admission scope that a run was started under (R3)."""

    owner: str
    ref: str
    scope_epoch: int


class ProviderAnswer(Frozen, frozen=True, kw_only=True):
    """What one tool provider answered to the first send, or why an optional text-only one was absent."""

    provider: str
    tools: JSON = None
    text: str | None = None
    absent: str | None = None


class Manifest(Frozen, frozen=True, kw_only=True):
    """What the first send of a planned session fetched: the plan as received, the answers, and what became of them (R5)."""

    plan: str
    plan_identity: str
    answers: tuple[ProviderAnswer, ...]
    tools: JSON
    system_text: str
    digests: dict[str, str]
    versions: dict[str, str]


Delivery = Literal["steer", "follow_up", "queue", "interrupt"]
"""How a message was asked to be delivered; a plain send has none."""


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
    delivery: Delivery | None = None
    scope: Scope | None = None
    manifest: Manifest | None = None
    hooks: tuple[HookNote, ...] = ()
    tags: Tags = ()


class RunRefrozen(Frozen, frozen=True, kw_only=True, tag="run_refrozen"):
    """The run goes on with other credentials, and the config that belongs to them; only before any model answered (P11)."""

    run_id: str
    config: str
    entries: tuple[Entry, ...]


class OpaqueStateVoided(Frozen, frozen=True, kw_only=True, tag="opaque_state_voided"):
    """From here on no request shows the provider state of the answers before: visible text and calls stay (wire 0.2, B22).

    `rejected`: the provider refused it in this step, once in a run. `prefix_changed`: what it is bound to is not what it was.
    """

    run_id: str
    reason: Literal["rejected", "prefix_changed"]
    step_id: int | None = None


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
    response_body_cap: int | None = None
    continuation: JSON = None


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
    hooks: tuple[HookNote, ...] = ()
    tags: tuple[int, ...] = ()


class TurnFinished(Frozen, frozen=True, kw_only=True, tag="turn_finished"):
    """The step and its batch are complete; written for every step, also one without calls."""

    run_id: str
    step_id: int


class Steered(Frozen, frozen=True, kw_only=True, tag="steered"):
    """A message to the running run. It joins the prompt at the next step, else at `run_finished` (Q1)."""

    run_id: str
    input: tuple[Entry, ...]
    send_id: str | None = None
    request_identity_digest: str | None = None
    delivery: Delivery | None = None
    title: str | None = None
    hooks: tuple[HookNote, ...] = ()
    tags: Tags = ()


class FollowUpQueued(Frozen, frozen=True, kw_only=True, tag="follow_up_queued"):
    """A message to the running run for when it would otherwise stop (Q6)."""

    run_id: str
    input: tuple[Entry, ...]
    send_id: str | None = None
    request_identity_digest: str | None = None
    title: str | None = None
    hooks: tuple[HookNote, ...] = ()
    tags: Tags = ()


class SendDelivered(Frozen, frozen=True, kw_only=True, tag="send_delivered"):
    """A queued message goes into the running run instead of starting one; `input` names its entries."""

    submission_id: str
    run_id: str
    delivery: Literal["steer", "follow_up"]
    input: tuple[str, ...]
    entries: tuple[Entry, ...] = ()
    tags: Tags = ()


class RunCancelRequested(Frozen, frozen=True, kw_only=True, tag="run_cancel_requested"):
    """The run is to end: now, or at the boundary of its step. Publishes no terminal by itself (R27)."""

    run_id: str
    at: Literal["now", "step_boundary"]
    by: str | None = None


class RunStopRequested(Frozen, frozen=True, kw_only=True, tag="run_stop_requested"):
    """The run is to end as at a limit: behind its turn, or at once where nothing of it is under way (A7, P25)."""

    run_id: str
    by: str | None = None


class RunPaused(Frozen, frozen=True, kw_only=True, tag="run_paused"):
    """The run waits for something outside. Not terminal, and no orphan of a crash (R32).

    `auth_required`: its model's provider refused the key, as `error` tells. `restart`: its process left in good order, and the
    next one asks the model. `tool_held`: it waits for results that others owe.
    """

    run_id: str
    reason: Literal["auth_required", "restart", "tool_held"]
    ts_ms: int | None = None
    error: Failure | None = None


class BudgetFired(Frozen, frozen=True, kw_only=True, tag="budget_fired"):
    """A budget came to its warning or its end; `notice` is what the model is told of it in the next step."""

    run_id: str
    step_id: int
    budget: str
    used: int
    limit: int
    notice: Entry | None = None
    tag: int | None = None


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


RunRecord = (
    RunStarted
    | RunRefrozen
    | OpaqueStateVoided
    | StepStarted
    | ModelRetry
    | ModelStepFinished
    | TurnFinished
    | Steered
    | FollowUpQueued
    | SendDelivered
    | RunCancelRequested
    | RunStopRequested
    | RunPaused
    | BudgetFired
    | ResumeStarted
    | RunFinished
)
