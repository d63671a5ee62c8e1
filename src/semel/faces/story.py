"""What happened in a session, as runs of steps of calls: told from the log for `show`, record by record."""

from collections.abc import Iterable

import msgspec

from semel.core.codec import decode
from semel.core.frame import Frame, incomplete
from semel.core.records import (
    AgentRef,
    Failure,
    IndeterminateResolved,
    ModelStepFinished,
    Record,
    ResumeStarted,
    RunFinished,
    RunStarted,
    StepStarted,
    ToolBatchStarted,
    ToolCallReturned,
    ToolDispatchIntent,
    ToolNoDispatch,
    ToolResult,
    Verdict,
)
from semel.core.values import AssistantMessage, Usage, UserMessage
from semel.errors import need


class CallStory(msgspec.Struct, kw_only=True):
    """One call. `outcome` is that of its result, `refused` or `not_sent` without one, or `planned` or `sent` while it is open.

    `output` is what the run knew; the verdict of a person, with its output and note, came later.
    """

    ordinal: int
    call_key: str
    tool: str
    arguments: str
    outcome: str = "planned"
    is_error: bool = False
    reason: str | None = None
    output: str | None = None
    verdict: Verdict | None = None
    verdict_by: str | None = None
    verdict_output: str | None = None
    note: str | None = None


class StepStory(msgspec.Struct, kw_only=True):
    """One answer of the model and its calls. `text` is None while the model has not answered."""

    step_id: int
    attempts: int = 1
    text: str | None = None
    calls: list[CallStory] = []


class RunStory(msgspec.Struct, kw_only=True):
    """One run. `reason` is None while it is open; `resumes` counts how often a crash or a stop interrupted it."""

    run_id: str
    key: str
    agent: AgentRef
    input: str
    started_at_ms: int
    continues: str | None = None
    continued_as: str | None = None
    resumes: int = 0
    steps: list[StepStory] = []
    finished_at_ms: int | None = None
    reason: str | None = None
    error: Failure | None = None
    usage: Usage | None = None


def tell(frames: Iterable[Frame], session: str) -> list[RunStory]:
    """The story that these frames tell; their fold has shown that it is a legal one."""
    told = _Teller()
    kept = tuple(frames)
    torn = incomplete(kept)
    for frame in kept[1:]:
        record = decode(frame, f"session {session!r}")
        if record is not None:
            told.hear(record, frame.at_ms, torn=frame.seq in torn)
    return told.runs


class _Teller:
    def __init__(self) -> None:
        self.runs: list[RunStory] = []
        self._inputs: dict[str, str] = {}
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
            case _:
                self._hear_of_call(record, torn=torn)

    def _hear_of_call(self, record: Record, *, torn: bool) -> None:
        match record:
            case ToolBatchStarted():
                for planned in record.planned_calls:
                    call = self._batch[planned.ordinal]
                    call.call_key = planned.call_key
                    call.outcome = "refused" if planned.refused else "planned"
                    self._calls[planned.call_key] = call
            case ToolDispatchIntent() if not torn:
                self._batch[record.ordinal].outcome = "sent"
            case ToolNoDispatch():
                call = self._batch[record.ordinal]
                call.outcome = call.outcome if call.outcome == "refused" else "not_sent"
                call.reason, call.output, call.is_error = record.reason, record.message, True
            case ToolCallReturned() | ToolResult():
                call = self._batch[record.ordinal]
                call.outcome, call.is_error, call.reason = str(record.outcome), record.is_error, record.reason
                call.output = call.output if record.output is None else record.output.text
            case _:
                return  # says nothing that a person asks for

    def _run_started(self, record: RunStarted, at_ms: int) -> None:
        for entry in record.entries:
            if isinstance(entry.content, UserMessage):
                self._inputs[entry.entry_id] = entry.content.text
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

    def _answered(self, record: ModelStepFinished) -> None:
        answer = record.assistant_message.content
        step = self.runs[-1].steps[-1]
        if isinstance(answer, AssistantMessage):
            step.text = answer.text
            step.calls = [
                CallStory(ordinal=at, call_key="", tool=call.name, arguments=call.arguments)
                for at, call in enumerate(answer.calls)
            ]
            self._batch = step.calls


def _has_call(run: RunStory, call_key: str | None) -> bool:
    return any(call.call_key == call_key for step in run.steps for call in step.calls)
