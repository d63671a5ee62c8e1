"""What is due by now in a run that waits: approvals whose time is over, held calls that are given up (design 7). Pure."""

from semel.core.approve import expire_approvals
from semel.core.effects import Decision, DeliverResult, UnderWay
from semel.core.late import GIVEN_UP, deliver_result
from semel.core.state import Session
from semel.core.waiting import PAUSES, RESUMED, WaitKind, pause_of, waits_of


def due_at(state: Session) -> int | None:
    """When the open run goes on by itself, in Unix milliseconds; None where it does not."""
    return min((wait.until_ms for wait in waits_of(state) if wait.until_ms is not None), default=None)


def overdue(state: Session, now_ms: int, under_way: UnderWay | None) -> Decision:
    """What time has decided: silence about an approval means no, and a held call gets the result that none came (R39).

    One thing at a time, so that each is decided upon what the one before has made of the run; empty when nothing is due.
    """
    expired = expire_approvals(state, now_ms, under_way)
    if expired.records:
        return expired
    for wait in waits_of(state):
        over = wait.kind is WaitKind.TOOL_HELD and wait.until_ms is not None and now_ms >= wait.until_ms
        if over and wait.call_key is not None and wait.call_key not in state.late:
            command = DeliverResult(call_key=wait.call_key, text=GIVEN_UP, is_error=True, kind="expired")
            return deliver_result(state, command, under_way)
    return Decision()


def is_idle(state: Session) -> bool:
    """Whether the open run has nothing to do until somebody acts: its calls wait for answers or results that are not there.

    One that waits for credentials or a restart goes on with whoever resumes it.
    """
    run = state.run
    if run is None or run.ending or pause_of(state) not in PAUSES - RESUMED:
        return False
    return all(wait.call_key is None or wait.call_key not in state.late for wait in waits_of(state))
