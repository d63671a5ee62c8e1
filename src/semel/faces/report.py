"""What the command line says of a run: the object of status.json, and the run's output."""

from typing import Any

import msgspec
from msgspec.structs import replace

from semel.core.state import Session
from semel.core.status import Status, decode_status, status_of
from semel.core.values import Frozen
from semel.errors import need
from semel.faces.views import view_of
from semel.ports.log import SessionStore


class Report(Frozen, frozen=True, kw_only=True):
    """How a run stands. `output` is its final text, or the JSON text of a typed output; None where it has none."""

    status: Status
    output: str | None = None

    def as_json(self) -> dict[str, Any]:
        """The object of status.json plus `output`."""
        shown: dict[str, Any] = msgspec.to_builtins(self.status)
        return {**shown, "output": self.output}


def report_of(store: SessionStore, session: str, run_id: str | None = None) -> Report | None:
    """How a run stands in the log, by default the newest; None for one that has not started. Raises what `view_of` raises."""
    return report_in(store, view_of(store, session).state, run_id)


def report_in(store: SessionStore, session: Session, run_id: str | None = None) -> Report | None:
    """The same of a state that is at hand."""
    if run_id is not None and run_id != session.newest and run_id not in session.ended:
        return None
    state = as_of(session, run_id)
    status = status_of(state, session.digest)
    if status is None:
        return None
    published = decode_status(store.read_status(session.session))
    if published is not None and (published.run_id, published.head_seq) == (status.run_id, status.head_seq):
        status = published
    ended = state.ended.get(status.run_id)
    return Report(status=status, output=ended.output if ended else None)


def as_of(state: Session, run_id: str | None) -> Session:
    """The state as if that run, which is open or finished, were the newest: what its status is made from."""
    if run_id is None or run_id == state.newest:
        return state
    need(state.ended.get(run_id), "a run that is not the newest is finished")
    return replace(state, newest=run_id, run=None)
