"""Sessions as a reader sees them: no lease, nothing written, only what can never vanish (P6)."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from msgspec import json

from semel.core.decide import known_delivery
from semel.core.frame import Frame
from semel.core.open_calls import OpenCall, answered_calls
from semel.core.open_log import Opening
from semel.core.records import AgentRef, ApprovalResolved, Delivery
from semel.core.state import Session, UnknownCall
from semel.core.summary import Summary, agent_of, decode_summary, encode_summary, summary_of
from semel.core.values import JSON, Part, clean_json, clean_text
from semel.core.waiting import RESUMED, WaitKind
from semel.engine.feed import Committed, Event, Live
from semel.errors import IndexUnavailable, LogDamaged, NewerWriter, SemelError, UnknownSession
from semel.errors import UnknownCall as NoSuchCall
from semel.ports.log import SessionStore


@dataclass(frozen=True, kw_only=True)
class SessionView:
    """A session's state up to what a reader may know, and who holds it. `mark` is that of the log, as in `ports.log.View`."""

    state: Session
    owner: str | None
    mark: str | None = None


def check_known(store: SessionStore, session: str) -> None:
    """Raise UnknownSession where there is no log, LogDamaged where there was one. What is in it is not looked at.

    Raises IndexUnavailable where nobody can tell now, and NewerWriter where only a later build can.
    """
    if not store.exists(session):
        remembered = store.remembered(session)
        if remembered:
            raise LogDamaged(f"the log of session {session!r}", 0, 0, f"record {remembered} was durable, but the log is gone")
        raise UnknownSession(f"there is no session {session!r} here; `semel ls` lists those that are")


def view_of(store: SessionStore, session: str) -> SessionView:
    """Read and fold a session. Raises UnknownSession, LogDamaged, NewerWriter, CorruptLog."""
    check_known(store, session)
    opening = Opening(session)
    view = store.read(session, take=opening.take)
    return SessionView(state=opening.state(), owner=view.owner, mark=view.mark)


def known_run(
    store: SessionStore,
    session: str,
    key: str,
    text: str,
    context: JSON = None,
    *,
    delivery: Delivery | None = None,
    parts: tuple[Part, ...] = (),
) -> str | None:
    """The run that this key started in a session, found by reading alone; None if the key is new there.

    Raises KeyReuse if the key delivered something else, and what `view_of` raises.
    """
    state = view_of(store, session).state
    return known_delivery(state, key, clean_text(text), clean_json(context), delivery or "send", parts=parts)


def is_known(store: SessionStore, session: str, key: str) -> bool:
    """Whether the key was used in the session before, for whatever."""
    return store.exists(session) and key in view_of(store, session).state.keys


def events_behind(store: SessionStore, session: str, after: int) -> Iterator[dict[str, Any]]:
    """What the log holds with seq > `after`, in order; nothing for a session that is not there."""
    frames = store.read(session, after).frames if store.exists(session) else ()
    return (frame_event(frame) for frame in frames if frame.seq > max(0, after))


def last_agent(store: SessionStore, session: str) -> AgentRef | None:
    """The agent of a session's newest run; None if it never had one. Raises what `view_of` raises."""
    state = view_of(store, session).state
    run = state.run or (state.ended.get(state.newest) if state.newest else None)
    return None if run is None else run.agent


@dataclass(frozen=True, kw_only=True)
class InboxItem:
    """A call that needs a person. `standing` is `unknown`, or `resolved` for one that has its verdict already.

    `source` is where its agent came from, None for one that a program made.
    """

    session: str
    call: UnknownCall
    standing: str
    agent: str
    source: str | None = None


@dataclass(frozen=True, kw_only=True)
class Stranded:
    """A session whose run is open while nobody carries it, and goes on with `semel resume`.

    Its process died, or handed it over. With `key_refused` it waits for another key: that says what its model's provider said.
    """

    session: str
    run_id: str
    agent: str
    since_ms: int
    key_refused: str | None = None


@dataclass(frozen=True, kw_only=True)
class WaitingCall:
    """A call that waits for somebody, and where."""

    session: str
    call: OpenCall
    agent: str


@dataclass(frozen=True, kw_only=True)
class Queue:
    """A session at rest in whose queue so many messages wait; `held_up` says that a call before them is unknown (P31)."""

    session: str
    count: int
    held_up: bool


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """All that waits for somebody, over all sessions. `unreadable` is what `semel verify` is for."""

    calls: tuple[InboxItem, ...]
    waiting: tuple[WaitingCall, ...]
    stranded: tuple[Stranded, ...]
    queues: tuple[Queue, ...]
    unreadable: dict[str, SemelError]


def glance_of(store: SessionStore, session: str, *, remember: bool = False) -> Summary:
    """What the index knows of a session, or what its log says where that has grown behind the index (P33).

    Only a listing remembers what it found: what may be refused writes nothing.
    Raises UnknownSession, LogDamaged, NewerWriter, CorruptLog, IndexUnavailable.
    """
    known = decode_summary(store.recall(session))
    if known is not None:
        return known
    view = view_of(store, session)
    found = summary_of(view.state, view.state.digest)
    if remember and view.mark is not None:
        with suppress(IndexUnavailable, NewerWriter):  # it saves reading the log once more, no more
            store.remember(session, view.mark, encode_summary(found))
    return found


def waiting_of(store: SessionStore) -> Waiting:
    """Look through all sessions once."""
    calls: list[InboxItem] = []
    waiting: list[WaitingCall] = []
    stranded: list[Stranded] = []
    queues: list[Queue] = []
    unreadable: dict[str, SemelError] = dict(store.strays())
    for session in store.sessions():
        try:
            found = glance_of(store, session, remember=True)
            owner = store.owner(session) if found.open_run or found.queued else None
        except SemelError as error:
            unreadable[session] = error
            continue
        calls += [_item(session, call, agent, "unknown") for call, agent in found.unknown]
        waiting += _waiting_in(session, found)
        if owner is None and (run := _stranded(session, found)) is not None:
            stranded.append(run)
        if found.queued and found.open_run is None and owner is None:
            held_up = any(call.run_id == found.run_id for call, _ in found.unknown)
            queues.append(Queue(session=session, count=found.queued, held_up=held_up))
    return Waiting(
        calls=tuple(calls), waiting=tuple(waiting), stranded=tuple(stranded), queues=tuple(queues), unreadable=unreadable
    )


def _stranded(session: str, found: Summary) -> Stranded | None:
    """The open run that a resume goes on with; None where none is open, or it waits for more than that."""
    if found.open_run is None or (found.state == "paused" and found.reason not in RESUMED):
        return None
    refused = (found.why or "") if found.reason == WaitKind.AUTH_REQUIRED else None
    since, agent = found.updated_at_ms, found.agent or ""
    return Stranded(session=session, run_id=found.open_run, agent=agent, since_ms=since, key_refused=refused)


def inbox_of(store: SessionStore) -> tuple[InboxItem, ...]:
    """All calls of all sessions that need a person. A session that cannot be read is left to `semel verify`."""
    return waiting_of(store).calls


def find_call(store: SessionStore, prefix: str) -> InboxItem:
    """The one call whose key starts like this, resolved ones included. Raises UnknownCall when there is none, or several."""
    if not prefix:
        raise NoSuchCall("name the call by its key or the start of it, as `semel inbox` shows it")
    found = [item for item in _all_calls(store) if item.call.call_key.startswith(prefix)]
    if len(found) == 1:
        return found[0]
    if found:
        raise NoSuchCall(f"{prefix!r} fits {len(found)} calls; give more of the key, as `semel inbox` shows it")
    raise NoSuchCall(f"no call whose outcome is unknown has a key that starts with {prefix!r}; `semel inbox` lists them")


def waiting_calls(store: SessionStore) -> Iterator[WaitingCall]:
    """All calls of all sessions that somebody owes an answer or a result. A session that cannot be read is left out."""
    return (call for session, found in _glances(store) for call in _waiting_in(session, found))


def find_waiting_call(store: SessionStore, prefix: str) -> WaitingCall:
    """The one call that waits for somebody and whose key starts like this. Raises UnknownCall for none, or several.

    A deferred call is found by its whole handle, too. One that was answered is found again by either, so that an answer can be
    repeated.
    """
    found, _ = _named(store, prefix)
    if found is None:
        raise _no_such(prefix)
    return found


def find_asked(store: SessionStore, prefix: str) -> WaitingCall | ApprovalResolved:
    """As `find_waiting_call`, or else the answer that stands, of a step that is over. Raises UnknownCall for none, or several."""
    found, answered = _named(store, prefix)
    stands = answered_approval(store, prefix, answered) if found is None else found
    if stands is None:
        raise _no_such(prefix)
    return stands


def answered_approval(store: SessionStore, prefix: str, sessions: Iterable[str] | None = None) -> ApprovalResolved | None:
    """The one answered approval whose call's key starts like this, also of a step that is over; None for none, or several."""
    found: list[ApprovalResolved] = []

    def take(frames: Sequence[Frame]) -> None:
        marked = (frame.payload for frame in frames if frame.payload.startswith(b'{"type":"approval_resolved"'))
        answers = (json.decode(payload, type=ApprovalResolved) for payload in marked)
        found.extend(answer for answer in answers if prefix and answer.call_key.startswith(prefix))

    for session in store.sessions() if sessions is None else sessions:
        before = len(found)
        try:
            store.read(session, take=take)
        except SemelError:
            del found[before:]  # what a log that cannot be read holds says nothing
    return found[0] if len(found) == 1 else None


def _named(store: SessionStore, prefix: str) -> tuple[WaitingCall | None, list[str]]:
    """The call of that name, and the sessions in which something was answered: only their logs can hold an answer."""
    if not prefix:
        raise NoSuchCall("name the call by its key or the start of it, as `semel inbox` shows it")
    found: list[WaitingCall] = []
    answered: list[str] = []
    for session, glance in _glances(store):
        found += [one for one in _waiting_in(session, glance) if _is_named(one.call, prefix)]
        answered += [session] if glance.answers else []
    found = found or [one for one in _answered_calls(store, answered) if _is_named(one.call, prefix)]
    if len(found) > 1:
        raise NoSuchCall(f"{prefix!r} fits {len(found)} calls; give more of the key, as `semel inbox` shows it")
    return (found[0] if found else None), answered


def _is_named(call: OpenCall, name: str) -> bool:
    return call.call_key.startswith(name) or call.handle == name


def _no_such(prefix: str) -> NoSuchCall:
    return NoSuchCall(f"no call that waits for an answer or a result has a key that starts with {prefix!r}; see `semel inbox`")


def _glances(store: SessionStore) -> Iterator[tuple[str, Summary]]:
    """What is known of each session, by the index first. One that cannot be read is left out."""
    for session in store.sessions():
        with suppress(SemelError):
            yield session, glance_of(store, session)


def _waiting_in(session: str, found: Summary) -> list[WaitingCall]:
    return [WaitingCall(session=session, call=call, agent=found.agent or "") for call in found.open_calls]


def _answered_calls(store: SessionStore, sessions: Iterable[str]) -> Iterator[WaitingCall]:
    for session in sessions:
        try:
            state = view_of(store, session).state
        except SemelError:
            continue
        agent = state.run.agent.name if state.run is not None else ""
        for call in answered_calls(state):
            yield WaitingCall(session=session, call=call, agent=agent)


def _all_calls(store: SessionStore) -> Iterator[InboxItem]:
    for session, found in _glances(store):
        if not (found.unknown or found.resolved):
            continue
        try:
            state = view_of(store, session).state
        except SemelError:
            continue
        for call in state.unknown:
            yield _item(session, call, agent_of(state, call), "unknown")
        for resolved in state.resolved.values():
            yield _item(session, resolved.call, agent_of(state, resolved.call), "resolved")


def _item(session: str, call: UnknownCall, agent: AgentRef, standing: str) -> InboxItem:
    return InboxItem(session=session, call=call, standing=standing, agent=agent.name, source=agent.source)


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
