"""What a process that leaves in good order says of a run that it hands over to the next one (R30). Pure.

Only a run whose next thing is to ask its model is handed over so: the next `step_started` says that somebody has taken it up.
Calls that did not come back in time stay open in the log, and that alone says what a resume has to find out.
"""

from msgspec.structs import replace

from semel.core.effects import CallModel, Decision
from semel.core.records import RunPaused
from semel.core.state import Run, Session


def handed_over(state: Session) -> tuple[RunPaused, ...]:
    """The pause of a run that rests; none where it waits for something else, is to end, or is not about to ask its model."""
    run = state.run
    if run is None or run.ending or run.in_flight is None or run.pause is not None:
        return ()
    return (_restart(run),)


def leaving(run: Run, decision: Decision) -> Decision:
    """The decision without its request to the model, and with the pause in the same write, so that it costs no sync."""
    effects = tuple(effect for effect in decision.effects if not isinstance(effect, CallModel))
    if len(effects) == len(decision.effects):
        return decision
    return replace(decision, records=(*decision.records, _restart(run)), effects=effects)


def _restart(run: Run) -> RunPaused:
    return RunPaused(run_id=run.run_id, reason="restart")
