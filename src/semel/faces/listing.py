"""The sessions of a state directory, one line each: folded from their logs, so that a listing is never staler than they are."""

from collections.abc import Iterator

import msgspec

from semel.core.status import StatusState, status_of
from semel.errors import SemelError
from semel.faces.views import view_of
from semel.ports.log import SessionStore


class Unreadable(msgspec.Struct, frozen=True, kw_only=True):
    """Why a session cannot be read."""

    code: str
    message: str


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    """One session. `state` is that of its newest run, None without one; `running` without an owner waits for a resume."""

    session: str
    state: StatusState | None = None
    reason: str | None = None
    run_id: str | None = None
    agent: str | None = None
    head_seq: int = 0
    unknown_calls: int = 0
    owner: str | None = None
    updated_at_ms: int | None = None
    error: Unreadable | None = None


def listing_of(store: SessionStore) -> Iterator[Listing]:
    """All sessions, sorted by id; one that cannot be read says why."""
    for session in store.sessions():
        try:
            view = view_of(store, session)
        except SemelError as error:
            yield Listing(session=session, error=Unreadable(code=error.code, message=str(error)))
            continue
        state = view.state
        status = status_of(state, view.frames[-1].digest)
        yield Listing(
            session=session,
            state=status.state if status else None,
            reason=status.reason if status else None,
            run_id=status.run_id if status else None,
            agent=status.agent if status else None,
            head_seq=state.head,
            unknown_calls=len(state.unknown),
            owner=view.owner,
            updated_at_ms=state.last_at_ms,
        )
