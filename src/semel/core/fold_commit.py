"""The commit of a batch: what its results mean for the run, and its place in the transcript (P15, P24)."""

from msgspec.structs import replace

from semel.core.calls import Batch, CallState, Step
from semel.core.corruption import Reason, contradiction
from semel.core.outcomes import Outcome
from semel.core.state import Logged, Run, Session, UnknownCall
from semel.core.texts import SUBMIT_TOOL
from semel.core.transcript import grown
from semel.core.values import ToolMessage
from semel.errors import need


def batch_finished(state: Session, logged: Logged, run: Run, step: Step, batch: Batch) -> Session:
    """The answer and its results join the transcript, the results in the order of the calls."""
    if not all(call.terminal for call in batch.calls):
        raise contradiction(state, logged, Reason.INCONSISTENT_STEP, "a batch is finished while a call has no terminal")
    answer = need(step.answer, "a batch belongs to an answer")
    results = [tool_message(call) for call in batch.calls]
    first = len(state.transcript) + 1
    unknown = tuple(_unknown(logged, run, step, call, first + call.planned.ordinal) for call in batch.unknown)
    tags = [step.answer_tags, *(() if call.tag is None else (call.tag,) for call in batch.calls)]
    state = grown(state, (answer, *results), tags)
    run = _with_output(replace(run, step=replace(step, batch=replace(batch, finished=True))), step, batch)
    return replace(state, run=run, unknown=state.unknown + unknown if unknown else state.unknown)


def _unknown(logged: Logged, run: Run, step: Step, call: CallState, at: int) -> UnknownCall:
    planned = call.planned
    return UnknownCall(
        call_key=planned.call_key,
        tool=planned.tool,
        arguments=step.arguments(planned.ordinal),
        run_id=run.run_id,
        step_id=step.step_id,
        ordinal=planned.ordinal,
        tool_call_id=planned.tool_call_id,
        since_ms=logged.at_ms,
        at=at,
    )


def _with_output(run: Run, step: Step, batch: Batch) -> Run:
    """What counts as the run's output so far: a submitted one, or what tools that ask to end the run gave."""
    submits = [call for call in batch.calls if call.planned.tool == SUBMIT_TOOL]
    untyped = run.config.output_schema is None
    ends = untyped and all(call.result is not None and call.result.terminate for call in batch.calls)
    if not submits and not ends:
        return run
    submitted = next((call for call in submits if accepted(call)), None)
    output = run.output
    if submitted is not None and step.answer is not None:
        output = step.answer.calls[submitted.planned.ordinal].arguments
    if ends:
        output = tool_message(batch.calls[-1]).text
    missed = bool(submits) and submitted is None and not untyped
    return replace(run, output=output, output_misses=run.output_misses + missed)


def accepted(call: CallState) -> bool:
    """Whether a call came back without an error."""
    return call.settled is not None and call.settled.outcome is Outcome.COMPLETED and not call.settled.is_error


def tool_message(call: CallState) -> ToolMessage:
    """What the model reads about a terminal call."""
    name, result = call.planned.tool_call_id, call.result
    if result is not None:
        return ToolMessage(tool_call_id=name, text=result.text, is_error=result.is_error, parts=result.parts)
    return ToolMessage(tool_call_id=name, text=call.refusal or "", is_error=True)
