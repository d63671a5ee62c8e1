"""What an answer does to its run; shared by the fold, which applies it, and by decide, which looks ahead to it."""

from msgspec.structs import replace

from semel.core.calls import Step
from semel.core.records import ModelStepFinished
from semel.core.state import Run
from semel.core.values import AssistantMessage, Stop, add_usage, digest_text


def with_answer(run: Run, step: Step, answer: AssistantMessage, record: ModelStepFinished) -> Run:
    """The run with the answer of its step: usage, the count of equal truncations, and what counts as its output so far."""
    shape = " ".join(call.name for call in answer.calls) if record.stop is Stop.MAX_TOKENS and answer.calls else None
    said = "\x1f".join(f"{call.name}\x1f{call.arguments}" for call in answer.calls)
    repeated = digest_text(said) if answer.calls else None
    missed = not answer.calls and run.config.output_schema is not None
    return replace(
        run,
        step=replace(step, answer=answer, answer_tags=record.tags, hooks=record.hooks, stop=record.stop, not_before_ms=None),
        usage=add_usage(run.usage, record.usage),
        model_steps=run.model_steps + 1,
        truncations=0 if shape is None else run.truncations + 1 if shape == run.last_truncated else 1,
        last_truncated=shape,
        repeats=0 if repeated is None else run.repeats + 1 if repeated == run.last_calls else 1,
        last_calls=repeated,
        unpriced=run.unpriced or record.usage.cost is None,
        remind=missed,
        output_misses=run.output_misses + missed,
        output=answer.text,
    )
