"""Logs that only a bug can write, by reason, and beside each the nearest log that a legal writer writes."""

from typing import NamedTuple

from msgspec.structs import replace

from semel.core.keys import call_key_of
from semel.core.outcomes import Outcome
from semel.core.records import (
    ApprovalRecorded,
    ApprovalRequested,
    ApprovalResolved,
    CompactionMessage,
    CompactionViewApplied,
    Entry,
    FollowUpQueued,
    IndeterminateResolved,
    LateResult,
    ModelStepFinished,
    Queued,
    Record,
    Retracted,
    RunCancelRequested,
    RunFinished,
    RunStarted,
    Steered,
    StepStarted,
    ToolBatchFinished,
    ToolBatchStarted,
    ToolCallDeferred,
    ToolCallProviderHeld,
    ToolCallReturned,
    ToolDispatchIntent,
    ToolResult,
    TurnFinished,
)
from semel.core.values import Money
from tests.core.edits import Change, at, but, first_of, same, swapped, then, twice, up_to, without
from tests.core.machine import LINEAGE


class Case(NamedTuple):
    """A reason, a script, the change that only a bug can write, and the nearest one that is legal."""

    reason: str
    script: str
    illegal: Change
    legal: Change


RUN = first_of("text", RunStarted)
LATE = first_of("deferred", LateResult)
QUEUED = first_of("next_run", Queued)
STEERED = first_of("steer", Steered)
OTHER_RUN = replace(RUN, run_id="other", key="other", input=(), entries=())
EURO = Money(micros=1, currency="EUR")


def priced(*currencies: str) -> Change:
    def apply(records: list[Record]) -> list[Record]:
        left = list(currencies)
        return [
            replace(record, usage=replace(record.usage, cost=Money(micros=5, currency=left.pop(0))))
            if isinstance(record, ModelStepFinished) and left
            else record
            for record in records
        ]

    return apply


CASES: dict[str, Case] = {
    # K1: the single writer cannot have two runs open
    "a run starts in a run": Case("multiple_open_operations", "text", at(RunStarted, lambda r: [r, OTHER_RUN]), same),
    "a run starts before the one before it ends": Case(
        "multiple_open_operations", "two_runs", without(RunFinished), up_to(TurnFinished, nth=1)
    ),
    # K2: what was never started cannot be referenced
    "a step of no run": Case("unknown_operation", "text", but(StepStarted, run_id="other"), same),
    "a call of no batch": Case("unknown_operation", "parallel", but(ToolDispatchIntent, batch_id="other"), same),
    "a verdict on a call that is not unknown": Case(
        "unknown_operation",
        "parallel",
        then(same, IndeterminateResolved(call_key="nobody", verdict="happened", by="t")),
        same,
    ),
    "an answer of a person whom nobody asked": Case("unknown_operation", "approval", without(ApprovalRequested, nth=1), same),
    # K3: nothing of an operation follows its end
    "a step behind the end of its run": Case("record_after_finish", "text", lambda records: [*records, records[1]], same),
    "a run that ends twice": Case("record_after_finish", "text", twice(RunFinished), same),
    "a run that starts again": Case("record_after_finish", "text", lambda records: [*records, records[0]], same),
    "a steer behind the end of its run": Case(
        "record_after_finish", "text", then(same, replace(STEERED, run_id=RUN.run_id)), same
    ),
    "a batch that goes on behind its marker": Case("record_after_finish", "parallel", twice(ToolBatchFinished), same),
    # K5: attempts count by one
    "attempt 3 behind attempt 1": Case(
        "non_consecutive_attempt",
        "text",
        at(StepStarted, lambda r: [r, replace(r, attempt=3)]),
        at(StepStarted, lambda r: [r, replace(r, attempt=2)]),
    ),
    "a first attempt that is the second": Case("non_consecutive_attempt", "text", but(StepStarted, attempt=2), same),
    "attempt 2 twice": Case(
        "non_consecutive_attempt",
        "text",
        at(StepStarted, lambda r: [r, replace(r, attempt=2), replace(r, attempt=2)]),
        at(StepStarted, lambda r: [r, replace(r, attempt=2), replace(r, attempt=3)]),
    ),
    # K6: an aborting run takes no more messages; the session does
    "a steer behind the abort": Case(
        "queue_after_abort",
        "cancel_now",
        swapped(Steered, RunCancelRequested),
        then(up_to(RunCancelRequested), QUEUED),
    ),
    "a follow-up behind the abort": Case(
        "queue_after_abort", "cancel_at_boundary", swapped(FollowUpQueued, RunCancelRequested), same
    ),
    # K7: only what waits in the queue can be taken from it
    "taken back, but never queued": Case("invalid_queue_cancellation", "next_run", without(Queued, nth=2), without(Retracted)),
    "taken back before it was queued": Case(
        "invalid_queue_cancellation",
        "next_run",
        at(Queued, lambda r: [Retracted(submission_id=r.submission_id), r], nth=1),
        then(without(Retracted), at(Queued, lambda r: [r, Retracted(submission_id=r.submission_id)], nth=2)),
    ),
    "taken back, but it belongs to a run": Case(
        "invalid_queue_cancellation", "steer", then(same, Retracted(submission_id="s1")), same
    ),
    "taken back, but its run has started": Case(
        "invalid_queue_cancellation", "next_run", then(same, Retracted(submission_id="q1")), same
    ),
    "taken back twice": Case("invalid_queue_cancellation", "next_run", twice(Retracted), same),
    # K8: a step does not contradict its own series
    "attempts that disagree about their answer": Case(
        "inconsistent_step",
        "text",
        at(StepStarted, lambda r: [r, replace(r, attempt=2, result_entry="other")]),
        at(StepStarted, lambda r: [r, replace(r, attempt=2)]),
    ),
    "attempts that disagree about what they drain": Case(
        "inconsistent_step",
        "steer",
        at(StepStarted, lambda r: [r, replace(r, attempt=2, drained=())], nth=1),
        at(StepStarted, lambda r: [r, replace(r, attempt=2)], nth=1),
    ),
    "an answer under another entry": Case(
        "inconsistent_step",
        "text",
        at(ModelStepFinished, lambda r: [replace(r, assistant_message=replace(r.assistant_message, entry_id="other"))]),
        same,
    ),
    "a turn without its batch": Case("inconsistent_step", "parallel", without(ToolBatchFinished), up_to(ToolResult, nth=2)),
    "a batch finished too early": Case("inconsistent_step", "parallel", without(ToolResult, nth=2), up_to(ToolResult, nth=2)),
    "a result before its turn": Case("tool_call_mismatch", "parallel", without(ToolResult), up_to(ToolResult)),
    "a completed end over an unknown call": Case(
        "inconsistent_step", "held_beside_an_unknown", but(RunFinished, reason="completed"), same
    ),
    "a step behind the natural end": Case("inconsistent_step", "follow_up", but(StepStarted, nth=2, drained=()), same),
    "a step that drains what does not wait": Case("inconsistent_step", "steer", without(Steered), same),
    "a step in a run that is to end": Case(
        "inconsistent_step",
        "text",
        at(RunStarted, lambda r: [r, RunCancelRequested(run_id=r.run_id, at="now")]),
        at(StepStarted, lambda r: [r, RunCancelRequested(run_id=r.run_id, at="now")]),
    ),
    "a batch that does not wait for a person": Case("inconsistent_step", "approval", without(ApprovalResolved), same),
    "a pause for a held call that there is not": Case("inconsistent_step", "held", without(ToolCallProviderHeld), same),
    # K9: starts and results are of the calls that the model issued
    "a plan of fewer calls": Case(
        "tool_call_mismatch",
        "parallel",
        at(ToolBatchStarted, lambda r: [replace(r, planned_calls=r.planned_calls[:2])]),
        same,
    ),
    "a plan of other arguments": Case(
        "tool_call_mismatch",
        "parallel",
        at(ToolBatchStarted, lambda r: [replace(r, planned_calls=tuple(replace(c, args_digest="x") for c in r.planned_calls))]),
        same,
    ),
    "a result of a call that was never sent": Case(
        "tool_call_mismatch",
        "parallel",
        without(ToolDispatchIntent, nth=1),
        then(without(ToolDispatchIntent, nth=1), up_to(ToolResult)),
    ),
    "a start with other arguments than planned": Case(
        "tool_call_mismatch", "parallel", but(ToolDispatchIntent, args_digest="x"), same
    ),
    "a start of a call that does not exist": Case("tool_call_mismatch", "parallel", but(ToolDispatchIntent, ordinal=9), same),
    "a denied call that is planned all the same": Case(
        "tool_call_mismatch",
        "approval",
        at(ToolBatchStarted, lambda r: [replace(r, planned_calls=tuple(replace(c, refused=None) for c in r.planned_calls))]),
        same,
    ),
    "an approval for other arguments": Case("tool_call_mismatch", "approval", but(ApprovalRequested, args_digest="x"), same),
    "a decision that nobody made": Case("tool_call_mismatch", "approval", but(ApprovalRecorded, decision="cancelled"), same),
    "a held call that becomes unknown": Case(
        "tool_call_mismatch", "held_beside_an_unknown", but(ToolResult, outcome=Outcome.UNKNOWN), same
    ),
    # K10: one call starts once, comes back once, ends once
    "two starts of one call": Case("duplicate_tool_invocation", "parallel", twice(ToolDispatchIntent), same),
    "two results of one call": Case("duplicate_tool_invocation", "parallel", twice(ToolResult), same),
    "two returns of one call": Case("duplicate_tool_invocation", "early_return", twice(ToolCallReturned), same),
    "two batches of one step": Case("duplicate_tool_invocation", "parallel", twice(ToolBatchStarted), same),
    "a call that is held twice": Case("duplicate_tool_invocation", "held", twice(ToolCallProviderHeld), same),
    "a person who is asked twice": Case("duplicate_tool_invocation", "approval", twice(ApprovalRequested), same),
    "a person who answers twice": Case("duplicate_tool_invocation", "approval", twice(ApprovalResolved), same),
    "a closing approval and a result": Case("duplicate_tool_invocation", "approval", twice(ApprovalRecorded), same),
    # K11: a named entry that exists holds what was declared
    "a result that denies its return": Case("provisioned_entry_mismatch", "early_return", but(ToolResult, is_error=True), same),
    "a result that names a return which is not there": Case(
        "provisioned_entry_mismatch", "parallel", but(ToolResult, output=None), same
    ),
    "an entry with two contents": Case(
        "provisioned_entry_mismatch",
        "text",
        at(RunStarted, lambda r: [replace(r, entries=(*r.entries, Entry(entry_id=r.config, content=r.entries[1].content)))]),
        at(RunStarted, lambda r: [replace(r, entries=(*r.entries, r.entries[0]))]),
    ),
    "an input that is not there": Case(
        "provisioned_entry_mismatch", "text", at(RunStarted, lambda r: [replace(r, entries=r.entries[:-1])]), same
    ),
    "a queued message that starts with another input": Case(
        "provisioned_entry_mismatch",
        "next_run",
        at(RunStarted, lambda r: [replace(r, input=(QUEUED.request.input[0].entry_id,))], nth=2),
        same,
    ),
    "a key that delivers twice": Case(
        "provisioned_entry_mismatch", "steer", at(Steered, lambda r: [replace(r, send_id="s1")], nth=1), same
    ),
    # K12: a handle names the one call that it was given for
    "a late result of a call that owes none": Case(
        "invalid_deferred_handle", "deferred", without(ToolCallDeferred), up_to(LateResult)
    ),
    "a late result under the handle of another call": Case(
        "invalid_deferred_handle", "deferred", but(LateResult, handle="another"), same
    ),
    "a late result of another run's call": Case(
        "invalid_deferred_handle", "deferred", but(LateResult, call_key=call_key_of(LINEAGE, "other", 1, 0)), same
    ),
    "a late result that comes twice": Case("invalid_deferred_handle", "deferred", twice(LateResult), same),
    "a second late result of a held call": Case("invalid_deferred_handle", "held_and_cancelled", twice(LateResult), same),
    # K13: a compaction states what it does
    "a setup that replaces something": Case("invalid_compaction_reason", "compacted", but(CompactionMessage, end=1), same),
    "a summary that says it is the setup": Case(
        "invalid_compaction_reason", "compacted", but(CompactionMessage, nth=1, reason="setup"), same
    ),
    "a summary of nothing": Case("invalid_compaction_reason", "compacted", but(CompactionMessage, nth=1, replacement=()), same),
    "a view that cuts a call from its result": Case(
        "invalid_compaction_reason", "compacted", but(CompactionViewApplied, end=2), but(CompactionViewApplied, end=1)
    ),
    "a view that is older than the one before": Case(
        "invalid_compaction_reason", "compacted", but(CompactionViewApplied, version=1), same
    ),
    # K14: a total that cannot be summed is no total
    "two currencies in one run": Case("inconsistent_cost", "parallel", priced("USD", "EUR"), priced("USD", "USD")),
    "a third answer in another currency": Case(
        "inconsistent_cost", "steer", priced("USD", "USD", "EUR"), priced("EUR", "EUR", "EUR")
    ),
}
