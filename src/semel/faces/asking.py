"""What people ask of a session, as functions of its state at the moment in which they are taken (R22, R26, CON24)."""

from typing import TypeVar

from msgspec import MsgspecError, convert

from semel.core.decide import answer_approval, cancel, deliver_message, deliver_result, retract, route, stop
from semel.core.effects import AnswerApproval, Cancel, Decision, DeliverResult, Message, StopRun, UnderWay
from semel.core.policy import Policy
from semel.core.state import Session
from semel.core.values import clean_text
from semel.engine.inbox import Choose
from semel.errors import BadSettings, InvariantBroken

CommandT = TypeVar("CommandT")


class RouteChanged(InvariantBroken):
    """Between the look at a session and the moment in which a message was taken, its run began or ended: look again."""


def message_of(command: Message) -> Choose:
    """A message into the run or the queue. Raises RouteChanged where it is a send by now, or its key was used."""

    def choose(state: Session, under_way: UnderWay | None) -> Decision:
        if command.key in state.keys or route(state, command.delivery) == "send":
            raise RouteChanged("the session has changed")
        return deliver_message(state, command, under_way)

    return choose


def cancel_of(command: Cancel) -> Choose:
    """A cancel; empty where no run is open."""

    def choose(state: Session, under_way: UnderWay | None) -> Decision:
        return cancel(state, command, under_way)

    return choose


def stop_of(command: StopRun) -> Choose:
    """A stop; empty where no run is open, or it is to end anyway."""

    def choose(state: Session, under_way: UnderWay | None) -> Decision:
        return stop(state, command)

    return choose


def approval_of(command: AnswerApproval, policy: Policy) -> Choose:
    """An answer to an approval. Raises UnknownCall, ApprovalClosed, UsageError."""

    def choose(state: Session, under_way: UnderWay | None) -> Decision:
        return answer_approval(state, command, under_way, policy)

    return choose


def result_of(command: DeliverResult) -> Choose:
    """The result of a held or deferred call. Raises UnknownCall, KeyReuse."""

    def choose(state: Session, under_way: UnderWay | None) -> Decision:
        return deliver_result(state, command, under_way)

    return choose


def retract_of(key: str, by: str | None) -> Choose:
    """A queued message is taken back. Raises UnknownMessage."""

    def choose(state: Session, under_way: UnderWay | None) -> Decision:
        return retract(state, key, by=by)

    return choose


def checked_cancel(at: str, by: str | None) -> Cancel:
    """Raises BadSettings for another point than `now` and `step_boundary`."""
    return _checked(Cancel, {"at": at, "by": by})


def checked_stop(by: str | None) -> StopRun:
    """Raises BadSettings for a wrong type."""
    return _checked(StopRun, {"by": by})


def checked_approval(call_key: str, decision: str, *, by: str | None, arguments: str | None, note: str | None) -> AnswerApproval:
    """Raises BadSettings for a wrong type."""
    return _checked(AnswerApproval, {"call_key": call_key, "decision": decision, "by": by, "arguments": arguments, "note": note})


def checked_result(call_key: str, text: str, *, is_error: bool, kind: str, event_id: str | None) -> DeliverResult:
    """Raises BadSettings for another kind or a wrong type."""
    fields = {"call_key": call_key, "text": text, "is_error": is_error, "kind": kind, "event_id": event_id}
    return _checked(DeliverResult, fields)


def _checked(command: type[CommandT], fields: dict[str, object]) -> CommandT:
    cleaned = {name: clean_text(value) if isinstance(value, str) else value for name, value in fields.items()}
    try:
        return convert(cleaned, command)
    except MsgspecError as error:
        raise BadSettings(f"this cannot be recorded: {error}") from None
