"""The commit of a batch: what its results mean for the run, and its place in the transcript (P15, P24)."""

from msgspec.structs import replace

from semel.core.calls import Batch, CallState, Step
from semel.core.corruption import Reason, contradiction
from semel.core.outcomes import Outcome
from semel.core.owned import put
from semel.core.places import place_of, place_of_result
from semel.core.state import Position, Run, Session, UnknownCall
from semel.core.texts import SUBMIT_TOOL
from semel.core.values import ToolMessage, printable
from semel.errors import need

WHY_CHARS_MAX = 2500  # of what is known of an unknown call; what semel says about one is shorter


def batch_finished(state: Session, logged: Position, run: Run, step: Step, batch: Batch) -> Session:
    """The answer and its results join the transcript, the results in the order of the calls."""
    first = len(state.transcript) + 1
    answer = need(step.answer, "a batch belongs to an answer")
    places, own = [place_of(step.answered_at, answer)], False
    unknown: list[UnknownCall] = []
    tagged, ends, submits = bool(step.answer_tags), run.config.output_schema is None, False
    for call in batch.calls:
        result, planned = call.result, call.planned
        if result is None and call.refusal is None:
            raise contradiction(state, logged, Reason.INCONSISTENT_STEP, "a batch is finished while a call has no terminal")
        place = place_of_result(call.ended_at, call.output_at)
        places.append(place)
        own = own or not place
        if result is not None and result.outcome is Outcome.UNKNOWN:
            unknown.append(_unknown(logged, run, step, call, first + planned.ordinal))
        tagged = tagged or call.tag is not None
        ends = ends and result is not None and result.terminate
        submits = submits or planned.tool == SUBMIT_TOOL
    if tagged or own:
        tags = [step.answer_tags, *(() if call.tag is None else (call.tag,) for call in batch.calls)]
        results = [place or tool_message(call) for place, call in zip(places[1:], batch.calls, strict=True)]
        put(state, "transcript", state.transcript.plus([places[0], *results], tags))
    else:
        put(state, "transcript", state.transcript.plus_places(places))
    put(batch, "finished", True)  # noqa: FBT003  the value of a field
    if ends or submits:
        put(state, "run", _with_output(run, step, batch, ends=ends))
    if unknown:
        put(state, "unknown", (*state.unknown, *unknown))
    return state


def _unknown(logged: Position, run: Run, step: Step, call: CallState, at: int) -> UnknownCall:
    planned, spec = call.planned, run.tool(call.planned.tool)
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
        why=printable(tool_message(call).text, limit=WHY_CHARS_MAX),
        reconciles=spec is not None and spec.reconciles,
    )


def _with_output(run: Run, step: Step, batch: Batch, *, ends: bool) -> Run:
    """What counts as the run's output so far: a submitted one, or what tools that all ask to end the run gave."""
    submits = [call for call in batch.calls if call.planned.tool == SUBMIT_TOOL]
    submitted = next((call for call in submits if accepted(call)), None)
    output = run.output
    if submitted is not None and step.answer is not None:
        output = step.answer.calls[submitted.planned.ordinal].arguments
    if ends:
        output = tool_message(batch.calls[-1]).text
    missed = bool(submits) and submitted is None and run.config.output_schema is not None
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
