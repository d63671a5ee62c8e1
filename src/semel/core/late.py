"""Results that come when their call has been left: of a held call, of a deferred one, of one that was closed meanwhile. Pure.

A held call's result is its terminal in the batch that waits for it, and the run goes on by itself. A deferred call has its
stand-in already: the result is a notice of the next step or run, never a second result (MAP12, B11).
"""

from semel.core.calls import Batch
from semel.core.effects import CameBack, Decision, DeliverResult, UnderWay
from semel.core.outcomes import Completed
from semel.core.outcomes import settle as settlement
from semel.core.records import LateResult, ToolOutput
from semel.core.settle import settle
from semel.core.state import Session
from semel.core.values import Effect
from semel.errors import KeyReuse, UnknownCall

GIVEN_UP = "The result did not come in time; nobody waits for it any more. It may still take effect: do not ask for it again."
"""What a held call is given by semel itself, when its time is over."""


def deliver_result(state: Session, command: DeliverResult, under_way: UnderWay | None) -> Decision:
    """Take a result in; the same result again changes nothing. A run that is carried and waited for it goes on.

    Where nobody carries the run, the result of a held call is kept beside its batch, and the resume that takes the run up makes
    it the call's terminal: so nothing behind it can have been sent.

    Raises UnknownCall for a call that owes none, and KeyReuse for a second, different result.
    """
    completed = Completed(text=command.text, is_error=command.is_error, parts=command.parts)
    settled = settlement(Effect.ONCE, completed, after_crash=False)
    run = state.run
    batch = run.step.batch if run is not None and run.step is not None else None
    held = _held_at(batch, command.call_key)
    if run is not None and batch is not None and held is not None and under_way is not None:
        news = CameBack(settled={held: settled}, in_flight=under_way.in_flight)
        return settle(state, run, batch, news=news, doubt=under_way.doubt, closing=run.aborting_now, policy=under_way.policy)
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
    raise KeyReuse(_stands(state, command.call_key, found))


def _stands(state: Session, call_key: str, found: LateResult) -> str:
    """Why another result is not taken: whose the log has, and what to do with the real one."""
    if (found.kind, found.output.text) != ("expired", GIVEN_UP):
        return f"call {call_key} was given another result before; the first one stands"
    return (
        f"the time of call {call_key} was over before this result came. The log has semel's own word that none came, and that "
        f"stands: the model may have read it. For it to know of the real one, send it as a message: `semel send` to session "
        f"{state.session!r}"
    )


def _held_at(batch: Batch | None, call_key: str) -> int | None:
    """The ordinal of the call, if it is held in the open batch."""
    if batch is None or batch.finished:
        return None
    return next((at for at in batch.held if batch.calls[at].planned.call_key == call_key), None)
