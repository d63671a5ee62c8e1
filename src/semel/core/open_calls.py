"""The calls of a session that somebody owes an answer or a result: approvals, held calls, deferred calls. Pure."""

from typing import Literal

import msgspec

from semel.core.arguments import parse_arguments
from semel.core.defaults import TooEntangled, with_defaults
from semel.core.outcomes import Refusal
from semel.core.records import ApprovalRequested
from semel.core.state import Session
from semel.core.values import Frozen, ToolSpec
from semel.errors import need

OpenKind = Literal["approval", "held", "deferred"]


class OpenCall(Frozen, frozen=True, kw_only=True):
    """A call that waits for somebody. `since_ms` is when that began and `until_ms` when it is over by itself, if ever.

    `handle` is what a deferred call's result comes under. `arguments` of one that a person is asked about have the defaults of
    what was left out, as the rule that asks has judged them.
    """

    call_key: str
    tool: str
    arguments: str
    kind: OpenKind
    run_id: str
    since_ms: int
    until_ms: int | None = None
    handle: str | None = None
    why: str | None = None


def open_calls(state: Session) -> tuple[OpenCall, ...]:
    """All of them, in the order in which they were asked for."""
    return (*_approvals(state), *_owed(state))


def answered_calls(state: Session) -> tuple[OpenCall, ...]:
    """Those of the open step whose approval was answered, and those whose result has come: an answer may be repeated."""
    step = state.run.step if state.run is not None else None
    decided = [one.asked for one in step.approvals if one.resolved is not None] if step is not None else []
    return (*(_approval(state, asked) for asked in decided), *(call for call in _owed(state, paid=True)))


def _approvals(state: Session) -> tuple[OpenCall, ...]:
    step = state.run.step if state.run is not None and not state.run.ending else None
    return tuple(_approval(state, asked) for asked in step.undecided) if step is not None else ()


def _approval(state: Session, asked: ApprovalRequested) -> OpenCall:
    run = need(state.run, "an approval is of an open run")
    step = need(run.step, "an approval is of a step")
    tool = step.answer.calls[asked.ordinal].name if step.answer is not None else ""
    return OpenCall(
        call_key=asked.call_key,
        tool=tool,
        arguments=_as_used(run.tool(tool), step.arguments(asked.ordinal)),
        kind="approval",
        run_id=run.run_id,
        since_ms=state.last_at_ms,
        until_ms=asked.expires_at_ms,
        why=asked.rule,
    )


def _as_used(spec: ToolSpec | None, text: str) -> str:
    """The arguments with the defaults of what was left out; the text itself where there are none."""
    parsed = parse_arguments(text)
    if spec is None or isinstance(parsed, Refusal):
        return text
    try:
        filled = with_defaults(spec.parameters, parsed)
    except TooEntangled:
        return text
    return text if filled == parsed else msgspec.json.encode(filled).decode()


def _owed(state: Session, *, paid: bool = False) -> tuple[OpenCall, ...]:
    batch = state.run.step.batch if state.run is not None and state.run.step is not None else None
    held = {call.planned.call_key: call.held for call in batch.calls} if batch is not None else {}
    return tuple(
        OpenCall(
            call_key=owed.call_key,
            tool=owed.tool,
            arguments=owed.arguments,
            kind="held" if owed.handle is None else "deferred",
            run_id=owed.run_id,
            since_ms=owed.since_ms,
            until_ms=record.until_ms if (record := held.get(owed.call_key)) is not None else None,
            handle=owed.handle,
            why=record.reason if record is not None else None,
        )
        for owed in state.owed.values()
        if (owed.call_key in state.late) is paid
    )
