"""More logs that only a bug can write: about single calls, approvals, the context, tags and the ends of runs."""

from typing import Any

from msgspec.structs import replace

from semel.core.records import (
    ApprovalRecorded,
    ApprovalRequested,
    ApprovalResolved,
    BudgetFired,
    CompactionAnswer,
    CompactionMessage,
    CompactionNotice,
    CompactionRequest,
    CompactionViewApplied,
    CompactionWait,
    ContextCeilingDecided,
    ContextCeilingWait,
    Entry,
    HistorySupplied,
    IndeterminateResolved,
    LateResult,
    ModelStepFinished,
    OpaqueStateVoided,
    Queued,
    Record,
    RunCancelRequested,
    RunFinished,
    RunRefrozen,
    RunStarted,
    SendDelivered,
    StepStarted,
    ToolBatchStarted,
    ToolCallDeferred,
    ToolCallProviderHeld,
    ToolCallReturned,
    ToolDispatchIntent,
    ToolNoDispatch,
    ToolOutput,
    ToolResult,
    TurnFinished,
)
from semel.core.values import UserMessage
from tests.core.corruptions import RUN, Case
from tests.core.edits import Change, at, but, first_of, same, then, twice, up_to, without

HISTORY = first_of("supplied", HistorySupplied)
REFROZEN = first_of("gated", RunRefrozen)
NO_DISPATCH = first_of("refusals", ToolNoDispatch)


def behind(kind: type, make: Any, *, nth: int = 0) -> Change:
    """Put a record that `make` gives directly behind the nth of a kind."""
    return at(kind, lambda record: [record, make(record)], nth=nth)


def before(kind: type, make: Any, *, nth: int = 0) -> Change:
    return at(kind, lambda record: [make(record), record], nth=nth)


def wait(step: Any) -> Record:
    return ContextCeilingWait(run_id=step.run_id, step_id=step.step_id, deadline_ms=99)


def other_wait(step: Any) -> Record:
    return ContextCeilingWait(run_id=step.run_id, step_id=step.step_id, deadline_ms=100)


def refusal(intent: Any) -> ToolNoDispatch:
    return replace(NO_DISPATCH, batch_id=intent.batch_id, ordinal=intent.ordinal, tool_call_id=intent.tool_call_id)


def closing(intent: Any) -> ApprovalRecorded:
    """A no to the call that a person said yes to."""
    recorded = first_of("approval", ApprovalRecorded)
    asked = first_of("approval", ApprovalRequested)
    return replace(
        recorded, ordinal=intent.ordinal, tool_call_id=intent.tool_call_id, call_key=asked.call_key, decision="approved"
    )


def with_summary(text: str) -> Change:
    def edit(record: Any) -> list[Any]:
        entries = tuple(replace(entry, content=UserMessage(text=text)) for entry in record.replacement)
        return [replace(record, replacement=entries)]

    return at(CompactionViewApplied, edit)


def deferred_too(handle: str) -> Change:
    """The other call of the batch is deferred as well."""
    other = first_of("deferred", ToolBatchStarted).planned_calls[1]
    again = {"ordinal": 1, "tool_call_id": other.tool_call_id, "call_key": other.call_key, "handle": handle}
    return behind(ToolCallDeferred, lambda record: replace(record, **again))


def answer_before(content: Any) -> Change:
    """The entry of the first answer is there before the answer is."""
    name = first_of("text", StepStarted).result_entry
    return at(RunStarted, lambda r: [replace(r, entries=(*r.entries, Entry(entry_id=name, content=content)))])


def another_run(record: Any) -> Record:
    """A run that goes on from the same verdict, under a key of its own."""
    return replace(record, run_id="other", key="other", entries=())


def handed_over(cancel: Any) -> Record:
    name = first_of("next_run", Queued).request.input[0].entry_id
    return SendDelivered(submission_id="q1", run_id=cancel.run_id, delivery="steer", input=(name,))


def result_of_closed(closed: Any) -> ToolResult:
    """A result of the call that a person's no has closed."""
    result = first_of("approval", ToolResult)
    return replace(result, batch_id=closed.batch_id, ordinal=closed.ordinal, tool_call_id=closed.tool_call_id)


MORE: dict[str, Case] = {
    # K2, K3: the operation is there, and open
    "a run that goes on from a call without a verdict": Case(
        "unknown_operation",
        "verdict_and_continue",
        without(IndeterminateResolved),
        but(RunStarted, nth=1, continues=None),
    ),
    "a batch of a run that never began": Case("unknown_operation", "parallel", but(ToolBatchStarted, run_id="other"), same),
    "a batch behind the end of its run": Case(
        "record_after_finish", "parallel", lambda records: [*records, first_of("parallel", ToolBatchStarted)], same
    ),
    "an answer to a request that is not the newest": Case(
        "unknown_operation", "compacted", but(CompactionAnswer, request_id="other"), without(CompactionAnswer)
    ),
    # K8: the step is where its series says
    "a batch of an answer without calls": Case(
        "inconsistent_step",
        "text",
        before(TurnFinished, lambda r: replace(first_of("parallel", ToolBatchStarted), step_id=r.step_id)),
        same,
    ),
    "an approval of a call that is planned already": Case(
        "inconsistent_step", "parallel", behind(ToolBatchStarted, lambda _: first_of("approval", ApprovalRequested)), same
    ),
    "a step that is not the next": Case("inconsistent_step", "parallel", but(StepStarted, nth=1, step_id=3), same),
    "a run that ends within a turn": Case("inconsistent_step", "text", without(TurnFinished), same),
    "an end for the ceiling that nobody decided": Case(
        "inconsistent_step", "text", but(RunFinished, reason="context_ceiling"), same
    ),
    "another config behind an answer": Case(
        "inconsistent_step",
        "gated",
        behind(ModelStepFinished, lambda _: REFROZEN),
        before(ModelStepFinished, lambda _: REFROZEN),
    ),
    "provider state that is repaired twice": Case("inconsistent_step", "opaque_voided", twice(OpaqueStateVoided, nth=1), same),
    "another start in the middle of a run": Case(
        "inconsistent_step",
        "opaque_voided",
        behind(StepStarted, lambda step: OpaqueStateVoided(run_id=step.run_id, reason="prefix_changed")),
        before(StepStarted, lambda step: OpaqueStateVoided(run_id=step.run_id, reason="prefix_changed")),
    ),
    "an attempt to answer twice": Case("inconsistent_step", "text", twice(ModelStepFinished), same),
    "a ceiling that is decided twice": Case(
        "inconsistent_step", "compacted", twice(ContextCeilingDecided), twice(ContextCeilingWait)
    ),
    "a wait with two deadlines": Case(
        "inconsistent_step",
        "text",
        then(behind(StepStarted, other_wait), behind(StepStarted, wait)),
        then(behind(StepStarted, wait), behind(StepStarted, wait)),
    ),
    "a compaction that an answered step waits for": Case(
        "inconsistent_step",
        "text",
        behind(ModelStepFinished, lambda r: CompactionWait(run_id=r.run_id, step_id=r.step_id, deadline_ms=5)),
        behind(StepStarted, lambda r: CompactionWait(run_id=r.run_id, step_id=r.step_id, deadline_ms=5)),
    ),
    "a history behind a conversation": Case(
        "inconsistent_step", "text", then(same, HISTORY), lambda records: [HISTORY, *records]
    ),
    # K9: of the call that the model issued
    "a batch of another id": Case("tool_call_mismatch", "parallel", but(ToolBatchStarted, batch_id="other"), same),
    "a start under another provider's id": Case(
        "tool_call_mismatch", "parallel", but(ToolDispatchIntent, tool_call_id="other"), same
    ),
    "a start of a refused call": Case("tool_call_mismatch", "refusals", but(ToolDispatchIntent, ordinal=0), same),
    "a call that returns under another key": Case(
        "tool_call_mismatch", "early_return", but(ToolCallReturned, call_key="other"), same
    ),
    "a held call of a batch that goes otherwise": Case(
        "tool_call_mismatch", "held", but(ToolCallProviderHeld, sequential=True), same
    ),
    "a call that was sent and is refused": Case(
        "tool_call_mismatch", "parallel", behind(ToolDispatchIntent, refusal, nth=2), same
    ),
    "an approval for a call that there is not": Case("tool_call_mismatch", "approval", but(ApprovalRequested, ordinal=7), same),
    "an answer for other arguments": Case("tool_call_mismatch", "approval", but(ApprovalResolved, args_digest="x"), same),
    "an approved call that its approval closes": Case(
        "tool_call_mismatch",
        "approval",
        before(ToolDispatchIntent, closing),
        before(ToolDispatchIntent, lambda r: replace(closing(r), output=None)),
    ),
    # K10: one end for each call
    "a refused call that is refused again": Case("duplicate_tool_invocation", "refusals", twice(ToolNoDispatch), same),
    "a return behind the result": Case(
        "duplicate_tool_invocation",
        "early_return",
        lambda records: [*up_to(ToolResult)(records), first_of("early_return", ToolCallReturned)],
        up_to(ToolResult),
    ),
    "a result of a call that its approval has closed (CON12)": Case(
        "duplicate_tool_invocation", "approval", behind(ApprovalRecorded, result_of_closed), same
    ),
    # K11, C47: an entry has one content, a part one tag
    "an input that is a config": Case(
        "provisioned_entry_mismatch", "text", at(RunStarted, lambda r: [replace(r, input=(r.config,))]), same
    ),
    "a tag that a part has already": Case(
        "provisioned_entry_mismatch",
        "gated",
        but(ToolResult, nth=1, tag=1),
        but(ToolResult, nth=1, tag=None),
    ),
    "a budget's notice under a used tag": Case(
        "provisioned_entry_mismatch",
        "compacted",
        then(but(RunStarted, nth=1, tags=((5,),)), but(BudgetFired, tag=5)),
        then(but(RunStarted, nth=1, tags=((5,),)), but(BudgetFired, tag=6)),
    ),
    "an entry that is named as a message and is none": Case(
        "provisioned_entry_mismatch",
        "next_run",
        at(
            Queued,
            lambda r: [replace(r, request=replace(r.request, input=(Entry(entry_id="e", content=RUN.entries[0].content),)))],
        ),
        same,
    ),
    "an answer that was there with other words": Case(
        "provisioned_entry_mismatch",
        "text",
        answer_before(UserMessage(text="other words")),
        answer_before(first_of("text", ModelStepFinished).assistant_message.content),
    ),
    "a verdict from which two runs go on": Case(
        "provisioned_entry_mismatch",
        "verdict_and_continue",
        lambda records: [*records, another_run(first_of("verdict_and_continue", RunStarted, nth=1))],
        lambda records: [*records, replace(another_run(first_of("verdict_and_continue", RunStarted, nth=1)), continues=None)],
    ),
    # K6
    "a queued message that goes into a run behind its abort": Case(
        "queue_after_abort",
        "interrupt",
        behind(RunCancelRequested, handed_over),
        then(before(RunCancelRequested, handed_over), up_to(RunCancelRequested)),
    ),
    # K12
    "a handle for two calls": Case(
        "invalid_deferred_handle",
        "deferred",
        deferred_too(first_of("deferred", ToolCallDeferred).handle),
        then(deferred_too("another"), up_to(ToolCallDeferred, nth=1)),
    ),
    "a late result of a held call under a handle": Case(
        "invalid_deferred_handle", "held_and_cancelled", but(LateResult, handle="h"), same
    ),
    # K13: what a compaction says, and what it does
    "a request for no range": Case("invalid_compaction_reason", "compacted", but(CompactionRequest, end=0), same),
    "a request for the setup": Case("invalid_compaction_reason", "compacted", but(CompactionRequest, reason="setup"), same),
    "a summary that states the ceiling's policy": Case(
        "invalid_compaction_reason",
        "compacted",
        at(CompactionMessage, lambda r: [replace(r, ceiling=first_of("compacted", CompactionMessage).ceiling)], nth=1),
        same,
    ),
    "a second setup": Case(
        "invalid_compaction_reason",
        "compacted",
        behind(CompactionMessage, lambda r: replace(r, version=2)),
        same,
    ),
    "a replacement that no provider takes": Case(
        "invalid_compaction_reason", "compacted", with_summary("\x00"), with_summary("Another summary.")
    ),
    "a notice that is given twice": Case("invalid_compaction_reason", "compacted", twice(CompactionNotice), same),
}

QUIET: dict[str, tuple[str, Change]] = {
    "a queued message that was edited before its turn": ("next_run", at(Queued, lambda r: [replace(r, title="t")], nth=1)),
    "a budget that says nothing to the model": ("compacted", then(but(BudgetFired, notice=None), up_to(BudgetFired))),
    "an approval that says no and closes nothing yet": (
        "approval",
        before(ApprovalRecorded, lambda r: replace(r, output=None)),
    ),
    "a result with parts": ("parallel", but(ToolResult, output=ToolOutput(text="", parts=()))),
}
"""Legal changes of records that nothing above stands beside."""
