"""What happened in a session, as runs of steps of calls: told from the log for `show`, record by record."""

from collections.abc import Callable, Iterable, Sequence

import msgspec

from semel.core.codec import decode
from semel.core.frame import Frame
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
from semel.ports.log import SessionStore


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


class SuppliedStory(msgspec.Struct, kw_only=True):
    """How many messages from elsewhere a session started with, in whose format."""

    supplied: int = 0
    format: str | None = None


def tell(store: SessionStore, state: Session, emit: Callable[[SuppliedStory | RunStory], object]) -> None:
    """Hand out the runs of a session, one after the other; `state` is what was read of it before."""
    telling = Telling(state, emit)
    store.read(state.session, take=telling.take)
    telling.end()


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


class Telling:
    """Tells the runs of a log whose frames come piece by piece; memory holds one run."""

    def __init__(self, state: Session, emit: Callable[[SuppliedStory | RunStory], object]) -> None:
        """`state` is the fold of the frames, which has shown that they are legal. `emit` is handed each run once it is told."""
        self._state, self._emit = state, emit
        self._run: RunStory | None = None
        self._inputs: dict[str, str] = {}
        self._waiting: dict[str, SaidStory] = {}
        self._calls: dict[str, CallStory] = {}
        self._batch: list[CallStory] = []

    def take(self, frames: Sequence[Frame]) -> None:
        """More frames, in order. What is behind the state, since somebody writes meanwhile, is not told."""
        for frame in frames:
            if 0 < frame.seq <= self._state.head:
                record = decode(frame, f"session {self._state.session!r}")
                if record is not None:
                    self._hear(record, frame.at_ms)

    def end(self) -> None:
        """No frame is left: tell the last run."""
        self._wait()
        self._over()

    @property
    def _now(self) -> RunStory:
        return need(self._run, "what happens to a run stands behind its start")

    def _over(self) -> None:
        """Hand out the run, with what was found out about its calls after it."""
        run, self._run = self._run, None
        if run is None:
            return
        state = self._state
        continued = [key for key in self._calls if key in state.continued]
        if continued:  # by the last one, of several
            run.continued_as = state.continued[max(continued, key=list(state.continued).index)]
        for key, call in self._calls.items():
            verdict, late = state.resolved.get(key), state.late.get(key)
            if verdict is not None:
                call.verdict, call.verdict_by = verdict.verdict, verdict.by
                call.verdict_output, call.note = verdict.output, verdict.note
            if late is not None and (call.deferred or call.outcome != "completed"):
                call.late = output_text(late.output)
        self._waiting, self._calls, self._batch = {}, {}, []
        self._emit(run)

    def _hear(self, record: Record, at_ms: int) -> None:
        match record:
            case RunStarted():
                self._run_started(record, at_ms)
            case ResumeStarted():
                self._now.resumes += 1
            case RunFinished():
                run = self._now
                run.finished_at_ms, run.reason, run.error, run.usage = at_ms, record.reason, record.error, record.usage
            case StepStarted():
                self._step_started(record)
            case ModelStepFinished():
                self._answered(record)
            case LateResult() if record.call_key in self._calls:
                self._calls[record.call_key].late = output_text(record.output)
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
                self._emit(SuppliedStory(supplied=len(record.entries), format=record.format))
            case _:
                self._hear_of_call(record)

    def _hear_from_outside(self, record: Outside) -> None:
        match record:
            case RunCancelRequested():
                self._now.cancel = record.at
            case RunStopRequested():
                self._now.stop = True
            case RunPaused():
                self._now.pause = record.reason
            case Queued():
                self._keep(record.request.input)
            case Steered() | FollowUpQueued():
                self._keep(record.input)
                kind = "steer" if isinstance(record, Steered) else "follow_up"
                self._said(kind, record.send_id, [entry.entry_id for entry in record.input])
            case SendDelivered():
                self._keep(record.entries)
                self._said(record.delivery, record.submission_id, record.input)

    def _hear_of_call(self, record: Record) -> None:
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
            case ToolDispatchIntent():
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

    def _wait(self) -> None:
        """Mark the calls of the open batch whose intent is there, and which were not sent: their turn has not come.

        An intent in a write that never became whole is none. Where its batch is closed, a record says that it was not sent.
        """
        run = self._state.run
        batch = run.step.batch if run is not None and run.step is not None else None
        if run is None or batch is None or batch.finished:
            return
        for call, found, kind in zip(self._batch, batch.calls, classify(run, batch), strict=True):
            if found.torn_intent and call.outcome == "sent":
                call.outcome = "planned"
            if kind in (CallClass.NEVER_SENT, CallClass.HELD_SUCCESSOR):
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
        said = SaidStory(key=key or names[0], delivery=delivery, text=self._texts(names))
        self._now.said.append(said)
        self._waiting |= dict.fromkeys(names, said)

    def _texts(self, names: Sequence[str]) -> str:
        """The messages that this is made of. Each is of one run, so none is asked for twice."""
        return "\n".join(self._inputs.pop(name, "") for name in names)

    def _run_started(self, record: RunStarted, at_ms: int) -> None:
        self._over()
        self._keep(record.entries)
        self._run = RunStory(
            run_id=record.run_id,
            key=record.key,
            agent=record.agent,
            input=self._texts(record.input),
            started_at_ms=at_ms,
            continues=record.continues,
        )

    def _step_started(self, record: StepStarted) -> None:
        steps = self._now.steps
        if steps and steps[-1].step_id == record.step_id:
            steps[-1].attempts = record.attempt
        else:
            steps.append(StepStory(step_id=record.step_id))
        for name in record.drained:
            if name in self._waiting:
                self._waiting.pop(name).step_id = record.step_id

    def _answered(self, record: ModelStepFinished) -> None:
        answer = record.assistant_message.content
        step = self._now.steps[-1]
        if isinstance(answer, AssistantMessage):
            step.text, step.usage = answer.text, record.usage
            step.calls = [
                CallStory(ordinal=at, call_key="", tool=call.name, arguments=call.arguments)
                for at, call in enumerate(answer.calls)
            ]
            self._batch = step.calls
