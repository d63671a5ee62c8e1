"""Sessions as a reader sees them: no lease, nothing written, only what can never vanish (P6)."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from msgspec import json

from semel.core.frame import Frame, incomplete
from semel.core.open_log import state_of
from semel.core.state import Session, UnknownCall
from semel.engine.feed import Committed, Event, Live
from semel.errors import SemelError, UnknownSession
from semel.errors import UnknownCall as NoSuchCall
from semel.ports.log import SessionStore


@dataclass(frozen=True, kw_only=True)
class SessionView:
    """A session's state up to what a reader may know, its frames, and who holds it."""

    state: Session
    frames: tuple[Frame, ...]
    owner: str | None


def view_of(store: SessionStore, session: str) -> SessionView:
    """Read and fold a session. Raises UnknownSession, LogDamaged, NewerWriter, CorruptLog."""
    if not store.exists(session):
        raise UnknownSession(f"there is no session {session!r} here; `semel ls` lists those that are")
    view = store.read(session)
    return SessionView(state=state_of(view.frames, incomplete(view.frames), session), frames=view.frames, owner=view.owner)


@dataclass(frozen=True, kw_only=True)
class InboxItem:
    """A call that needs a person. `standing` is `unknown`, or `open` for one that no resume has judged yet."""

    session: str
    call: UnknownCall
    standing: str
    agent: str


def inbox_of(store: SessionStore) -> Iterator[InboxItem]:
    """All calls of all sessions that need a person. A session that cannot be read is left to `semel verify`."""
    for session in store.sessions():
        try:
            state = view_of(store, session).state
        except SemelError:
            continue
        for call in state.unknown:
            ended = state.ended.get(call.run_id)
            agent = ended.agent.name if ended else state.run.agent.name if state.run else ""
            yield InboxItem(session=session, call=call, standing="unknown", agent=agent)


def find_call(store: SessionStore, prefix: str) -> InboxItem:
    """The one call whose key starts like this. Raises UnknownCall when there is none, or several."""
    found = [item for item in inbox_of(store) if item.call.call_key.startswith(prefix)]
    if len(found) == 1 and prefix:
        return found[0]
    if found:
        raise NoSuchCall(f"{prefix!r} fits {len(found)} calls; give more of the key, as `semel inbox` shows it")
    raise NoSuchCall(f"no call in the inbox starts with {prefix!r}; `semel inbox` lists them")


def event_of(event: Event) -> dict[str, Any]:
    """An event as JSON: durable ones have a seq, live ones never (design 14)."""
    if isinstance(event, Committed):
        return frame_event(event.frame)
    return live_event(event)


def frame_event(frame: Frame) -> dict[str, Any]:
    """A durable event: the payload as stored."""
    record = json.decode(frame.payload)
    return {"seq": frame.seq, "at_ms": frame.at_ms, "type": record.get("type"), "record": record}


def live_event(live: Live) -> dict[str, Any]:
    """A live event; it may be lost and is never replayed."""
    shown: dict[str, Any] = {
        "live": live.live,
        "run_id": live.run_id,
        "step_id": live.step_id,
        "attempt": live.attempt,
        "http_attempt": live.http_attempt,
    }
    if live.text:
        shown["text"] = live.text
    if live.call_key:
        shown["call_key"] = live.call_key
    return shown
