"""How a run ended, as types to match on."""

from dataclasses import dataclass, field
from typing import Generic, NoReturn, TypeVar

from semel.core.records import Failure
from semel.core.state import CacheProof, Ended, Session, UnknownCall
from semel.core.status import standing
from semel.core.values import Stop, Usage
from semel.core.waiting import PAUSES, Wait, WaitKind, pause_of, waits_of
from semel.errors import RunNotCompleted, command

OutputT = TypeVar("OutputT")


@dataclass(frozen=True, kw_only=True)
class Ending:
    """What every ending has: which run of which session, the reason in the log's own word, and what it used.

    `cache` says for each resume, and for a later run of a session, what the provider's cache served of its first request.
    """

    session: str
    run_id: str
    reason: str
    usage: Usage
    cache: tuple[CacheProof, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Completed(Ending, Generic[OutputT]):
    """The run did its work. `stop` says why the model ended its last answer; one with `max_tokens` was cut at its limit."""

    output: OutputT
    stop: Stop | None = None


@dataclass(frozen=True, kw_only=True)
class _NotCompleted(Ending):
    @property
    def output(self) -> NoReturn:
        """Raises RunNotCompleted, which names the next command."""
        raise RunNotCompleted(f"run {self.run_id[:8]} of session {self.session!r} has no output: {self._why()}")

    def _why(self) -> str:
        return self.reason


@dataclass(frozen=True, kw_only=True)
class Interrupted(_NotCompleted):
    """A call's outcome is unknown, and a person must look (P3). The session goes on with a verdict, or with the next send."""

    unknown: tuple[UnknownCall, ...] = field(default=())

    def _why(self) -> str:
        names = ", ".join(f"{call.tool} ({call.call_key[:8]})" for call in self.unknown)
        return f"the outcome of {names or 'a call'} is unknown; look, then `semel resolve CALL VERDICT --continue`"


@dataclass(frozen=True, kw_only=True)
class Failed(_NotCompleted):
    """The run ended with a named cause; the next send works."""

    error: Failure | None = None

    def _why(self) -> str:
        return f"{self.error.code}: {self.error.message}" if self.error else self.reason


@dataclass(frozen=True, kw_only=True)
class Cancelled(_NotCompleted):
    """The run was cancelled."""


@dataclass(frozen=True, kw_only=True)
class Paused(_NotCompleted):
    """The run is open and waits for somebody: a person's answer, the result of a held call, a key that its provider knows.

    It goes on when that is there, and for a key with the next resume. `error` is what the provider said.
    """

    waits: tuple[Wait, ...] = field(default=())
    error: Failure | None = None

    def _why(self) -> str:
        if self.reason == WaitKind.AUTH_REQUIRED:
            told = "" if self.error is None else f": {self.error.message}"
            return f"its model's provider refused the key{told}. Give it the right one, then {command('resume', self.session)}"
        calls = ", ".join(wait.call_key[:8] for wait in self.waits if wait.call_key is not None)
        return f"it waits ({self.reason}{f': {calls}' if calls else ''}); see `semel inbox`"


Result = Completed[OutputT] | Interrupted | Failed | Cancelled | Paused


def pause_result(state: Session, run_id: str) -> Paused | None:
    """The open run as it waits for somebody; None where it does not, also where its process has handed it over."""
    run, pause = state.run, pause_of(state)
    if run is None or run.run_id != run_id or pause is None or pause is WaitKind.RESTART:
        return None
    waits, why = tuple(wait for wait in waits_of(state) if wait.kind in PAUSES), run.pause.error if run.pause else None
    return Paused(session=state.session, run_id=run_id, reason=str(pause), usage=run.usage, waits=waits, error=why)


def result_of(state: Session, ended: Ended, output: OutputT) -> Result[OutputT]:
    """The ending of a finished run; `output` is its output as the caller wants it."""
    facts = {"session": state.session, "run_id": ended.run_id, "usage": ended.usage, "cache": ended.cache}
    match standing(ended):
        case "completed":
            return Completed(output=output, stop=ended.stop, reason=ended.reason, **facts)  # type: ignore[arg-type]  # facts are keyword fields
        case "interrupted":
            unknown = tuple(call for call in state.unknown if call.run_id == ended.run_id)
            return Interrupted(unknown=unknown, reason=ended.reason, **facts)  # type: ignore[arg-type]  # as above
        case "cancelled":
            return Cancelled(reason=ended.reason, **facts)  # type: ignore[arg-type]  # as above
        case _:
            return Failed(error=ended.error, reason=ended.reason, **facts)  # type: ignore[arg-type]  # as above
