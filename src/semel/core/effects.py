"""What goes in and out of a decision: commands and outcomes in; records and effects out.

Commands are asked for by people and programs, outcomes come back from effects. `core.decide` has one pure function for each
command: `send`, `deliver_message`, `retract`, `hand_over`, `cancel`, `stop`, `answer_approval`, `expire_approvals`,
`deliver_result`, `resolve`, `continue_run`, `supply_history`. An outcome goes to `decide`; when nothing is under way and nothing
came back, `seal` says what follows, and gives an empty decision where the run waits for somebody.
"""

from typing import Literal

from msgspec import field

from semel.core.hook_notes import HookNote
from semel.core.outcomes import Settlement
from semel.core.policy import Policy, allow_all
from semel.core.records import AgentRef, ApprovalDecision, Config, Delivery, LateKind, ModelAttemptFinished, Record, Verdict
from semel.core.values import JSON, Block, Frozen, Part, Stop, ToolSpec, Usage


class Send(Frozen, frozen=True, kw_only=True):
    """Start a run with this input. `key` makes it happen once.

    `delivery` is how the message was asked to be delivered where that came to a run of its own, so that asking again is
    answered alike. The files that `parts` name are kept before this is asked for. `text` is as pre-user hooks left it, and
    `hooks` tell what they did.
    """

    key: str
    text: str
    agent: AgentRef
    config: Config
    instructions: str
    tools: tuple[ToolSpec, ...]
    context: JSON = None
    delivery: Delivery | None = None
    parts: tuple[Part, ...] = ()
    hooks: tuple[HookNote, ...] = ()


class Message(Frozen, frozen=True, kw_only=True):
    """A message to a session, beside a plain send: into the running run, behind it, or instead of what is left of it (Q6).

    `key` makes it happen once. `agent` and `context` are for the run that it starts where it has to wait for one.
    """

    key: str
    text: str
    delivery: Delivery
    agent: AgentRef
    context: JSON = None
    title: str | None = None
    parts: tuple[Part, ...] = ()
    hooks: tuple[HookNote, ...] = ()


class UnderWay(Frozen, frozen=True, kw_only=True):
    """What a process that carries the open run has under way: a request to the model, calls, and calls in doubt.

    A command is given None where nobody carries the run: its process is dead, and what it may have sent is not known. Then the
    command is recorded and nothing follows from it; a resume does the rest. `policy` rules on what follows in that process.
    """

    asking: bool = False
    in_flight: frozenset[int] = frozenset()
    doubt: frozenset[int] = frozenset()
    policy: Policy = allow_all


class Cancel(Frozen, frozen=True, kw_only=True):
    """End the open run: now, or when its step and the calls of it are done."""

    at: Literal["now", "step_boundary"] = "now"
    by: str | None = None


class StopRun(Frozen, frozen=True, kw_only=True):
    """End the open run as at a limit, behind its turn."""

    by: str | None = None


class AnswerApproval(Frozen, frozen=True, kw_only=True):
    """A person's answer for a call that waits; `arguments` are those that the person changed, as JSON text."""

    call_key: str
    decision: ApprovalDecision
    by: str | None = None
    arguments: str | None = None
    note: str | None = None


class DeliverResult(Frozen, frozen=True, kw_only=True):
    """The result that a held or deferred call owed. Whatever its kind, it is a known outcome (R39)."""

    call_key: str
    text: str
    is_error: bool = False
    kind: LateKind = "delivered"
    event_id: str | None = None
    parts: tuple[Part, ...] = ()


class Resolve(Frozen, frozen=True, kw_only=True):
    """Record what a person found out about an unknown call."""

    call_key: str
    verdict: Verdict
    by: str
    output: str | None = None
    note: str | None = None


class Answered(Frozen, frozen=True, kw_only=True):
    """The model answered, up to its terminal event."""

    attempt: ModelAttemptFinished
    blocks: tuple[Block, ...]
    stop: Stop
    usage: Usage
    raw_stop: str | None = None
    hooks: tuple[HookNote, ...] = ()


AUTH_REFUSED = "auth"
"""The failure of an exchange whose provider does not know the key, or that had none to send (wire 0.6)."""
OPAQUE_STATE_REJECTED = "opaque_state_rejected"
"""The failure of an exchange whose provider refused the state that it had given out itself (wire 0.6)."""


class ExchangeFailed(Frozen, frozen=True, kw_only=True):
    """An exchange gave no answer. `used` counts the redeliveries of this step so far."""

    attempt: ModelAttemptFinished
    failure: str
    message: str
    retryable: bool
    used: int
    retry_after_ms: int | None = None
    provider_code: str | None = None
    details: tuple[JSON, ...] = ()


class Deferral(Frozen, frozen=True, kw_only=True):
    """A call that settles with a stand-in: its result comes later under `handle`, which no other call of the session has.

    A handle has 200 characters at most: the ceiling counts on it.
    """

    handle: str
    text: str


class Hold(Frozen, frozen=True, kw_only=True):
    """A call whose provider holds it and owes the result; the run waits. `until_ms` is when it is given up, if ever."""

    module: str
    reason: str
    held_at_ms: int
    detail_digest: str | None = None
    until_ms: int | None = None


class CameBack(Frozen, frozen=True, kw_only=True):
    """Calls came back, by ordinal, each in one of three ways; `in_flight` are those that are still running."""

    settled: dict[int, Settlement] = field(default_factory=dict)
    in_flight: frozenset[int] = frozenset()
    deferred: dict[int, Deferral] = field(default_factory=dict)
    held: dict[int, Hold] = field(default_factory=dict)


class TimeUp(Frozen, frozen=True, kw_only=True):
    """The run's time was up while its model was being asked."""


Outcome = Answered | ExchangeFailed | CameBack | TimeUp


class CallModel(Frozen, frozen=True, kw_only=True):
    """Ask the model, after waiting `delay_ms`. A resume, which knows of a wait from the log alone, waits for `not_before_ms`."""

    step_id: int
    attempt: int
    used: int = 0
    delay_ms: int = 0
    not_before_ms: int | None = None


class Dispatch(Frozen, frozen=True, kw_only=True):
    """Send these calls of the open batch, all at once."""

    ordinals: tuple[int, ...]


class Reconcile(Frozen, frozen=True, kw_only=True):
    """Ask what became of this call."""

    ordinal: int


class StopAsking(Frozen, frozen=True, kw_only=True):
    """Give up the exchange with the model; nothing of it is recorded."""


class Interrupt(Frozen, frozen=True, kw_only=True):
    """Cancel these calls, whose tools allow it (Q12); what becomes of them comes back as of any call."""

    ordinals: tuple[int, ...]


Effect = CallModel | Dispatch | Reconcile | StopAsking | Interrupt


class Decision(Frozen, frozen=True, kw_only=True):
    """Make `records` durable, then release `effects`. `held` rides the next barrier; a death may lose it.

    `doubt` are the open calls that a dead process may have sent, from a decision that settles or sends any; None leaves them as
    they are, so that no other decision can forget one. Without records and effects there is nothing to do until something
    comes back.
    """

    records: tuple[Record, ...] = ()
    effects: tuple[Effect, ...] = ()
    held: tuple[Record, ...] = ()
    doubt: frozenset[int] | None = None
