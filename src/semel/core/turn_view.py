"""What an agent's own condition sees of a turn (A7): the answer, its calls, what became of them. From the log alone (CON18)."""

from collections.abc import Callable

from semel.core.values import Frozen


class CallView(Frozen, frozen=True, kw_only=True):
    """One call of a turn: the tool, the arguments as text, and what the model is told of it."""

    tool: str
    arguments: str
    text: str
    is_error: bool


class TurnView(Frozen, frozen=True, kw_only=True):
    """A turn that has ended. `step_id` counts from 1 within the run; `text` is what the model said in it."""

    step_id: int
    text: str
    calls: tuple[CallView, ...]


StopCondition = Callable[[TurnView], bool]
"""Whether a run ends behind this turn. Of equal turns it says the same: a resume asks it again."""
