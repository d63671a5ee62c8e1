"""`inbox`: all that waits for a person, over all sessions, each with the next command."""

from collections.abc import Iterable, Sequence

from semel.core.explain import count
from semel.core.values import JSON
from semel.errors import SemelError
from semel.faces.cli.carry import ground_to_look_at
from semel.faces.cli.checking import arguments_of, check_of
from semel.faces.cli.lines import moment
from semel.faces.cli.options import json_option, state_option
from semel.faces.cli.output import json_line, one_line, shown, table, talk, tell_faults
from semel.faces.cli.remedies import VERDICTS, command, plain_command, resolve_commands, with_state
from semel.faces.cli.verbs import verb
from semel.faces.views import InboxItem, Queue, Stranded, Waiting, WaitingCall, waiting_of

_EXIT_UNREADABLE = 6
LINE_CHARS_MAX = 4000
WAITS_FOR = {"approval": "an approval", "held": "its result (held)", "deferred": "its result (deferred)"}


@verb(
    "semel inbox",
    "semel inbox --json | jq -r .next",
)
@state_option
@json_option
def inbox(*, state: str | None, as_json: bool) -> int:
    """List what waits for a person: calls, runs that want another key, runs whose process died, and queues nobody begins with.

    An unknown call left the process, and nobody inside can tell whether it took effect. Beside each stands what is known of it
    and how to find out: its key, and the `reconcile` command of its tool. Look at the outside, then tell semel with `resolve`.
    One that waits for an approval is answered with `approve` or `deny`, and one that was held or deferred gets its result with
    `deliver`. Calls are named by the start of their key. Where a session cannot be read, nobody knows what waits in it: it is
    listed too, and the exit code is 6.
    """
    store = ground_to_look_at(state).store
    waiting = waiting_of(store)
    following = _next_of(waiting.calls)
    if as_json:
        calls = [_call_json(item, following[item.call.call_key]) for item in waiting.calls]
        lost = [_lost_json(session, error) for session, error in waiting.unreadable.items()]
        waits = [*map(_waiting_json, waiting.waiting), *map(_run_json, waiting.stranded), *map(_queue_json, waiting.queues)]
        for value in [*calls, *waits, *lost]:
            json_line(value)
    else:
        _show_inbox(waiting, following)
    tell_faults(store)
    return _EXIT_UNREADABLE if waiting.unreadable else 0


def _next_of(calls: Iterable[InboxItem]) -> dict[str, str]:
    """The next command for each call; the last one of a session goes on with it."""
    keys: dict[str, list[str]] = {}
    for item in calls:
        keys.setdefault(item.session, []).append(item.call.call_key)
    return {key: one for of in keys.values() for key, one in zip(of, resolve_commands(of), strict=True)}


def _show_inbox(waiting: Waiting, following: dict[str, str]) -> None:
    if not (waiting.calls or waiting.waiting or waiting.stranded or waiting.queues or waiting.unreadable):
        talk("the inbox is empty")
    rows = [
        (item.call.call_key[:8], item.call.tool, item.call.arguments, item.session, moment(item.call.since_ms))
        for item in waiting.calls
    ]
    if rows:
        table(("call", "tool", "arguments", "session", "since"), rows)
        for item in waiting.calls:
            key = item.call.call_key[:8]
            shown(one_line(f"{key}: {item.call.why}"))
            shown(one_line(f"{key}: {check_of(item).line()}", LINE_CHARS_MAX))
        talk(f"find out what happened, then, {VERDICTS}:")
        for one in following.values():
            talk(f"  {one}")
    _show_waiting(waiting.waiting)
    for run in waiting.stranded:
        shown(one_line(_run_line(run)))
    if waiting.stranded:
        talk(f"{command('resume')} goes on with what nobody carries, and reads keys anew")
    for queue in waiting.queues:
        why = " behind a call whose outcome is unknown: a verdict lets them go, or" if queue.held_up else ":"
        shown(f"{count(queue.count, 'message')} in the queue of session {queue.session}{why} {_start_of(queue)}")
    for session, error in waiting.unreadable.items():
        shown(one_line(f"session {session} cannot be read, so what waits in it is not known: {with_state(str(error))}"))


def _run_line(run: Stranded) -> str:
    what, since = f"run {run.run_id[:8]} of session {run.session}", moment(run.since_ms)
    if run.key_refused is None:
        return f"{what} is open since {since}, and nobody carries it"
    said = f": {run.key_refused}" if run.key_refused else ""
    return f"{what} waits for another key since {since}{said}"


def _show_waiting(calls: Sequence[WaitingCall]) -> None:
    rows = [
        (
            one.call.call_key[:8],
            one.call.tool,
            one.call.arguments,
            one.session,
            WAITS_FOR[one.call.kind],
            moment(one.call.since_ms),
            "-" if one.call.until_ms is None else moment(one.call.until_ms),
        )
        for one in calls
    ]
    if rows:
        table(("call", "tool", "arguments", "session", "waits for", "since", "until"), rows)
        for one in calls:
            if one.call.why is not None:
                shown(one_line(f"{one.call.call_key[:8]}: {one.call.why}"))
            talk(f"  {_answer_to(one)}")


def _answer_to(one: WaitingCall) -> str:
    """The command that gives a call what it waits for."""
    key = one.call.call_key[:8]
    if one.call.kind == "approval":
        return f"{plain_command('approve', key)}, or {plain_command('deny', key)}"
    return plain_command("deliver", key, "RESULT")


def _call_json(item: InboxItem, following: str) -> dict[str, JSON]:
    call = item.call
    return {
        "kind": "call",
        "call_key": call.call_key,
        "tool": call.tool,
        "arguments": arguments_of(call.arguments),
        "session": item.session,
        "run_id": call.run_id,
        "step_id": call.step_id,
        "ordinal": call.ordinal,
        "agent": item.agent,
        "since_ms": call.since_ms,
        "why": call.why,
        "check": check_of(item).as_json(),
        "next": following,
    }


def _waiting_json(one: WaitingCall) -> dict[str, JSON]:
    call = one.call
    return {
        "kind": call.kind,
        "call_key": call.call_key,
        "tool": call.tool,
        "arguments": arguments_of(call.arguments),
        "session": one.session,
        "run_id": call.run_id,
        "agent": one.agent,
        "since_ms": call.since_ms,
        "until_ms": call.until_ms,
        "handle": call.handle,
        "why": call.why,
        "next": _answer_to(one),
    }


def _run_json(run: Stranded) -> dict[str, JSON]:
    return {
        "kind": "run" if run.key_refused is None else "auth_required",
        "session": run.session,
        "run_id": run.run_id,
        "agent": run.agent,
        "since_ms": run.since_ms,
        **({} if run.key_refused is None else {"why": run.key_refused}),
        "next": plain_command("resume", run.session),
    }


def _start_of(queue: Queue) -> str:
    """The command that starts the next of its messages."""
    return plain_command("resume", queue.session, *(["--continue"] if queue.held_up else []))


def _queue_json(queue: Queue) -> dict[str, JSON]:
    return {
        "kind": "queue",
        "session": queue.session,
        "count": queue.count,
        "held_up": queue.held_up,
        "next": _start_of(queue),
    }


def _lost_json(session: str, error: SemelError) -> dict[str, JSON]:
    return {
        "kind": "session",
        "session": session,
        "error": {"code": error.code, "message": str(error)},
        "next": plain_command("verify", session),
    }
