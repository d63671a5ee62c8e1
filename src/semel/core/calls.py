"""What is known of the calls of one answer: their approvals, their batch, and how far each has come."""

from msgspec.structs import replace

from semel.core.hook_notes import HookNote, changed_arguments
from semel.core.outcomes import Outcome, Settlement
from semel.core.records import (
    ApprovalRequested,
    ApprovalResolved,
    PlannedCall,
    ToolCallDeferred,
    ToolCallProviderHeld,
    ToolProcess,
)
from semel.core.values import AssistantMessage, Frozen, Stop, ToolCall
from semel.errors import need

CLOSE_OUTS = frozenset({Outcome.INTERRUPTED, Outcome.MAX_STEPS})


class Approval(Frozen, frozen=True, kw_only=True):
    """A call that a person was asked about, at this seq, and the answer once there is one."""

    asked: ApprovalRequested
    at: int
    resolved: ApprovalResolved | None = None


class CallState(Frozen, frozen=True, kw_only=True):
    """One call of the open batch. At most one of `refusal` and `result` ends it.

    `returned` is an outcome that an earlier record than `tool_result` has brought: an early return, or the stand-in of a
    deferred call, and `output_at` the seq of that record; `ended_at` is the seq of the one that ends it, and `held_at` that of
    the one that says it is held. `args` are arguments that a person or a hook changed. `torn_outcome` says that its outcome
    stands in a write that never became whole: nothing was sent because of it.
    """

    planned: PlannedCall
    intent: bool = False
    torn_intent: bool = False
    args: str | None = None
    torn_outcome: bool = False
    returned: Settlement | None = None
    result: Settlement | None = None
    refusal: str | None = None
    refusal_reason: str | None = None
    reruns: int = 0
    process: ToolProcess | None = None
    held: ToolCallProviderHeld | None = None
    deferred: ToolCallDeferred | None = None
    tag: int | None = None
    output_at: int = 0
    ended_at: int = 0
    held_at: int = 0

    @property
    def settled(self) -> Settlement | None:
        """What is known to have become of a dispatched call."""
        return self.result or self.returned

    @property
    def terminal(self) -> bool:
        """Whether its one terminal is in the log."""
        return self.result is not None or self.refusal is not None

    @property
    def waits(self) -> bool:
        """Whether its provider holds it and owes the result."""
        return self.held is not None and self.settled is None

    @property
    def closed_out(self) -> bool:
        """Whether it was held and closed without its result: its run is closing (R39; told by the outcome, never the reason)."""
        return self.held is not None and self.result is not None and self.result.outcome in CLOSE_OUTS


class Batch(Frozen, frozen=True, kw_only=True):
    """The calls of one answer."""

    batch_id: str
    step_id: int
    calls: tuple[CallState, ...]
    finished: bool = False

    @property
    def unknown(self) -> tuple[CallState, ...]:
        """Calls whose outcome nobody knows."""
        unknown = Outcome.UNKNOWN
        return tuple([call for call in self.calls if (end := call.result or call.returned) and end.outcome is unknown])

    @property
    def held(self) -> tuple[int, ...]:
        """Ordinals of the calls that wait for their provider."""
        return tuple([at for at, call in enumerate(self.calls) if call.waits])

    @property
    def stopped(self) -> bool:
        """Whether a stop closes it: some call was ended as `max_steps`."""
        return any(call.result is not None and call.result.outcome is Outcome.MAX_STEPS for call in self.calls)

    def with_call(self, call: CallState) -> "Batch":
        """The batch with a newer state of one call."""
        calls = list(self.calls)
        calls[call.planned.ordinal] = call
        return replace(self, calls=tuple(calls))


class Step(Frozen, frozen=True, kw_only=True):
    """The newest step of a run. `answer` is None while it is in flight (D4); `answered_at` is the seq of its record.

    `messages` are the keys of the messages to the run among what it drained: it answers them, or leaves them unanswered. `hooks`
    tell what the agent's hooks made of the answer and of its calls. `put_off` counts the attempts that ended in a pause, and were
    not cut short.
    """

    step_id: int
    attempt: int
    result_entry: str
    drained: tuple[str, ...]
    messages: tuple[str, ...] = ()
    answer: AssistantMessage | None = None
    answered_at: int = 0
    answer_tags: tuple[int, ...] = ()
    stop: Stop | None = None
    approvals: tuple[Approval, ...] = ()
    hooks: tuple[HookNote, ...] = ()
    batch: Batch | None = None
    finished: bool = False
    redeliveries: int = 0
    not_before_ms: int | None = None
    put_off: int = 0

    @property
    def undecided(self) -> tuple[ApprovalRequested, ...]:
        """The approvals that nobody has answered yet."""
        return tuple(approval.asked for approval in self.approvals if approval.resolved is None)

    def approval(self, ordinal: int) -> Approval | None:
        """The approval of a call, if one was asked for."""
        for approval in self.approvals:
            if approval.asked.ordinal == ordinal:
                return approval
        return None

    def changed_arguments(self, ordinal: int) -> str | None:
        """The arguments that a person, or else a pre-tool hook, put in the place of the model's; None where nobody did."""
        approval = self.approval(ordinal)
        if approval is not None and approval.resolved is not None and approval.resolved.args is not None:
            return approval.resolved.args
        return changed_arguments(self.hooks, ordinal)

    def proposed(self, ordinal: int) -> ToolCall:
        """The call as a person is asked about it: as the model issued it, with what a pre-tool hook made of its arguments."""
        return self.proposals[ordinal]

    @property
    def proposals(self) -> tuple[ToolCall, ...]:
        """All calls of the answer as proposed, in issue order."""
        calls = need(self.answer, "a proposed call is of an answer").calls
        if not self.hooks:
            return calls
        changed = [changed_arguments(self.hooks, at) for at in range(len(calls))]
        pairs = zip(calls, changed, strict=True)
        return tuple([call if other is None else replace(call, arguments=other) for call, other in pairs])

    def arguments(self, ordinal: int) -> str:
        """The arguments that a call is to leave with: the model's own text, or what a person or a hook made of it."""
        call = self.batch.calls[ordinal] if self.batch is not None else None
        if call is not None and call.args is not None:
            return call.args
        changed = self.changed_arguments(ordinal)
        if changed is not None:
            return changed
        return self.answer.calls[ordinal].arguments if self.answer is not None else ""
