"""What the newest run of a session has used and paid, against its limits, and what is known of its model's window."""

from collections.abc import Iterator

from semel import wiring
from semel.core.explain import Sentence
from semel.core.state import Session
from semel.core.values import Usage, printable

SCRIPTED = "scripted"
MODEL_CHARS_SHOWN = 80


def spending_of(state: Session) -> tuple[Sentence, ...]:
    """Sentences for `explain`, beside those of the core: a price or a window that nobody told is said to be unknown.

    Nothing where no model has answered, and nothing of a script, which has neither.
    """
    family, _, place = state.target.partition("\n")
    if family in ("", SCRIPTED) or _usage(state) == Usage():
        return ()
    endpoint, _, model = place.partition("\n")
    return tuple(_sentences(state, family, endpoint, model))


def _usage(state: Session) -> Usage:
    if state.run is not None:
        return state.run.usage
    return state.ended[state.newest].usage if state.newest is not None else Usage()


def _sentences(state: Session, family: str, endpoint: str, model: str) -> Iterator[Sentence]:
    usage, name = _usage(state), printable(model, limit=MODEL_CHARS_SHOWN)
    limits = state.run.limits if state.run is not None else None
    tokens = f"{usage.total:,} tokens" + (f" of at most {limits.tokens:,}" if limits is not None else "")
    if usage.cost is None:
        cost = f"what they cost is unknown: no price of {name} is known"
    else:
        cost = f"they cost {usage.cost}"
        cost += f" of at most {limits.cost}" if limits is not None and limits.cost is not None else ""
    yield Sentence(text=f"The run has used {tokens}; {cost}.")
    window = wiring.window_of(family, endpoint, model)
    known = f"is {window:,} tokens" if window is not None else "is unknown"
    yield Sentence(text=f"The window of {name} {known}.")
