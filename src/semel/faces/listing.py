"""The sessions of a state directory, one line each, never staler than their logs: the index up to those, and what is behind."""

from collections.abc import Iterator

import msgspec

from semel.core.status import StatusState
from semel.core.summary import encode_summary, summary_of
from semel.errors import SemelError, StoreError
from semel.faces.views import glance_of, view_of
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


class Derived(msgspec.Struct, frozen=True, kw_only=True):
    """What came of deriving the index of one session anew. Where one of these is there, what it held before is still there.

    `unreadable` says why its log cannot be read, `unwritten` why the index cannot be written to; `busy` that it is being written.
    """

    session: str
    unreadable: str | None = None
    unwritten: str | None = None
    busy: bool = False


def derived_anew(store: SessionStore) -> Iterator[Derived]:
    """Read every log, against what the index remembers of it, and put what it says into the index."""
    strays = store.strays()  # first: what was no stray then is a session now, and nothing is neither
    for session in store.sessions():
        try:
            view = view_of(store, session)
        except SemelError as error:
            yield Derived(session=session, unreadable=str(error))
            continue
        if view.mark is None:
            yield Derived(session=session, busy=True)
            continue
        try:
            store.remember(session, view.mark, encode_summary(summary_of(view.state, view.state.digest)))
        except StoreError as error:
            yield Derived(session=session, unwritten=str(error))
            continue
        yield Derived(session=session)
    for name, stray in strays.items():
        yield Derived(session=name, unreadable=str(stray))


def listing_of(store: SessionStore) -> Iterator[Listing]:
    """All sessions, sorted by id; one that cannot be read says why. Behind them what tells of no id, by its directory's name."""
    strays = store.strays()  # first, as above
    for session in store.sessions():
        try:
            found, owner = glance_of(store, session, remember=True), store.owner(session)
        except SemelError as error:
            yield _unreadable(session, error)
            continue
        yield Listing(
            session=session,
            state=found.state,
            reason=found.reason,
            run_id=found.run_id,
            agent=found.agent,
            head_seq=found.head_seq,
            unknown_calls=len(found.unknown),
            owner=owner,
            updated_at_ms=found.updated_at_ms,
        )
    for name, stray in strays.items():
        yield _unreadable(name, stray)


def _unreadable(name: str, error: SemelError) -> Listing:
    return Listing(session=name, error=Unreadable(code=error.code, message=str(error)))
