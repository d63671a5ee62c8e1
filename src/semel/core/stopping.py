"""An agent's own condition to end a run behind a turn (A7, CON18). Pure: asked when the turn ends, and again by a resume."""

from semel.core.calls import Batch, Step
from semel.core.outcomes import Settlement, describe
from semel.core.policy import Policy
from semel.core.rules import Rulebook
from semel.core.turn_view import CallView, TurnView


def ends_behind(policy: Policy, step: Step, batch: Batch | None, known: dict[int, Settlement]) -> bool | str:
    """Whether the run ends behind this turn; where the condition cannot be evaluated, why (as for a rule: CON4)."""
    condition = policy.stop_after_turn if isinstance(policy, Rulebook) else None
    if condition is None:
        return False
    try:
        found = condition(view_of_turn(step, batch, known))
    except (Exception, SystemExit) as error:  # noqa: BLE001  a function of somebody else; its run ends with the cause by name
        return describe(error)
    return found if isinstance(found, bool) else f"it returned {type(found).__name__}, not a bool"


def view_of_turn(step: Step, batch: Batch | None, known: dict[int, Settlement]) -> TurnView:
    """The turn, counting what the same barrier is about to make durable."""
    calls: list[CallView] = []
    for at, call in enumerate(batch.calls if batch is not None else ()):
        settled, refused = known.get(at), call.planned.refused
        text = settled.text if settled is not None else refused.message if refused is not None else call.refusal or ""
        is_error = settled is None or settled.is_error
        calls.append(CallView(tool=call.planned.tool, arguments=step.arguments(at), text=text, is_error=is_error))
    return TurnView(step_id=step.step_id, text=step.answer.text if step.answer is not None else "", calls=tuple(calls))
