"""What an answer does to its run; shared by the fold, which applies it, and by decide, which looks ahead to it."""

from msgspec.structs import replace

from semel.core.calls import Step
from semel.core.records import ModelStepFinished
from semel.core.state import Run
from semel.core.values import AssistantMessage, Stop, ToolCall, add_usage


def with_answer(run: Run, step: Step, answer: AssistantMessage, record: ModelStepFinished, seq: int = 0) -> Run:
    """The run with the answer of its step: usage, the count of equal truncations, and what counts as its output so far.

    `seq` is that of the record, 0 for one that is only looked ahead to.
    """
    calls = answer.calls
    shape = " ".join(call.name for call in calls) if record.stop is Stop.MAX_TOKENS and calls else None
    missed = not calls and run.config.output_schema is not None
    return replace(
        run,
        step=replace(
            step,
            answer=answer,
            answered_at=seq,
            answer_tags=record.tags,
            hooks=record.hooks,
            stop=record.stop,
            not_before_ms=None,
        ),
        usage=add_usage(run.usage, record.usage),
        model_steps=run.model_steps + 1,
        truncations=0 if shape is None else run.truncations + 1 if shape == run.last_truncated else 1,
        last_truncated=shape,
        repeats=0 if not calls else run.repeats + 1 if _same(calls, run.last_calls) else 1,
        last_calls=calls,
        unpriced=run.unpriced or record.usage.cost is None,
        remind=missed,
        output_misses=run.output_misses + missed,
        output=answer.text,
    )


def _same(calls: tuple[ToolCall, ...], before: tuple[ToolCall, ...]) -> bool:
    """Whether a turn makes the calls of the turn before it once more; the ids that a provider gave them do not count."""
    if len(calls) != len(before):
        return False
    return all(one.arguments == other.arguments and one.name == other.name for one, other in zip(calls, before, strict=True))
