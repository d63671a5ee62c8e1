"""What a fold changes in place: the copies that it made of the structs that every record changes, which nobody else has seen.

State is frozen for everybody. A fold of many records would make a new session, run, step, batch and call for each of them, only
to drop it for the next; so it makes one copy of those at its start, changes that, and gives it away at its end. A tidy rule
keeps this module to the fold.
"""

from msgspec.structs import force_setattr, replace

from semel.core.calls import Batch, CallState, Step
from semel.core.state import Run, Session

put = force_setattr
"""Sets a field of a struct that the fold owns."""


def change(owned: Session | Run | Step | Batch | CallState, **fields: object) -> None:
    """Set fields of a struct that the fold owns."""
    for name, value in fields.items():
        put(owned, name, value)


def owned(state: Session) -> Session:
    """A copy whose run, step, batch and calls are copies, too; all else is never changed, only replaced."""
    run = state.run
    if run is None:
        return replace(state)
    step = run.step
    if step is not None:
        batch = step.batch
        if batch is not None:
            batch = replace(batch, calls=tuple([replace(call) for call in batch.calls]))
        step = replace(step, batch=batch)
    return replace(state, run=replace(run, step=step))
