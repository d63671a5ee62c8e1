"""The prompt of the next request, from the state alone (P1): whole or repaired turns, in the order of the log."""

from semel.core.plan import offered
from semel.core.state import Run, Session
from semel.core.values import Prompt


def prompt_of(state: Session, run: Run) -> Prompt:
    """What the open step renders. Equal states give equal prompts, and a prompt names nothing that a log assigned."""
    return Prompt(instructions=run.instructions, tools=offered(run), messages=state.messages)
