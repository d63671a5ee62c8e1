"""Why a session is in the state that it is in, in plain sentences, from the fold alone. Every open or unknown call is named.

Each sentence may have the command that goes on from there, as words. What it says of a resume is what `recover` does.
"""

from collections.abc import Iterator

from semel.core.calls import Batch
from semel.core.recover import CLASSES, Action
from semel.core.standing import CallClass, classify
from semel.core.state import Ended, Pending, PendingKind, Run, Session
from semel.core.status import standing
from semel.core.values import Effect, Frozen, ToolSpec, printable
from semel.core.waiting import WaitKind, waits_of

ARGUMENT_CHARS_SHOWN = 120
KEY_CHARS_SHOWN = 8


class Sentence(Frozen, frozen=True, kw_only=True):
    """One thing to know, and the command that goes on from there, if there is one. `until_ms` is when it is over by itself."""

    text: str
    command: tuple[str, ...] | None = None
    until_ms: int | None = None


def explain(state: Session, *, carried: bool) -> tuple[Sentence, ...]:
    """The sentences, in the order in which one wants to know them. `carried` says that a living process holds the session."""
    return tuple(_sentences(state, carried=carried))


def _sentences(state: Session, *, carried: bool) -> Iterator[Sentence]:
    run = state.run
    if run is not None:
        yield from _open_run(state, run, carried=carried)
    elif state.newest is not None:
        yield from _ended(state, state.ended[state.newest])
    else:
        held = f"It holds {_count(len(state.transcript), 'message')} from elsewhere." if len(state.transcript) else ""
        words = ("send", "--session", state.session, "PROMPT")
        yield Sentence(text=f"The session has no run yet. {held}".rstrip(), command=words)
    yield from _unknown(state)
    yield from _owed(state)
    yield from _messages(state)


def _open_run(state: Session, run: Run, *, carried: bool) -> Iterator[Sentence]:
    who = "A process carries it." if carried else "Nobody carries it: the process that did has ended."
    resume = None if carried else ("resume", state.session)
    yield Sentence(text=f"Run {_key(run.run_id)} of agent {_name(run.agent.name)} is open. {who}", command=resume)
    if run.aborting:
        when = "now" if run.aborting_now else "when its step and the calls of it are done"
        yield Sentence(text=f"It was asked to end {when}; no further request to the model leaves.")
    step = run.step
    if step is None:
        yield Sentence(text="It has not asked the model yet.")
    elif step.answer is None:
        again = "" if carried or run.aborting else " A resume asks again, with the same request."
        yield Sentence(text=f"Step {step.step_id} waits for the model's answer, in attempt {step.attempt}.{again}")
    elif step.answer.calls and step.batch is None:
        yield from _approvals(run)
    elif step.batch is not None and not step.batch.finished:
        yield from _batch(run, step.batch, carried=carried)
    else:
        yield Sentence(text=f"Step {step.step_id} is complete; the next thing is the next step, or the end.")
    yield from _times(state)


def _approvals(run: Run) -> Iterator[Sentence]:
    step = run.step
    if step is None or not step.undecided:
        yield Sentence(text="The model has asked for calls, and none of them was planned yet.")
        return
    for asked in step.undecided:
        tool = step.answer.calls[asked.ordinal].name if step.answer else ""
        call = _call(asked.call_key, tool, step.arguments(asked.ordinal))
        text = f"{call} waits for a person to approve it; nothing of its batch is sent before."
        yield Sentence(text=text, command=("approve", _key(asked.call_key)), until_ms=asked.expires_at_ms)


def _batch(run: Run, batch: Batch, *, carried: bool) -> Iterator[Sentence]:
    classes = classify(run, batch)
    done = sum(CLASSES[found].action in (Action.INCLUDE, Action.INCLUDE_REFUSAL) for found in classes)
    yield Sentence(text=f"Of the {_count(len(classes), 'call')} of step {batch.step_id}, {done} {_are(done)} settled.")
    for at, found in enumerate(classes):
        if CLASSES[found].action in (Action.INCLUDE, Action.INCLUDE_REFUSAL):
            continue
        planned = batch.calls[at].planned
        arguments = run.step.arguments(at) if run.step is not None else ""
        call = _call(planned.call_key, planned.tool, arguments)
        held = batch.calls[at].held if found is CallClass.PROVIDER_HELD else None
        yield Sentence(
            text=f"{call} {_stands(run, batch, at, found, carried=carried)}",
            command=None if held is None else ("deliver", _key(planned.call_key)),
            until_ms=None if held is None else held.until_ms,
        )


def _stands(run: Run, batch: Batch, at: int, found: CallClass, *, carried: bool) -> str:
    """Where an open call stands, and what a resume does with it."""
    held = batch.calls[at].held
    match found:
        case CallClass.PROVIDER_HELD:
            reason = f" ({printable(held.reason, limit=80)})" if held is not None and held.reason else ""
            return f"is held by its provider{reason}, which owes the result; the run waits for it."
        case CallClass.HELD_SUCCESSOR:
            return "was not sent: it waits for the held call in front of it."
        case CallClass.NEVER_SENT:
            return "was not sent: the calls of this batch go one at a time."
        case CallClass.NEVER_LEFT:
            return "was planned and not sent."
        case _:
            return _in_doubt(run.tool(batch.calls[at].planned.tool), carried=carried)


def _in_doubt(spec: ToolSpec | None, *, carried: bool) -> str:
    if carried:
        return "was sent and has not come back."
    if spec is not None and spec.effect is not Effect.ONCE:
        return "was sent and has not come back; a resume runs it again, under the same key."
    if spec is not None and spec.reconciles:
        return "was sent, and whether it took effect is not known; a resume asks the outside what became of it."
    return "was sent, and whether it took effect is not known; a resume ends the run for a person to look."


def _times(state: Session) -> Iterator[Sentence]:
    resume = ("resume", state.session)
    for wait in waits_of(state):
        match wait.kind:
            case WaitKind.RETRY:
                yield Sentence(text="The model's server asked for a pause before the next request.", until_ms=wait.until_ms)
            case WaitKind.CONTEXT_CEILING:
                text = "The request is at the context ceiling; the step waits for room."
                yield Sentence(text=text, until_ms=wait.until_ms)
            case WaitKind.AUTH_REQUIRED:
                yield Sentence(text="It is paused: the model's server wants other credentials.", command=resume)
            case WaitKind.RESTART:
                yield Sentence(text="It is paused for a restart.", command=resume)
            case _:
                continue  # said with its call


def _ended(state: Session, ended: Ended) -> Iterator[Sentence]:
    yield Sentence(text=f"Run {_key(ended.run_id)} of agent {_name(ended.agent.name)} has ended: {_why(ended)}")
    if ended.unanswered:
        said = _count(len(ended.unanswered), "message")
        yield Sentence(text=f"It left {said} to it unanswered; the next request of the session shows them.")
    if standing(ended) in ("completed", "cancelled", "failed") and not state.unknown:
        yield Sentence(text="The session takes the next message.", command=("send", "--session", state.session, "PROMPT"))


def _why(ended: Ended) -> str:
    if ended.error is not None:
        return f"{ended.reason}, {ended.error.code}: {printable(ended.error.message, limit=200)}"
    unknown = "the outcome of a call is unknown, and no model is asked to go on from that"
    reasons = {
        "completed": "it did its work.",
        "cancelled": "it was cancelled" + (f"; {unknown}." if ended.unknown else "."),
        "interrupted": f"{unknown}.",
    }
    return reasons.get(ended.reason, f"{ended.reason}.")


def _unknown(state: Session) -> Iterator[Sentence]:
    for call in state.unknown:
        named = _call(call.call_key, call.tool, call.arguments)
        place = f"of step {call.step_id} of run {_key(call.run_id)}"
        text = f"{named}, {place}, was sent, and whether it took effect is not known. Find out, then say so."
        verdict = "--happened|--did-not-happen|--abandon"
        yield Sentence(text=text, command=("resolve", _key(call.call_key), verdict, "--continue"))


def _owed(state: Session) -> Iterator[Sentence]:
    for key, owed in state.owed.items():
        if key in state.late or owed.handle is None:
            continue
        text = f"{_call(key, owed.tool, owed.arguments)} was deferred, and its result comes later; the model was told so."
        yield Sentence(text=text, command=("deliver", _key(key)))


def _messages(state: Session) -> Iterator[Sentence]:
    """What waits to be told: verdicts, late results, messages to the run, and the queue."""
    for item in state.pending:
        if item.kind in (PendingKind.VERDICT, PendingKind.LATE):
            yield Sentence(text=f"The next request tells the model {_told(state, item)}.")
    steers, follow_ups = len(state.steers), len(state.follow_ups)
    if steers:
        yield Sentence(text=f"{_count(steers, 'message')} to the run {_waits(steers)} for its next step.")
    if follow_ups:
        yield Sentence(text=f"{_count(follow_ups, 'message')} {_waits(follow_ups)} until the run would otherwise stop.")
    waiting = len(state.queue)
    if not waiting:
        return
    if state.run is not None:
        yield Sentence(text=f"{_count(waiting, 'message')} {_waits(waiting)} for a run of {_its(waiting)} own, behind this one.")
    elif state.parked:
        text = f"{_count(waiting, 'message')} {_waits(waiting)} in the queue, because a call of the last run is unknown."
        yield Sentence(text=text, command=("resume", state.session, "--continue"))
    else:
        text = f"{_count(waiting, 'message')} {_waits(waiting)} in the queue for a run of {_its(waiting)} own."
        yield Sentence(text=text, command=("resume", state.session))


def _told(state: Session, item: Pending) -> str:
    if item.kind is PendingKind.VERDICT:
        found = state.resolved[item.source]
        return f"the verdict on call {_key(item.source)}: {found.verdict.replace('_', ' ')}"
    return f"the late result of call {_key(item.source)}"


def _call(call_key: str, tool: str, arguments: str) -> str:
    return f"Call {_key(call_key)} {printable(f'{tool}({arguments})', limit=ARGUMENT_CHARS_SHOWN)}"


def _key(key: str) -> str:
    return key[:KEY_CHARS_SHOWN]


def _name(name: str) -> str:
    return repr(printable(name, limit=60))


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _are(number: int) -> str:
    return "is" if number == 1 else "are"


def _waits(number: int) -> str:
    return "waits" if number == 1 else "wait"


def _its(number: int) -> str:
    return "its" if number == 1 else "their"
