"""What an answer does to its run; shared by the fold, which applies it, and by decide, which looks ahead to it."""

from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from semel.core.calls import Step
from semel.core.records import ModelStepFinished
from semel.core.state import Run
from semel.core.values import AssistantMessage, Stop, ToolCall, add_usage


class Given(NamedTuple):
    """An answer that a model gave: its record, what it says, and the calls of that."""

    record: ModelStepFinished
    answer: AssistantMessage
    calls: tuple[ToolCall, ...]


def answered_step(step: Step, answer: AssistantMessage, record: ModelStepFinished, seq: int = 0) -> Step:
    """The step with its answer. `seq` is that of the record, 0 for one that is only looked ahead to."""
    return replace(
        step,
        answer=answer,
        answered_at=seq,
        answer_tags=record.tags,
        hooks=record.hooks,
        stop=record.stop,
        not_before_ms=None,
    )


def with_answers(run: Run, step: Step, answers: Sequence[Given]) -> Run:
    """The run behind these answers of as many steps; `step` is then its newest one.

    That is usage, the count of equal truncations and of equal turns, and what counts as its output so far.
    """
    usage, before, repeats = run.usage, run.last_calls, run.repeats
    truncations, truncated, unpriced, misses, missed = run.truncations, run.last_truncated, run.unpriced, run.output_misses, False
    for record, _, calls in answers:
        shape = " ".join([call.name for call in calls]) if record.stop is Stop.MAX_TOKENS and calls else None
        usage = add_usage(usage, record.usage)
        truncations = 0 if shape is None else truncations + 1 if shape == truncated else 1
        truncated = shape
        repeats = 0 if not calls else repeats + 1 if _same(calls, before) else 1
        unpriced = unpriced or record.usage.cost is None
        missed = not calls and run.config.output_schema is not None
        misses += missed
        before = calls
    return replace(
        run,
        step=step,
        usage=usage,
        model_steps=run.model_steps + len(answers),
        truncations=truncations,
        last_truncated=truncated,
        repeats=repeats,
        last_calls=before,
        unpriced=unpriced,
        remind=missed,
        output_misses=misses,
        output=answers[-1].answer.text,
    )


def _same(calls: tuple[ToolCall, ...], before: tuple[ToolCall, ...]) -> bool:
    """Whether a turn makes the calls of the turn before it once more; the ids that a provider gave them do not count."""
    if len(calls) != len(before):
        return False
    for one, other in zip(calls, before, strict=True):  # noqa: SIM110  asked of every answer, and a generator costs more than the loop
        if one.arguments != other.arguments or one.name != other.name:
            return False
    return True
