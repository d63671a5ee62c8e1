"""What listings, the inbox and schedulers ask of a session, derived from its state: small, and kept in the index. Pure."""

import msgspec

from semel.core.due import due_at
from semel.core.open_calls import OpenCall, open_calls
from semel.core.records import AgentRef
from semel.core.state import Session, UnknownCall
from semel.core.status import StatusState, status_of
from semel.core.values import Frozen, Usage
from semel.errors import need

VERSION = 7


class Summary(Frozen, frozen=True, kw_only=True):
    """A session up to `head_seq` of its log `lineage`. `state` is that of its newest run, None without one.

    `open_run` is set while a run is open, `due_ms` when the next thing is due (its next request, the end of an approval or of a
    held call), Unix milliseconds. `unknown` are calls that need a person, each with the agent of its run; `resolved` counts
    those that have their verdict. `open_calls` wait for somebody, and `queued` counts the messages that wait for a run of their
    own. `answers` counts the approvals that were answered and the results that were delivered, in all its runs. `usage` is the
    newest run's. `why` says in words what a paused run was refused.
    """

    version: int
    lineage: str
    head_seq: int
    updated_at_ms: int
    state: StatusState | None = None
    reason: str | None = None
    run_id: str | None = None
    agent: str | None = None
    open_run: str | None = None
    due_ms: int | None = None
    unknown: tuple[tuple[UnknownCall, AgentRef], ...] = ()
    resolved: int = 0
    open_calls: tuple[OpenCall, ...] = ()
    answers: int = 0
    queued: int = 0
    usage: Usage = Usage()
    why: str | None = None


def summary_of(state: Session, digest: str) -> Summary:
    """The summary of a state; `digest` names its history."""
    status, run = status_of(state, digest), state.run
    return Summary(
        version=VERSION,
        lineage=state.lineage,
        head_seq=state.head,
        updated_at_ms=state.last_at_ms,
        state=status.state if status else None,
        reason=status.reason if status else None,
        run_id=status.run_id if status else None,
        agent=status.agent if status else None,
        open_run=run.run_id if run else None,
        due_ms=due_at(state),
        unknown=tuple((call, agent_of(state, call)) for call in state.unknown),
        resolved=sum(1 for _ in state.resolved.values()),
        open_calls=open_calls(state),
        answers=state.decisions + len(state.late),
        queued=len(state.queue),
        usage=status.usage if status else Usage(),
        why=status.error.message if run and status and status.error else None,
    )


def agent_of(state: Session, call: UnknownCall) -> AgentRef:
    """The agent whose run a call belongs to."""
    ended = state.ended.get(call.run_id)
    return ended.agent if ended else need(state.run, "a call is of a run").agent


def encode_summary(summary: Summary) -> bytes:
    """As the index keeps it."""
    return msgspec.json.encode(summary)


def decode_summary(content: bytes | None) -> Summary | None:
    """A summary that was kept; None if there is none, or another build wrote it."""
    try:
        found = msgspec.json.decode(content or b"", type=Summary)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return found if found.version == VERSION else None
