"""What follows a complete turn: another step, or the end of the run by name (A2-A9, A15). Pure.

The order of the checks is observable and fixed: somebody asked to end the run; the answer was declined; every result asked to
terminate, or an output was submitted; somebody asked to stop behind this turn, or the agent's own condition says so; the output
was missed too often; the answers are cut again and again; calls that repeat, steps, tokens, cost, time; else the next step, which
takes up the messages that wait for it. The condition comes before steering is polled (A7).
"""

from semel.core.budgets import budgets_of, spent_budget, warnings_of
from semel.core.effects import CallModel, Effect
from semel.core.keys import answer_entry_of
from semel.core.records import BudgetFired, Failure, Record, RunFinished, StepStarted
from semel.core.state import PendingKind, Run, Session
from semel.core.values import Frozen, Stop, Usage


class TurnFacts(Frozen, frozen=True, kw_only=True):
    """What a turn came to, counting what the same barrier is about to make durable.

    `ends` is what the agent's own condition says of it, a text where it could not be evaluated. `unpriced` says that some answer
    of the run told no cost.
    """

    step_id: int
    usage: Usage
    output_misses: int
    truncations: int
    done: bool = False
    ends: bool | str = False
    unpriced: bool = False
    stop: Stop | None = None


DECLINED = frozenset({Stop.REFUSAL, Stop.CONTENT_FILTER})
"""The provider or the model broke the answer off: none of its calls may run, and the run ends with that cause (A5)."""

STOPPED = Failure(kind="limit", code="stopped", message="the run was stopped")

Next = tuple[tuple[Record, ...], tuple[Effect, ...]]


def after_turn(state: Session, run: Run, facts: TurnFacts, *, idle: bool = False) -> Next:
    """The records and effects behind `turn_finished`. `idle`: the run would otherwise stop, so follow-ups are taken up."""
    if run.aborting:
        return (finish(run, "cancelled", facts.usage),), ()
    if facts.stop in DECLINED:
        why = _failure("model", str(facts.stop), "the model or its provider declined to answer")
        return (finish(run, "error", facts.usage, why),), ()
    if facts.done:
        return (finish(run, "completed", facts.usage),), ()
    if run.stopping:
        return (asked_end(run, facts.usage),), ()
    if facts.ends is not False:
        return (_ended_by_condition(run, facts),), ()
    reached = _limit_reached(run, facts)
    if reached is not None:
        return (finish(run, reached.code, facts.usage, reached),), ()
    budgets = budgets_of(run, facts.usage, facts.step_id)
    spent = next((budget for budget in budgets if budget.spent), None)
    if spent is not None:
        fired, why = spent_budget(spent, run, facts.step_id)
        return (*fired, finish(run, why.code, facts.usage, why)), ()
    return begin_step(state, run, facts.step_id + 1, idle=idle, warnings=warnings_of(run, budgets, facts.step_id))


def _ended_by_condition(run: Run, facts: TurnFacts) -> RunFinished:
    """The end that the agent itself wished for. A typed output is submitted; without one the run has not done its work."""
    if isinstance(facts.ends, str):
        why = _failure("policy", "stop_condition", f"the condition to stop behind a turn cannot be evaluated: {facts.ends}")
        return finish(run, "error", facts.usage, why)
    if run.config.output_schema is not None:
        why = _failure("output", "output_invalid", "the agent's own condition ended the run before an output was submitted")
        return finish(run, why.code, facts.usage, why)
    return finish(run, "completed", facts.usage)


def begin_step(state: Session, run: Run, step_id: int, *, idle: bool = False, warnings: tuple[BudgetFired, ...] = ()) -> Next:
    """The first attempt of a step. It drains what is pending, and the warnings; later attempts repeat exactly that (P4)."""
    noticed = tuple(fired.notice.entry_id for fired in warnings if fired.notice is not None)
    started = StepStarted(
        run_id=run.run_id,
        step_id=step_id,
        attempt=1,
        result_entry=answer_entry_of(state.lineage, run.run_id, step_id),
        drained=(*drainable(state, idle=idle), *noticed),
    )
    return (*warnings, started), (CallModel(step_id=step_id, attempt=1),)


def drainable(state: Session, *, idle: bool = False) -> tuple[str, ...]:
    """The entries that the next step may take up, in the order of the log; how many of them it does is the caller's policy (Q7).

    Verdicts, late results, notices and steers are always among them; follow-ups only where the run would otherwise stop, and no
    steer keeps it going (Q6, A11).
    """
    late = idle and not state.steers
    ending = state.run is not None and state.run.ending
    kinds = {PendingKind.VERDICT, PendingKind.LATE, PendingKind.NOTICE}
    if not ending:
        kinds |= {PendingKind.STEER, *([PendingKind.FOLLOW_UP] if late else [])}
    return tuple(item.entry_id for item in state.pending if item.kind in kinds)


def finish(run: Run, reason: str, usage: Usage, error: Failure | None = None) -> RunFinished:
    """The terminal of a run."""
    return RunFinished(run_id=run.run_id, reason=reason, usage=usage, error=error)


def asked_end(run: Run, usage: Usage) -> RunFinished:
    """The terminal of a run that is to end: cancelled, or stopped as at a limit. A cancel is the stronger wish."""
    return finish(run, "cancelled", usage) if run.aborting else finish(run, "max_steps", usage, STOPPED)


def _limit_reached(run: Run, facts: TurnFacts) -> Failure | None:
    limits = run.limits
    cost = facts.usage.cost
    if run.config.output_schema is not None and facts.output_misses >= limits.output_retries:
        return _failure("output", "output_invalid", f"no valid output in {facts.output_misses} tries")
    if facts.truncations >= limits.truncations:
        return _failure("limit", "truncated", f"{facts.truncations} answers in a row were cut at the output limit")
    if limits.cost is not None and cost is not None and cost.currency != limits.cost.currency:
        return _failure("limit", "cost_currency", f"the run costs {cost.currency}, its limit is in {limits.cost.currency}")
    if limits.cost is not None and facts.unpriced:
        return _failure("limit", "cost_unknown", f"an answer told no cost, so the limit of {limits.cost} cannot be kept")
    return None


def _failure(kind: str, code: str, message: str) -> Failure:
    return Failure(kind=kind, code=code, message=message)
