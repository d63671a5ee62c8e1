"""What happened in a session, as runs of steps of calls: told from the log for `show`, record by record."""

from collections.abc import Iterable, Sequence

import msgspec

from semel.core.codec import decode
from semel.core.frame import Frame, incomplete
from semel.core.media import in_words
from semel.core.records import (
    AgentRef,
    ApprovalRecorded,
    ApprovalRequested,
    ApprovalResolved,
    Entry,
    Failure,
    FollowUpQueued,
    HistorySupplied,
    IndeterminateResolved,
    LateResult,
    ModelStepFinished,
    Queued,
    QueuedRequest,
    Record,
    ResumeStarted,
    RunCancelRequested,
    RunFinished,
    RunPaused,
    RunStarted,
    RunStopRequested,
    SendDelivered,
    Steered,
    StepStarted,
    ToolBatchStarted,
    ToolCallDeferred,
    ToolCallProviderHeld,
    ToolCallReturned,
    ToolDispatchIntent,
    ToolNoDispatch,
    ToolOutput,
    ToolResult,
    Verdict,
)
from semel.core.standing import CallClass, classify
from semel.core.state import Session
from semel.core.values import AssistantMessage, Usage, UserMessage
from semel.errors import need


class CallStory(msgspec.Struct, kw_only=True):
    """One call. `outcome` is that of its result, or `refused`, `not_sent`, `denied`, `expired` or `cancelled` without one.

    While it is open it is `asked`, `planned`, `waiting` for its turn, `sent` or `held`; `approval` says what a person, or
    silence, decided before it was sent. `output` is what the run knew: of a call that was `deferred`, the stand-in. The late
    result, and the verdict of a person with its output and note, came later.
    """

    ordinal: int
    call_key: str
    tool: str
    arguments: str
    outcome: str = "planned"
    is_error: bool = False
    reason: str | None = None
    output: str | None = None
    approval: str | None = None
    approved_by: str | None = None
    deferred: bool = False
    late: str | None = None
    verdict: Verdict | None = None
    verdict_by: str | None = None
    verdict_output: str | None = None
    note: str | None = None


class StepStory(msgspec.Struct, kw_only=True):
    """One answer of the model and its calls. `text` and `usage` are None while the model has not answered."""

    step_id: int
    attempts: int = 1
    text: str | None = None
    usage: Usage | None = None
    calls: list[CallStory] = []


class SaidStory(msgspec.Struct, kw_only=True):
    """A message to the running run. `step_id` is the step that took it up, None while none has."""

    key: str
    delivery: str
    text: str
    step_id: int | None = None


class RunStory(msgspec.Struct, kw_only=True):
    """One run. `reason` is None while it is open; `resumes` counts how often a crash or a stop interrupted it.

    `cancel` is when it was asked to end, and `pause` why it waited last, each None if it never was; `stop` says that it was asked
    to end as at a limit.
    """

    run_id: str
    key: str
    agent: AgentRef
    input: str
    started_at_ms: int
    continues: str | None = None
    continued_as: str | None = None
    resumes: int = 0
    steps: list[StepStory] = []
    said: list[SaidStory] = []
    cancel: str | None = None
    stop: bool = False
    pause: str | None = None
    finished_at_ms: int | None = None
    reason: str | None = None
    error: Failure | None = None
    usage: Usage | None = None


class Story(msgspec.Struct, kw_only=True):
    """A session: its runs, and how many messages from elsewhere it started with, in whose format."""

    runs: list[RunStory]
    supplied: int = 0
    format: str | None = None


def tell(frames: Iterable[Frame], state: Session) -> Story:
    """The story that these frames tell; `state` is their fold, which has shown that it is a legal one."""
    told = _Teller()
    kept = tuple(frames)
    torn = incomplete(kept)
    for frame in kept[1:]:
        record = decode(frame, f"session {state.session!r}")
        if record is not None:
            told.hear(record, frame.at_ms, torn=frame.seq in torn)
    told.wait_in(state)
    return told.story


def output_text(output: ToolOutput) -> str:
    """What a call gave, as text; media are named."""
    return in_words(output.text, output.parts)


def message_text(message: UserMessage) -> str:
    """What was said, as text; files are named."""
    return in_words(message.text, message.parts)


def text_of(request: QueuedRequest) -> str:
    """What a queued message says."""
    return "\n".join(message_text(entry.content) for entry in request.input if isinstance(entry.content, UserMessage))


Outside = Queued | Steered | FollowUpQueued | SendDelivered | RunCancelRequested | RunStopRequested | RunPaused


class _Teller:
    def __init__(self) -> None:
        self.runs: list[RunStory] = []
        self.story = Story(runs=self.runs)
        self._inputs: dict[str, str] = {}
        self._waiting: dict[str, SaidStory] = {}
        self._calls: dict[str, CallStory] = {}
        self._batch: list[CallStory] = []

    def hear(self, record: Record, at_ms: int, *, torn: bool) -> None:
        match record:
            case RunStarted():
                self._run_started(record, at_ms)
            case ResumeStarted():
                self.runs[-1].resumes += 1
            case RunFinished():
                run = self.runs[-1]
                run.finished_at_ms, run.reason, run.error, run.usage = at_ms, record.reason, record.error, record.usage
            case StepStarted():
                self._step_started(record)
            case ModelStepFinished():
                self._answered(record)
            case IndeterminateResolved():
                call = need(self._calls.get(record.call_key), "a verdict is of a call that was planned")
                call.verdict, call.verdict_by = record.verdict, record.by
                call.verdict_output, call.note = record.output, record.note
            case LateResult():
                need(self._calls.get(record.call_key), "a late result is of a call that was planned").late = output_text(
                    record.output
                )
            case (
                Queued()
                | Steered()
                | FollowUpQueued()
                | SendDelivered()
                | RunCancelRequested()
                | RunStopRequested()
                | RunPaused()
            ):
                self._hear_from_outside(record)
            case HistorySupplied():
                self.story.supplied, self.story.format = len(record.entries), record.format
            case _:
                self._hear_of_call(record, torn=torn)

    def _hear_from_outside(self, record: Outside) -> None:
        match record:
            case RunCancelRequested():
                self.runs[-1].cancel = record.at
            case RunStopRequested():
                self.runs[-1].stop = True
            case RunPaused():
                self.runs[-1].pause = record.reason
            case Queued():
                self._keep(record.request.input)
            case Steered() | FollowUpQueued():
                self._keep(record.input)
                kind = "steer" if isinstance(record, Steered) else "follow_up"
                self._said(kind, record.send_id, [entry.entry_id for entry in record.input])
            case SendDelivered():
                self._keep(record.entries)
                self._said(record.delivery, record.submission_id, record.input)

    def _hear_of_call(self, record: Record, *, torn: bool) -> None:
        match record:
            case ToolBatchStarted():
                for planned in record.planned_calls:
                    call = self._call(planned.ordinal, planned.call_key)
                    if planned.refused is not None and call.outcome in ("planned", "asked"):
                        call.outcome, call.is_error = "refused", True
                        call.reason, call.output = planned.refused.reason, planned.refused.message
            case ApprovalRequested():
                self._call(record.ordinal, record.call_key).outcome = "asked"
            case ApprovalResolved():
                call = self._batch[record.ordinal]
                call.outcome = "planned" if record.decision == "approved" else record.decision
                call.approval, call.approved_by = record.decision, record.by
                call.arguments = call.arguments if record.args is None else record.args
            case ApprovalRecorded(output=output) if output is not None:
                call = self._batch[record.ordinal]
                call.outcome, call.output, call.is_error = record.decision, output_text(output), True
            case ToolCallProviderHeld():
                call = self._batch[record.ordinal]
                call.outcome, call.reason = "held", record.reason
            case ToolCallDeferred():
                self._batch[record.ordinal].deferred = True
                self._batch[record.ordinal].output = output_text(record.output)
            case ToolDispatchIntent() if not torn:
                self._batch[record.ordinal].outcome = "sent"
            case ToolNoDispatch():
                call = self._batch[record.ordinal]
                call.outcome = call.outcome if call.outcome == "refused" else "not_sent"
                call.reason, call.output, call.is_error = record.reason, record.message, True
            case ToolCallReturned() | ToolResult():
                call = self._batch[record.ordinal]
                call.outcome, call.is_error, call.reason = str(record.outcome), record.is_error, record.reason
                call.output = call.output if record.output is None else output_text(record.output)
            case _:
                return  # says nothing that a person asks for

    def wait_in(self, state: Session) -> None:
        """Mark the calls of the open batch whose intent is there, and which were not sent: their turn has not come."""
        batch = state.run.step.batch if state.run is not None and state.run.step is not None else None
        if state.run is None or batch is None or batch.finished:
            return
        for call, found in zip(self._batch, classify(state.run, batch), strict=True):
            if found in (CallClass.NEVER_SENT, CallClass.HELD_SUCCESSOR):
                call.outcome = "waiting"

    def _call(self, ordinal: int, call_key: str) -> CallStory:
        """A call that gets its key; from here on it is known by that."""
        call = self._batch[ordinal]
        call.call_key = call_key
        self._calls[call_key] = call
        return call

    def _keep(self, entries: Iterable[Entry]) -> None:
        self._inputs |= {
            entry.entry_id: in_words(entry.content.text, entry.content.parts)
            for entry in entries
            if isinstance(entry.content, UserMessage)
        }

    def _said(self, delivery: str, key: str | None, names: Sequence[str]) -> None:
        said = SaidStory(key=key or names[0], delivery=delivery, text="\n".join(self._inputs.get(name, "") for name in names))
        self.runs[-1].said.append(said)
        self._waiting |= dict.fromkeys(names, said)

    def _run_started(self, record: RunStarted, at_ms: int) -> None:
        self._keep(record.entries)
        continued = next((run for run in self.runs if _has_call(run, record.continues)), None)
        if continued is not None:
            continued.continued_as = record.run_id
        self.runs.append(
            RunStory(
                run_id=record.run_id,
                key=record.key,
                agent=record.agent,
                input="\n".join(self._inputs.get(name, "") for name in record.input),
                started_at_ms=at_ms,
                continues=record.continues,
            )
        )

    def _step_started(self, record: StepStarted) -> None:
        steps = self.runs[-1].steps
        if steps and steps[-1].step_id == record.step_id:
            steps[-1].attempts = record.attempt
        else:
            steps.append(StepStory(step_id=record.step_id))
        for name in record.drained:
            if name in self._waiting:
                self._waiting.pop(name).step_id = record.step_id

    def _answered(self, record: ModelStepFinished) -> None:
        answer = record.assistant_message.content
        step = self.runs[-1].steps[-1]
        if isinstance(answer, AssistantMessage):
            step.text, step.usage = answer.text, record.usage
            step.calls = [
                CallStory(ordinal=at, call_key="", tool=call.name, arguments=call.arguments)
                for at, call in enumerate(answer.calls)
            ]
            self._batch = step.calls


def _has_call(run: RunStory, call_key: str | None) -> bool:
    return any(call.call_key == call_key for step in run.steps for call in step.calls)
