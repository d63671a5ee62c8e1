"""The ceiling of a log, and what it keeps free so that a full session can still be closed (W10-W13, HAZ2, design 3). Pure.

One rule admits every write: the bytes that are there, those of the write, and the reserve of the state behind it stay within
the ceiling. The reserve is the most that this state still needs to be closed, so what a record that closes adds, the reserve
loses: it always fits. The hard part is never to let a record grow that the reserve counts on, so each has a bound here.
"""

from collections.abc import Sequence

from msgspec.json import encode
from msgspec.structs import replace

from semel.core.effects import CameBack, Deferral, Hold
from semel.core.outcomes import Outcome, Settlement
from semel.core.records import BudgetFired, ModelAttemptFinished, Record, ResumeStarted
from semel.core.state import CallState, Run, Session, Step
from semel.core.values import printable

CEILING_BYTES = 1024**3
"""How long a log may become, 1 GiB, unless a store is made with another ceiling."""

SESSION_TOO_LARGE = "session_too_large"
"""The code of the failure of a run whose log was full (W13)."""

SETTLEMENT_TEXT_BYTES = 256
"""The longest text of a result, as JSON, that the reserve has room for."""
VERDICT_BYTES = 2048
"""Room for one `indeterminate_resolved`: a verdict with a note; one with a longer output may be refused by a full session."""
HANDLE_CHARS_MAX = 200
"""The longest handle of a deferred call; the reserve has room for it."""
HOLD_CHARS_MAX = 60
"""How much is kept of the words of one who holds a call, where the log is full."""

_HEAD_BYTES_MOST = 7 * 20 + 9 + 65 + 2  # seven numbers, check, digest, the space behind `requires`, the newline
_MARKER_BYTES = 512  # turn_finished, tool_batch_finished
_TERMINAL_BYTES = 2048  # run_finished with usage and a bounded failure
_CANCEL_BYTES = 1024
_RETURNED_BYTES = 1024  # tool_call_returned with a bounded text
_RESULT_BYTES = 1024  # tool_result, tool_no_dispatch, tool_process: their message and id aside
_PLAN_BYTES = 5120  # a planned call whose arguments are refused in many words
_HELD_BYTES = 1280  # tool_call_provider_held with bounded words
_PAUSE_BYTES = 512  # run_paused
_HANDLE_BYTES = 4 * HANDLE_CHARS_MAX + 128  # what tool_call_deferred has more than a return
_APPROVAL_BYTES = 1024  # approval_resolved that closes it, its call's id aside
_QUEUED_BYTES = 4096  # run_started that names a queued message, and all else that it needs, by reference; its terminal


def framed_bytes(payload_bytes: int, requires: Sequence[str]) -> int:
    """The most that a payload takes in a log, with its header and newline."""
    return _HEAD_BYTES_MOST + (len(",".join(requires)) if requires else 1) + payload_bytes


def dispensable(record: Record) -> bool:
    """Whether nothing depends on this record, so that it is left out where only the reserve is left (HAZ4, R8)."""
    return isinstance(record, ResumeStarted | ModelAttemptFinished) or (isinstance(record, BudgetFired) and record.notice is None)


def has_ended_full(state: Session) -> bool:
    """Whether the newest run ended because the log was full; the little that its end left free starts no other (T14)."""
    ended = state.ended.get(state.newest) if state.newest else None
    return ended is not None and ended.error is not None and ended.error.code == SESSION_TOO_LARGE


def reserve_bytes(state: Session) -> int:
    """What a session in this state may still need.

    That is the close-out of its open batch, a stop and cancels, one terminal, all verdicts, and a start for each queued message.
    """
    later = len(state.unknown) * VERDICT_BYTES + (len(state.queued) - len(state.taken)) * _QUEUED_BYTES
    run = state.run
    if run is None:
        return later
    ends = 0 if run.aborting_now else 1 if run.aborting else 2 if run.stopping else 3  # stop, at its step's boundary, now
    return later + ends * _CANCEL_BYTES + _TERMINAL_BYTES + _pause_bytes(run) + _turn_bytes(run.step)


def bounded(settled: Settlement) -> Settlement:
    """A settlement that the reserve has room for: a result that is too long for it is told in a notice (design 3).

    What hooks were given is not kept then.
    """
    if not settled.parts and _json_bytes(settled.text) <= SETTLEMENT_TEXT_BYTES:
        return replace(settled, hooks=()) if settled.hooks else settled
    size = _said_bytes(settled)
    if settled.outcome is Outcome.COMPLETED:
        text = f"[The call ended, but its result of {size} bytes was not kept: the log of this session is full.]"
    else:
        text = f"[What is known of the call takes {size} bytes and was not kept: the log of this session is full.]"
    return Settlement(
        outcome=settled.outcome,
        is_error=settled.is_error,
        text=text,
        reason=settled.reason,
        stops_run=settled.stops_run,
        terminate=settled.terminate,
    )


def bounded_news(came: CameBack) -> CameBack | None:
    """What came back with the longest part of it told in a notice; None where all of it is short enough."""
    if any(settled.hooks for settled in came.settled.values()):
        return replace(came, settled={at: replace(settled, hooks=()) for at, settled in came.settled.items()})
    longest = max(came.settled, key=lambda at: _said_bytes(came.settled[at]), default=None)
    if longest is not None and bounded(came.settled[longest]) != came.settled[longest]:
        return replace(came, settled=came.settled | {longest: bounded(came.settled[longest])})
    deferred = {at: _bounded_deferral(call) for at, call in came.deferred.items()}
    held = {at: _bounded_hold(hold) for at, hold in came.held.items()}
    if (deferred, held) == (came.deferred, came.held):
        return None
    return replace(came, deferred=deferred, held=held)


def _bounded_deferral(call: Deferral) -> Deferral:
    if _json_bytes(call.text) <= SETTLEMENT_TEXT_BYTES:
        return call
    return replace(call, text="[Accepted; the result comes later. More was said, but the log of this session is full.]")


def _bounded_hold(hold: Hold) -> Hold:
    module, reason = (printable(text, limit=HOLD_CHARS_MAX) for text in (hold.module, hold.reason))
    return replace(hold, module=module, reason=reason)


def _pause_bytes(run: Run) -> int:
    """Room to say that the run waits for held calls, whose hold a death may have kept, or is handed over by its process."""
    step = run.step
    if run.in_flight is not None:
        return _PAUSE_BYTES if run.pause is None else 0
    calls = step is not None and step.answer is not None and not step.finished and step.answer.has_calls
    settled = step is not None and step.batch is not None and step.batch.finished
    said = run.pause is not None and run.pause.reason == "tool_held"
    return 0 if said or settled or not calls else _PAUSE_BYTES


def _turn_bytes(step: Step | None) -> int:
    if step is None or step.answer is None or step.finished:
        return 0
    batch = step.batch
    if batch is not None:
        return _MARKER_BYTES if batch.finished else 3 * _MARKER_BYTES + sum(_call_bytes(step, call) for call in batch.calls)
    planned = (_PLAN_BYTES + _RESULT_BYTES + 4 * _json_bytes(call.id) + _json_bytes(call.name) for call in step.answer.calls)
    asked = (_APPROVAL_BYTES + _json_bytes(approval.asked.tool_call_id) for approval in step.approvals if not approval.resolved)
    return 3 * _MARKER_BYTES + sum(planned) + sum(asked)


def _call_bytes(step: Step, call: CallState) -> int:
    """What one call of an open batch may still bring, up to the verdict of a person."""
    unknown = VERDICT_BYTES if call.settled is None or call.settled.outcome is Outcome.UNKNOWN else 0
    if call.terminal:
        return unknown if call.settled is not None else 0
    name = _json_bytes(call.planned.tool_call_id)
    if call.planned.refused is not None:
        return _RESULT_BYTES + name + _json_bytes(call.planned.refused.message)
    if call.returned is not None:
        return _RESULT_BYTES + name + unknown
    mark = _RESULT_BYTES if call.process is None else 0
    held = 0 if call.held is not None else _HELD_BYTES + name
    intent = 0 if call.intent else _RESULT_BYTES + name + _changed_bytes(step, call)
    back = _RETURNED_BYTES + _HANDLE_BYTES + _RESULT_BYTES + 2 * name
    return back + mark + held + intent + unknown


def _changed_bytes(step: Step, call: CallState) -> int:
    """Arguments that a person or a hook changed; the intent repeats them."""
    changed = step.changed_arguments(call.planned.ordinal)
    return 0 if changed is None else _json_bytes(changed)


def _said_bytes(settled: Settlement) -> int:
    """The text of a settlement, and its parts as a record holds them."""
    return len(settled.text.encode()) + (len(encode(settled.parts)) if settled.parts else 0)


def _json_bytes(text: str) -> int:
    return len(encode(text))
