"""Results that come when their call has been left: of a held call, of a deferred one, of one that was closed meanwhile. Pure.

A held call's result is its terminal in the batch that waits for it, and the run goes on by itself. A deferred call has its
stand-in already: the result is a notice of the next step or run, never a second result (MAP12, B11).
"""

from semel.core.effects import CameBack, Decision, DeliverResult
from semel.core.outcomes import Completed
from semel.core.outcomes import settle as settlement
from semel.core.records import LateResult, ToolOutput
from semel.core.settle import settle
from semel.core.state import Session
from semel.core.values import Effect
from semel.errors import KeyReuse, UnknownCall


def deliver_result(
    state: Session,
    command: DeliverResult,
    *,
    in_flight: frozenset[int] = frozenset(),
    doubt: frozenset[int] = frozenset(),
    stop: bool = False,
) -> Decision:
    """Take a result in; the same result again changes nothing. `in_flight` are the calls of the batch that are still running.

    Raises UnknownCall for a call that owes none, and KeyReuse for a second, different result.
    """
    completed = Completed(text=command.text, is_error=command.is_error, parts=command.parts)
    settled = settlement(Effect.ONCE, completed, after_crash=False)
    held = _held_at(state, command.call_key)
    run = state.run
    if held is not None and run is not None and run.step is not None and run.step.batch is not None:
        news = CameBack(settled={held: settled}, in_flight=in_flight)
        return settle(state, run, run.step.batch, news=news, doubt=doubt, closing=run.aborting_now, stop=stop)
    owed = state.owed.get(command.call_key)
    if owed is None:
        raise UnknownCall(f"call {command.call_key} of session {state.session!r} owes no result")
    record = LateResult(
        call_key=command.call_key,
        output=ToolOutput(text=settled.text, parts=command.parts),
        is_error=command.is_error,
        handle=owed.handle,
        kind=command.kind,
        event_id=command.event_id,
    )
    found = state.late.get(command.call_key)
    if found is None:
        return Decision(records=(record,))
    if (found.output, found.is_error) == (record.output, record.is_error):
        return Decision()
    raise KeyReuse(f"call {command.call_key} was given another result before; the first one stands")


def _held_at(state: Session, call_key: str) -> int | None:
    """The ordinal of the call, if it is held in the open batch."""
    step = state.run.step if state.run is not None else None
    batch = step.batch if step is not None else None
    if batch is None or batch.finished:
        return None
    return next((at for at in batch.held if batch.calls[at].planned.call_key == call_key), None)
