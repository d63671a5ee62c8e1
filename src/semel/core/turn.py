"""What follows a complete turn: another step, or the end of the run by name (A2-A9, A15). Pure.

The order of the checks is observable and fixed: every result asked to terminate or an output was submitted; the output was
missed too often; the answers are cut again and again; steps, tokens, cost, time; else the next step.
"""

from semel.core.effects import CallModel, Effect
from semel.core.keys import answer_entry_of
from semel.core.records import Failure, Record, RunFinished, StepStarted
from semel.core.state import Run, Session
from semel.core.values import Frozen, Stop, Usage


class TurnFacts(Frozen, frozen=True, kw_only=True):
    """What a turn came to, counting what the same barrier is about to make durable."""

    step_id: int
    usage: Usage
    output_misses: int
    truncations: int
    done: bool = False
    stop: Stop | None = None


DECLINED = frozenset({Stop.REFUSAL, Stop.CONTENT_FILTER})
"""The provider or the model broke the answer off: none of its calls may run, and the run ends with that cause (A5)."""

Next = tuple[tuple[Record, ...], tuple[Effect, ...]]


def after_turn(state: Session, run: Run, facts: TurnFacts) -> Next:
    """The records and effects behind `turn_finished`."""
    if facts.stop in DECLINED:
        why = Failure(kind="model", code=str(facts.stop), message="the model or its provider declined to answer")
        return (finish(run, "error", facts.usage, why),), ()
    if facts.done:
        return (finish(run, "completed", facts.usage),), ()
    stop = _limit_reached(run, facts)
    if stop is not None:
        return (finish(run, stop.code, facts.usage, stop),), ()
    return begin_step(state, run, facts.step_id + 1)


def begin_step(state: Session, run: Run, step_id: int) -> Next:
    """The first attempt of a step. It drains every pending verdict; later attempts repeat exactly that (P4)."""
    started = StepStarted(
        run_id=run.run_id,
        step_id=step_id,
        attempt=1,
        result_entry=answer_entry_of(state.lineage, run.run_id, step_id),
        drained=state.pending,
    )
    return (started,), (CallModel(step_id=step_id, attempt=1),)


def finish(run: Run, reason: str, usage: Usage, error: Failure | None = None) -> RunFinished:
    """The terminal of a run."""
    return RunFinished(run_id=run.run_id, reason=reason, usage=usage, error=error)


def _limit_reached(run: Run, facts: TurnFacts) -> Failure | None:
    limits = run.limits
    cost = facts.usage.cost
    if run.config.output_schema is not None and facts.output_misses >= limits.output_retries:
        return _failure("output", "output_invalid", f"no valid output in {facts.output_misses} tries")
    if facts.truncations >= limits.truncations:
        return _failure("limit", "truncated", f"{facts.truncations} answers in a row were cut at the output limit")
    if facts.step_id >= limits.steps:
        return _failure("limit", "max_steps", f"the run took {facts.step_id} steps, its limit")
    if facts.usage.total >= limits.tokens:
        return _failure("limit", "token_limit", f"the run used {facts.usage.total} tokens, its limit is {limits.tokens}")
    if limits.cost is not None and cost is not None and cost.currency != limits.cost.currency:
        return _failure("limit", "cost_currency", f"the run costs {cost.currency}, its limit is in {limits.cost.currency}")
    if limits.cost is not None and cost is not None and cost.micros >= limits.cost.micros:
        return _failure("limit", "cost_limit", f"the run cost {cost}, its limit is {limits.cost}")
    if run.running_ms >= limits.wall_ms:
        return time_limit(run)
    return None


def time_limit(run: Run) -> Failure:
    """The run's time is up. Time in which no process carried the run does not count."""
    return _failure("limit", "time_limit", f"the run took {run.running_ms} ms, its limit is {run.limits.wall_ms} ms")


def _failure(kind: str, code: str, message: str) -> Failure:
    return Failure(kind=kind, code=code, message=message)
