"""The ceiling of a log, and what it keeps free so that a full session can still be closed (W10-W13, HAZ2, design 3). Pure.

One rule admits every write: the bytes that are there, those of the write, and the reserve of the state behind it stay within
the ceiling. The reserve is the most that this state still needs to be closed, so what a record that closes adds, the reserve
loses: it always fits. The hard part is never to let a record grow that the reserve counts on, so each has a bound here.
"""

from collections.abc import Sequence

from msgspec.json import encode

from semel.core.outcomes import Outcome, Settlement
from semel.core.records import ModelAttemptFinished, Record, ResumeStarted
from semel.core.state import CallState, Session, Step

CEILING_BYTES = 1024**3
"""How long a log may become, 1 GiB, unless a store is made with another ceiling."""

SESSION_TOO_LARGE = "session_too_large"
"""The code of the failure of a run whose log was full (W13)."""

SETTLEMENT_TEXT_BYTES = 256
"""The longest text of a result, as JSON, that the reserve has room for."""
VERDICT_BYTES = 2048
"""Room for one `indeterminate_resolved`: a verdict with a note; one with a longer output may be refused by a full session."""

_HEAD_BYTES_MOST = 7 * 20 + 9 + 65 + 2  # seven numbers, check, digest, the space behind `requires`, the newline
_MARKER_BYTES = 512  # turn_finished, tool_batch_finished
_TERMINAL_BYTES = 2048  # run_finished with usage and a bounded failure
_CANCEL_BYTES = 1024
_RETURNED_BYTES = 1024  # tool_call_returned with a bounded text
_RESULT_BYTES = 1024  # tool_result, tool_no_dispatch, tool_process: their message and id aside
_PLAN_BYTES = 5120  # a planned call whose arguments are refused in many words


def framed_bytes(payload_bytes: int, requires: Sequence[str]) -> int:
    """The most that a payload takes in a log, with its header and newline."""
    return _HEAD_BYTES_MOST + max(1, len(",".join(requires))) + payload_bytes


def dispensable(record: Record) -> bool:
    """Whether nothing depends on this record, so that it is left out where only the reserve is left (HAZ4, R8)."""
    return isinstance(record, ResumeStarted | ModelAttemptFinished)


def has_ended_full(state: Session) -> bool:
    """Whether the newest run ended because the log was full; the little that its end left free starts no other (T14)."""
    ended = state.ended.get(state.newest) if state.newest else None
    return ended is not None and ended.error is not None and ended.error.code == SESSION_TOO_LARGE


def reserve_bytes(state: Session) -> int:
    """What a session in this state may still need: the close-out of its open batch, one cancel, one terminal, all verdicts."""
    verdicts = len(state.unknown) * VERDICT_BYTES
    run = state.run
    return verdicts if run is None else verdicts + _CANCEL_BYTES + _TERMINAL_BYTES + _turn_bytes(run.step)


def bounded(settled: Settlement) -> Settlement:
    """A settlement that the reserve has room for: a result that is too long for it is told in a notice (design 3)."""
    if _json_bytes(settled.text) <= SETTLEMENT_TEXT_BYTES:
        return settled
    size = len(settled.text.encode())
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


def _turn_bytes(step: Step | None) -> int:
    if step is None or step.answer is None or step.finished:
        return 0
    batch = step.batch
    if batch is not None:
        return _MARKER_BYTES if batch.finished else 2 * _MARKER_BYTES + sum(map(_call_bytes, batch.calls))
    planned = (_PLAN_BYTES + _RESULT_BYTES + 4 * _json_bytes(call.id) + _json_bytes(call.name) for call in step.answer.calls)
    return 3 * _MARKER_BYTES + sum(planned)


def _call_bytes(call: CallState) -> int:
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
    intent = 0 if call.intent else _RESULT_BYTES + name
    return _RETURNED_BYTES + _RESULT_BYTES + 2 * name + mark + intent + unknown


def _json_bytes(text: str) -> int:
    return len(encode(text))
