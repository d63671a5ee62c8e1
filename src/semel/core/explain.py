"""Why a session is in the state that it is in, in plain sentences, from the fold alone. Every open or unknown call is named.

Each sentence may have the command that goes on from there, as words. What it says of a resume is what `recover` does.
"""

from collections.abc import Iterator

from semel.core.calls import Batch, CallState
from semel.core.due import is_idle
from semel.core.effects import Decision, Dispatch, Reconcile
from semel.core.recover import CLASSES, Action, recover
from semel.core.standing import CallClass, classify
from semel.core.state import Ended, Pending, PendingKind, Run, Session
from semel.core.targets import cache_words
from semel.core.texts import SUBMIT_TOOL
from semel.core.values import Effect, Frozen, ToolSpec, printable
from semel.core.waiting import WaitKind, pause_of, waits_of

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
        held = f"It holds {count(len(state.transcript), 'message')} from elsewhere." if len(state.transcript) else ""
        yield Sentence(text=f"The session has no run yet. {held}".rstrip(), command=_send(state))
    yield from _unknown(state)
    yield from _owed(state)
    yield from _messages(state)


def _open_run(state: Session, run: Run, *, carried: bool) -> Iterator[Sentence]:
    waits = (is_idle(state) or pause_of(state) is WaitKind.AUTH_REQUIRED) and not carried
    left = "handed it over" if pause_of(state) is WaitKind.RESTART else "ended"
    dead = f"Nobody carries it: the process that did has {left}."
    nobody = "It waits, and nobody has to carry it meanwhile." if waits else dead
    who = "A process carries it." if carried else nobody
    resume = None if carried or waits else ("resume", state.session)
    yield Sentence(text=f"Run {_key(run.run_id)} of agent {_name(run.agent.name)} is open. {who}", command=resume)
    if run.aborting:
        when = "now" if run.aborting_now else "when its step and the calls of it are done"
        yield Sentence(text=f"It was asked to end {when}; no further request to the model leaves.")
    elif run.stopping:
        yield Sentence(text="It was asked to end behind its turn, as at a limit; no further step of it begins.")
    step = run.step
    if step is None:
        yield Sentence(text="It has not asked the model yet.")
    elif step.answer is None:
        ends = "ends the run without one" if run.ending else "asks again, with the same request"
        again = "" if carried else f" A resume {ends}."
        yield Sentence(text=f"Step {step.step_id} waits for the model's answer, in attempt {step.attempt}.{again}")
    elif step.answer.calls and step.batch is None:
        yield from _approvals(run)
    elif step.batch is not None and not step.batch.finished:
        yield from _batch(state, run, step.batch, carried=carried)
    elif step.batch is not None and step.batch.unknown:
        yield Sentence(text=f"The calls of step {step.step_id} are closed, and the outcome of one is unknown; the run is to end.")
    else:
        yield Sentence(text=f"Step {step.step_id} is complete; the next thing is the next step, or the end.")
    yield from _cache(run)
    yield from _times(state, run)


def _cache(of: Run | Ended) -> Iterator[Sentence]:
    """What resumes saved, or what kept them from it; nothing where nobody reported it and nothing changed."""
    for proof in of.cache:
        if proof.read is not None or proof.broken:
            yield Sentence(text=f"Step {proof.step_id} went on from what was asked before: {cache_words(proof)}.")


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


def _batch(state: Session, run: Run, batch: Batch, *, carried: bool) -> Iterator[Sentence]:
    classes, goes_on = classify(run, batch), None if carried else recover(state)
    settled = [_is_settled(call, found) for call, found in zip(batch.calls, classes, strict=True)]
    yield Sentence(
        text=f"Step {batch.step_id} has {count(len(classes), 'call')}, {_of_which(sum(settled), len(settled))} settled."
    )
    for at, found in enumerate(classes):
        if settled[at]:
            continue
        planned = batch.calls[at].planned
        arguments = run.step.arguments(at) if run.step is not None else ""
        call = _call(planned.call_key, planned.tool, arguments)
        held = batch.calls[at].held if found is CallClass.PROVIDER_HELD else None
        yield Sentence(
            text=f"{call} {_stands(run, batch, at, found, goes_on)}",
            command=None if held is None else ("deliver", _key(planned.call_key)),
            until_ms=None if held is None else held.until_ms,
        )


def _is_settled(call: CallState, found: CallClass) -> bool:
    """Whether there is nothing more to know of the call: its outcome is there, or why it is not sent."""
    action = CLASSES[found].action
    return action is Action.INCLUDE or (action is Action.INCLUDE_REFUSAL and not (call.torn_intent and not call.terminal))


def _stands(run: Run, batch: Batch, at: int, found: CallClass, goes_on: Decision | None) -> str:
    """Where an open call stands, and what `goes_on`, the first decision of a resume, does with it."""
    held = batch.calls[at].held
    match found:
        case CallClass.PROVIDER_HELD:
            reason = f" ({printable(held.reason, limit=80)})" if held is not None and held.reason else ""
            return f"is held by its provider{reason}, which owes the result; the run waits for it."
        case CallClass.HELD_SUCCESSOR:
            return "was not sent: it waits for the held call in front of it."
        case CallClass.NO_DISPATCH:
            return "was not sent: the write that came before it was cut off. A resume tells the model so."
        case CallClass.NEVER_SENT:
            return "was not sent: the calls of this batch go one at a time."
        case CallClass.NEVER_LEFT:
            if batch.calls[at].planned.tool == SUBMIT_TOOL:
                return "is the output of the run; it is taken when the other calls are settled."
            return "was planned and not sent; a resume sends it."
        case _:
            return _in_doubt(run.tool(batch.calls[at].planned.tool), at, goes_on)


def _in_doubt(spec: ToolSpec | None, at: int, goes_on: Decision | None) -> str:
    if goes_on is None:
        return "was sent and has not come back."
    asks = any(isinstance(effect, Reconcile) for effect in goes_on.effects)
    if spec is None or spec.effect is Effect.ONCE:
        does = "asks the outside what became of it" if asks and spec and spec.reconciles else "ends the run for a person to look"
        return f"was sent, and whether it took effect is not known; a resume {does}."
    if any(isinstance(effect, Dispatch) and at in effect.ordinals for effect in goes_on.effects):
        return "was sent and has not come back; a resume runs it again, under the same key."
    if asks:
        return "was sent and has not come back; a resume first asks what became of another one."
    return "was sent and has not come back; a resume does not run it again, and closes it with the others."


def _times(state: Session, run: Run) -> Iterator[Sentence]:
    for wait in waits_of(state):
        match wait.kind:
            case WaitKind.RETRY:
                yield Sentence(text="The model's server asked for a pause before the next request.", until_ms=wait.until_ms)
            case WaitKind.CONTEXT_CEILING:
                text = "The request is at the context ceiling; the step waits for room."
                yield Sentence(text=text, until_ms=wait.until_ms)
            case WaitKind.AUTH_REQUIRED:
                why = run.pause.error if run.pause is not None else None
                told = "" if why is None else f" ({printable(why.message, limit=200).rstrip('.')})"
                text = f"Its model's provider refused the key{told}. A resume reads the key anew, and asks once."
                yield Sentence(text=text, command=("resume", state.session))
            case _:
                continue  # said with its call, or with who carries the run


def _ended(state: Session, ended: Ended) -> Iterator[Sentence]:
    yield Sentence(text=f"Run {_key(ended.run_id)} of agent {_name(ended.agent.name)} has ended: {_why(state, ended)}")
    yield from _cache(ended)
    if ended.unanswered:
        said = count(len(ended.unanswered), "message")
        it = "it" if len(ended.unanswered) == 1 else "them"
        yield Sentence(text=f"It left {said} to it unanswered; the next request of the session shows {it}.")
    if not state.unknown:
        yield Sentence(text="The session takes the next message.", command=_send(state))


def _why(state: Session, ended: Ended) -> str:
    if ended.error is not None:
        how = "it was ended" if ended.error.kind in ("limit", "output") else "it failed"
        how = how if ended.reason in ("error", ended.error.code, "max_steps") else ended.reason
        return f"{how} ({ended.error.code}: {printable(ended.error.message, limit=200).rstrip('.')})."
    unknown = "the outcome of a call is unknown, and no model is asked to go on from that"
    if all(key in state.resolved for key in ended.unknown):
        unknown = "the outcome of a call was unknown, and it has its verdict now"
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
        last = ("--continue",) if call is state.unknown[-1] else ()
        yield Sentence(text=text, command=("resolve", _key(call.call_key), "VERDICT", *last))


def _owed(state: Session) -> Iterator[Sentence]:
    """Calls that were settled without their result, which may still come."""
    batch = state.run.step.batch if state.run is not None and state.run.step is not None else None
    waited_for = {call.planned.call_key for call in batch.calls if call.waits} if batch is not None else set()
    for key, owed in state.owed.items():
        if key in state.late or key in waited_for:
            continue
        why = "was deferred, and its result comes later; the model was told so"
        if owed.handle is None:
            why = "was closed while its provider held it, and its result may still come"
        yield Sentence(text=f"{_call(key, owed.tool, owed.arguments)} {why}.", command=("deliver", _key(key)))


def _messages(state: Session) -> Iterator[Sentence]:
    """What waits to be told: verdicts, late results, messages to the run, and the queue."""
    for item in state.pending:
        if item.kind in (PendingKind.VERDICT, PendingKind.LATE):
            yield Sentence(text=f"The next request tells the model {_told(state, item)}.")
    steers, follow_ups = len(state.steers), len(state.follow_ups)
    if steers:
        yield Sentence(text=f"{count(steers, 'message')} to the run {_waits(steers)} for its next step.")
    if follow_ups:
        yield Sentence(text=f"{count(follow_ups, 'message')} {_waits(follow_ups)} until the run would otherwise stop.")
    waiting = len(state.queue)
    if not waiting:
        return
    if state.run is not None:
        yield Sentence(text=f"{count(waiting, 'message')} {_waits(waiting)} for a run of {_its(waiting)} own, behind this one.")
    elif state.queue_waits:
        text = f"{count(waiting, 'message')} {_waits(waiting)} in the queue, because a call of the last run is unknown."
        yield Sentence(text=text)
    else:
        text = f"{count(waiting, 'message')} {_waits(waiting)} in the queue for a run of {_its(waiting)} own."
        yield Sentence(text=text, command=("resume", state.session))


def _send(state: Session) -> tuple[str, ...]:
    """The command that takes a message, from stdin: pasted as it is, it says nothing by itself. A first run names its agent."""
    agent = ("--agent", "FILE") if state.newest is None else ()
    return ("send", "--session", state.session, *agent, "-")


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


def count(number: int, what: str) -> str:
    """So many of a thing, in words."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _of_which(number: int, everything: int) -> str:
    if number == everything:
        return "which is" if number == 1 else "which are all"
    if number == 0:
        return "which is not" if everything == 1 else "none of which is"
    return f"of which {number} {'is' if number == 1 else 'are'}"


def _waits(number: int) -> str:
    return "waits" if number == 1 else "wait"


def _its(number: int) -> str:
    return "its" if number == 1 else "their"
