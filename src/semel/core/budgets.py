"""What a run may use, and how much of it is used: the warning in time, and the end by name (A15, design 14). Pure.

Each budget fires once in a run, as `budget_fired`: at its warning, which the model reads in the next step, or, where one turn
jumped over that, at its end.
"""

from typing import NamedTuple

from semel.core.limits import WARNED_AT_PERCENT
from semel.core.records import BudgetFired, Entry, Failure
from semel.core.state import Run
from semel.core.texts import budget_notice
from semel.core.values import Money, Usage, UserMessage, derived_id

_WORDS = {
    "repeated_calls": (
        "You made the same calls {used} times in a row, and at {limit} this run ends",
        "the model made the same calls {used} times in a row, the limit",
    ),
    "max_steps": ("{used} of the {limit} steps of this run are used", "the run took {used} steps, its limit"),
    "token_limit": ("{used} of the {limit} tokens of this run are used", "the run used {used} tokens, its limit is {limit}"),
    "cost_limit": ("{used} of the {limit} of this run are used", "the run cost {used}, its limit is {limit}"),
    "time_limit": ("{used_s} of the {limit_s} seconds of this run are used", "the run took {used} ms, its limit is {limit} ms"),
}
"""What the model is told of each budget in time, and what is said of the end that it brings."""


class Budget(NamedTuple):
    """One limit: the name of the end it brings, what is used of it and how much there is; of a cost, in millionths."""

    code: str
    used: int
    limit: int
    currency: str = ""

    @property
    def spent(self) -> bool:
        """Whether the run ends by it."""
        return self.used >= self.limit

    @property
    def warns(self) -> bool:
        """Whether so much of it is used that the run is warned."""
        return self.used * 100 >= self.limit * WARNED_AT_PERCENT

    @property
    def told(self) -> str:
        """How much of it is used, in words for the model."""
        return self._said(_WORDS[self.code][0])

    @property
    def ended(self) -> str:
        """Why the run ends by it."""
        return self._said(_WORDS[self.code][1])

    def _said(self, words: str) -> str:
        used: int | Money = Money(micros=self.used, currency=self.currency) if self.currency else self.used
        limit: int | Money = Money(micros=self.limit, currency=self.currency) if self.currency else self.limit
        return words.format(used=used, limit=limit, used_s=self.used // 1000, limit_s=self.limit // 1000)


def budgets_of(run: Run, usage: Usage, step_id: int) -> tuple[Budget, ...]:
    """All budgets of a run behind this step, in the order in which they are looked at."""
    limits = run.limits
    counted = (
        Budget("repeated_calls", run.repeats, limits.repeated_calls),
        Budget("max_steps", step_id, limits.steps),
        Budget("token_limit", usage.total, limits.tokens),
    )
    return (*counted, *_cost(usage.cost, limits.cost), time_budget(run))


def _cost(cost: Money | None, limit: Money | None) -> tuple[Budget, ...]:
    if cost is None or limit is None or cost.currency != limit.currency:
        return ()
    return (Budget("cost_limit", cost.micros, limit.micros, cost.currency),)


def time_budget(run: Run) -> Budget:
    """The time of a run. Time in which no process carried it does not count."""
    return Budget("time_limit", run.running_ms, run.limits.wall_ms)


def spent_budget(budget: Budget, run: Run, step_id: int) -> tuple[tuple[BudgetFired, ...], Failure]:
    """How a run ends by a budget: the record that it fired, unless it has warned before, and the cause."""
    fired = () if budget.code in run.budgets else (_fired(budget, run, step_id, None),)
    return fired, Failure(kind="limit", code=budget.code, message=budget.ended)


def warnings_of(run: Run, budgets: tuple[Budget, ...], step_id: int) -> tuple[BudgetFired, ...]:
    """The warnings that are due; one that was given is not given again."""
    due = (budget for budget in budgets if budget.warns and budget.code not in run.budgets)
    return tuple(_fired(budget, run, step_id, _notice(budget, run)) for budget in due)


def _notice(budget: Budget, run: Run) -> Entry:
    text = budget_notice(budget.told)
    return Entry(entry_id=derived_id("budget", run.run_id, budget.code), content=UserMessage(text=text))


def _fired(budget: Budget, run: Run, step_id: int, notice: Entry | None) -> BudgetFired:
    return BudgetFired(
        run_id=run.run_id, step_id=step_id, budget=budget.code, used=budget.used, limit=budget.limit, notice=notice
    )
