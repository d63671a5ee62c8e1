"""status.json: what a session is doing, for scripts and operators (schema in docs/status.md). A projection of the state."""

from typing import Literal

import msgspec

from semel.core.records import Failure
from semel.core.state import CacheProof, Ended, Run, Session, UnknownCall
from semel.core.values import JSON, Frozen, Usage
from semel.core.waiting import WaitKind, pause_of, waits_of

StatusState = Literal["running", "completed", "failed", "interrupted", "paused", "cancelled"]
EXITS: dict[StatusState, int] = {"completed": 0, "failed": 1, "interrupted": 3, "paused": 4, "cancelled": 5, "running": 0}


class UnknownRef(Frozen, frozen=True, kw_only=True):
    """A call that a person has to look at."""

    call_key: str
    tool: str
    run_id: str
    step_id: int
    ordinal: int


class Trouble(Frozen, frozen=True, kw_only=True):
    """What ended a run, or keeps it waiting.

    `class` says whose failure it was, as `kind` of the record; `provider` is the provider's own word.
    """

    class_: str = msgspec.field(name="class")
    code: str
    message: str
    provider: str | None = msgspec.field(default_factory=lambda: None)
    details: JSON = None


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """The document. Every field is always there, null where there is nothing to say, but those marked as optional in the docs."""

    schema: int
    session: str
    lineage: str
    run_id: str
    agent: str
    state: StatusState
    reason: str | None
    exit: int
    error: Trouble | None
    usage: Usage
    head_seq: int
    head_digest: str
    unknown_calls: tuple[UnknownRef, ...]
    started_at_ms: int
    updated_at_ms: int
    finished_at_ms: int | msgspec.UnsetType = msgspec.UNSET
    continued_as: str | msgspec.UnsetType = msgspec.UNSET
    unanswered: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET
    cache: tuple[CacheProof, ...] | msgspec.UnsetType = msgspec.UNSET


def status_of(state: Session, digest: str) -> Status | None:
    """The status of the newest run; None for a session that never started one."""
    if state.newest is None:
        return None
    run = state.run
    if run is not None:
        return _status(state, digest, run, "running" if pause_of(state) is None else "paused", None)
    ended = state.ended[state.newest]
    return _status(state, digest, ended, standing(ended), ended)


def standing(ended: Ended) -> StatusState:
    """The state of a finished run. One with an unknown call is interrupted whatever its reason (design 6)."""
    if ended.unknown or ended.reason == "interrupted":
        return "interrupted"
    if ended.reason in ("completed", "cancelled"):
        return "completed" if ended.reason == "completed" else "cancelled"
    return "failed"


def is_left(status: Status) -> bool:
    """Whether a run is open and waits for nobody: a process carries it, or it goes on with whoever resumes it."""
    return status.state == "running" or (status.state == "paused" and status.reason == WaitKind.RESTART)


def encode_status(status: Status) -> bytes:
    """One line of JSON."""
    return msgspec.json.encode(status) + b"\n"


def decode_status(raw: bytes | None) -> Status | None:
    """A status document; None if there is none, or none that can be read (it is a view: the log decides)."""
    if raw is None:
        return None
    try:
        return msgspec.json.decode(raw, type=Status)
    except msgspec.DecodeError:
        return None


def _status(state: Session, digest: str, run: Run | Ended, standing: StatusState, ended: Ended | None) -> Status:
    why = ended.error if ended else _refusal(state)
    key = next((key for key in state.continued if key in (ended.unknown if ended else ())), None)
    return Status(
        schema=1,
        session=state.session,
        lineage=state.lineage,
        run_id=run.run_id,
        agent=run.agent.name,
        state=standing,
        reason=ended.reason if ended else _waiting_for(state),
        exit=EXITS[standing],
        error=_trouble(why) if why else None,
        usage=run.usage,
        head_seq=state.head,
        head_digest=digest,
        unknown_calls=tuple(_ref(call) for call in state.unknown),
        started_at_ms=run.started_at_ms,
        updated_at_ms=state.last_at_ms,
        finished_at_ms=ended.finished_at_ms if ended else msgspec.UNSET,
        continued_as=state.continued[key] if key else msgspec.UNSET,
        unanswered=ended.unanswered if ended and ended.unanswered else msgspec.UNSET,
        cache=run.cache or msgspec.UNSET,
    )


def _refusal(state: Session) -> Failure | None:
    """Why the open run is paused, where somebody refused something; a pause that is over says nothing."""
    pause = state.run.pause if state.run is not None else None
    return pause.error if pause is not None else None


def _trouble(error: Failure) -> Trouble:
    return Trouble(
        class_=error.kind, code=error.code, message=error.message, provider=error.provider, details=error.provider_details
    )


def _waiting_for(state: Session) -> str | None:
    """What an open run waits for, in a word: the reason of its pause, or of its wait below the context ceiling (C15)."""
    ceiling = any(wait.kind is WaitKind.CONTEXT_CEILING for wait in waits_of(state))
    pause = pause_of(state)
    return str(pause) if pause is not None else str(WaitKind.CONTEXT_CEILING) if ceiling else None


def _ref(call: UnknownCall) -> UnknownRef:
    return UnknownRef(call_key=call.call_key, tool=call.tool, run_id=call.run_id, step_id=call.step_id, ordinal=call.ordinal)
