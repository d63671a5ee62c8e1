"""What goes in and out of a decision: commands and outcomes in; records and effects out."""

from semel.core.outcomes import Settlement
from semel.core.records import AgentRef, Config, ModelAttemptFinished, Record, Verdict
from semel.core.values import JSON, Block, Frozen, Stop, ToolSpec, Usage


class Send(Frozen, frozen=True, kw_only=True):
    """Start a run with this input. `key` makes it happen once."""

    key: str
    text: str
    agent: AgentRef
    config: Config
    instructions: str
    tools: tuple[ToolSpec, ...]
    context: JSON = None


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


class ExchangeFailed(Frozen, frozen=True, kw_only=True):
    """An exchange gave no answer. `used` counts the redeliveries of this step so far."""

    attempt: ModelAttemptFinished
    failure: str
    message: str
    retryable: bool
    used: int
    retry_after_ms: int | None = None
    provider_code: str | None = None


class CameBack(Frozen, frozen=True, kw_only=True):
    """Calls came back, by ordinal; `in_flight` are those that are still running."""

    settled: dict[int, Settlement]
    in_flight: frozenset[int] = frozenset()


class TimeUp(Frozen, frozen=True, kw_only=True):
    """The run's time was up while its model was being asked."""


Outcome = Answered | ExchangeFailed | CameBack | TimeUp


class CallModel(Frozen, frozen=True, kw_only=True):
    """Ask the model, not before the given wall time and after waiting `delay_ms`."""

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


Effect = CallModel | Dispatch | Reconcile


class Decision(Frozen, frozen=True, kw_only=True):
    """Make `records` durable, then release `effects`. `held` rides the next barrier; a death may lose it.

    `doubt` are the open calls that a dead process may have sent; it shrinks as they settle. Without records and effects
    there is nothing to do until something comes back.
    """

    records: tuple[Record, ...] = ()
    effects: tuple[Effect, ...] = ()
    held: tuple[Record, ...] = ()
    doubt: frozenset[int] = frozenset()
