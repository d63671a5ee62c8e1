"""What a session at rest wants a person to look at, and since which record. Pure."""

from semel.core.open_calls import open_calls
from semel.core.state import Session

Look = tuple[str, str, str, str]
"""A call: its key, its tool, its arguments, and `unknown`, `approval` or `held`."""


def wants_a_look(state: Session) -> tuple[Look, ...]:
    """The calls of the newest run that wait for a person; a deferred call holds nothing up, so it is not among them."""
    run = state.run
    if run is None:
        newest = state.newest
        return tuple((call.call_key, call.tool, call.arguments, "unknown") for call in state.unknown if call.run_id == newest)
    waiting = (call for call in open_calls(state) if call.run_id == run.run_id and call.kind != "deferred")
    return tuple((call.call_key, call.tool, call.arguments, call.kind) for call in waiting)
