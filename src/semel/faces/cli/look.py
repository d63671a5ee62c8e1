"""`ls`, `show`, `explain`, `preview`: what there is, what happened, why, and what comes next. They change nothing."""

import click
import msgspec

from semel.core.explain import count
from semel.core.explain import explain as sentences_of
from semel.core.state import Session
from semel.core.status import Status, is_left, status_of
from semel.core.waiting import WaitKind
from semel.faces.cli.carry import ground_to_look_at
from semel.faces.cli.lines import cached_text, duration, moment, usage_text
from semel.faces.cli.options import json_option, state_option
from semel.faces.cli.output import data, json_line, one_line, shown, stdout_is_terminal, table, talk, tell_faults
from semel.faces.cli.remedies import VERDICTS, command, plain_command, resolve_commands, with_state
from semel.faces.cli.verbs import verb
from semel.faces.listing import Listing, listing_of
from semel.faces.preview import PLACEHOLDER, preview_of
from semel.faces.spending import spending_of
from semel.faces.story import CallStory, RunStory, SuppliedStory, tell, text_of
from semel.faces.views import SessionView, view_of
from semel.ports.log import SessionStore

_TEXT_CHARS, _RESULT_CHARS = 400, 120
_EXIT_UNREADABLE = 6
_OUTCOMES = {
    "asked": "waits for a person to approve it",
    "planned": "not sent yet",
    "waiting": "not sent yet",
    "sent": "sent, no result yet",
    "held": "held by its provider",
    "not_sent": "not sent",
    "max_steps": "closed by a limit or a stop",
}
"""Words of a story that a person would not understand as they are."""


@verb("semel ls", "semel ls --json | jq -r 'select(.unknown_calls > 0) | .session'")
@state_option
@json_option
def ls(*, state: str | None, as_json: bool) -> int:
    """List the sessions with the state of their newest run.

    An "open" run is carried by nobody: its process died or left, and `semel resume` goes on with it. A "paused" one says what it
    waits for. One that cannot be read is listed with the reason's code, and the exit code is then 6.
    """
    rows, lost, store = list[tuple[str, ...]](), dict[str, str](), ground_to_look_at(state).store
    for item in listing_of(store):
        if item.error is not None:
            lost[item.session] = item.error.message
        if as_json:
            json_line(msgspec.to_builtins(item))
        else:
            rows.append(_row(item))
    if rows:
        table(("session", "state", "agent", "records", "last", "held by"), rows)
        for session, why in lost.items():
            talk(f"{session} cannot be read: {with_state(why)}")
    elif not as_json:
        talk("no sessions here")
    tell_faults(store)
    return _EXIT_UNREADABLE if lost else 0


def _row(item: Listing) -> tuple[str, ...]:
    if item.error is not None:
        return item.session, item.error.code, "", "", "", ""
    state = str(item.state or "no run")
    if item.owner is None and (state == "running" or item.reason == WaitKind.RESTART):
        state = "open"
    elif state == "paused":
        state = f"paused ({item.reason})"
    at = moment(item.updated_at_ms) if item.updated_at_ms is not None else ""
    return item.session, state, item.agent or "", str(item.head_seq), at, item.owner or ""


@verb("semel show customer-42", "semel show customer-42 --json | jq .runs[-1].steps")
@click.argument("session")
@state_option
@json_option
def show(*, session: str, state: str | None, as_json: bool) -> int:
    """Tell what happened in SESSION: its runs, steps and calls, and what waits for a person."""
    store = ground_to_look_at(state).store
    view = view_of(store, session)
    if as_json:
        _show_as_json(store, view)
        return 0
    held = f"held by {view.owner}" if view.owner else "held by nobody"
    shown(one_line(f"session {session}: {count(view.state.head, 'record')}, {held}"))

    def show_one(one: SuppliedStory | RunStory) -> None:
        if isinstance(one, RunStory):
            _show_run(one, view.owner)
        else:
            shown(one_line(f"it started with {count(one.supplied, 'message')} from elsewhere, in the format {one.format}"))

    tell(store, view.state, show_one)
    for message in _queue(view.state):
        shown(one_line(f"queued as {message['key']}: {message['text']}", _TEXT_CHARS))
    status = status_of(view.state, view.state.digest)
    if status is not None:
        _show_next(status, view.owner)
    return 0


def _show_as_json(store: SessionStore, view: SessionView) -> None:
    """All that is told as one object, which is in memory for that."""
    told: list[SuppliedStory | RunStory] = []
    tell(store, view.state, told.append)
    state, status = view.state, status_of(view.state, view.state.digest)
    supplied = next((one for one in told if isinstance(one, SuppliedStory)), SuppliedStory())
    json_line(
        {
            "session": state.session,
            "lineage": state.lineage,
            "head_seq": state.head,
            "owner": view.owner,
            "status": None if status is None else msgspec.to_builtins(status),
            "runs": [msgspec.to_builtins(one) for one in told if isinstance(one, RunStory)],
            **msgspec.to_builtins(supplied),
            "queue": _queue(state),
        }
    )


def _queue(state: Session) -> list[dict[str, str]]:
    """The messages that wait for a run of their own."""
    return [
        {"key": message.key, "delivery": message.delivery or "queue", "text": text_of(message.request)} for message in state.queue
    ]


def _show_run(run: RunStory, owner: str | None) -> None:
    how = run.reason or ("running" if owner else "open")
    took = "" if run.finished_at_ms is None else f", {duration(run.finished_at_ms - run.started_at_ms)}"
    used = "" if run.usage is None else f", {usage_text(run.usage)}"
    again = f", resumed {run.resumes} times" if run.resumes > 1 else ", resumed once" if run.resumes else ""
    after = f", continues {run.continues[:8]}" if run.continues else ""
    after += f", continued as {run.continued_as[:8]}" if run.continued_as else ""
    how += ", asked to end" if (run.cancel or run.stop) and run.reason is None else ""
    shown("")
    shown(one_line(f"run {run.run_id[:8]} of {run.agent.name}, {moment(run.started_at_ms)}: {how}{took}{used}{again}{after}"))
    shown(f"  > {one_line(run.input, _TEXT_CHARS)}")
    for said in run.said:
        left = "waits" if run.reason is None else "left unanswered"
        taken = left if said.step_id is None else f"step {said.step_id}"
        shown(f"  > ({said.delivery.replace('_', '-')}, {taken}) {one_line(said.text, _TEXT_CHARS)}")
    for step in run.steps:
        tries = f" ({step.attempts} attempts)" if step.attempts > 1 else ""
        text = "…" if step.text is None else one_line(step.text, _TEXT_CHARS)
        shown(f"  step {step.step_id}{tries}: {text}{cached_text(step.usage)}".rstrip())
        for call in step.calls:
            shown(f"    {_call(call)}")
    if run.error is not None:
        shown(one_line(f"  error: {run.error.code}: {run.error.message}"))


def _call(call: CallStory) -> str:
    by = f" by {one_line(call.approved_by, _RESULT_CHARS)}" if call.approved_by else ""
    told = f" {call.approval}{by}," if call.approval and call.approval != call.outcome else ""
    word = _OUTCOMES.get(call.outcome, call.outcome)
    outcome = "deferred" if call.deferred else f"{word}{by}" if call.approval == call.outcome else word
    if call.verdict is not None:
        return f"{_asked(call)}{told} {outcome}, {_verdict(call)}"
    reason = f" ({call.reason})" if call.reason else ""
    wrong = ", an error" if call.is_error and call.outcome == "completed" else ""
    said = "" if call.output is None else f": {one_line(call.output, _RESULT_CHARS)}"
    late = "" if call.late is None else f" | its result came late: {one_line(call.late, _RESULT_CHARS)}"
    return f"{_asked(call)}{told} {outcome}{reason}{wrong}{said}{late}"


def _asked(call: CallStory) -> str:
    return f"{call.call_key[:8]} {one_line(f'{call.tool}({call.arguments})', _TEXT_CHARS)}".strip()


def _verdict(call: CallStory) -> str:
    """What a person found out. It stands instead of what the run had to say, which was that it did not know."""
    said = "" if call.verdict_output is None else f": {one_line(call.verdict_output, _RESULT_CHARS)}"
    note = "" if call.note is None else f" (note: {one_line(call.note, _RESULT_CHARS)})"
    return f"resolved as {call.verdict} by {one_line(call.verdict_by or '', _RESULT_CHARS)}{note}{said}"


def _show_next(status: Status, owner: str | None) -> None:
    """The next command, if there is one to give."""
    shown("")
    for call in status.unknown_calls:
        shown(one_line(f"unknown: {call.tool} ({call.call_key[:8]})"))
    if status.unknown_calls:
        shown(f"find out what happened, then, {VERDICTS}:")
    for one in resolve_commands(call.call_key for call in status.unknown_calls):
        shown(one_line(f"  {one}"))
    if status.state == "paused" and not is_left(status):
        shown(f"it is paused ({status.reason}); {command('explain', status.session)} says what for")
    if is_left(status) and owner is None:
        shown(f"nobody carries the open run; {command('resume', status.session)} goes on with it")


@verb("semel explain customer-42", "semel explain customer-42 --json | jq -r '.sentences[].command // empty'")
@click.argument("session")
@state_option
@json_option
def explain(*, session: str, state: str | None, as_json: bool) -> int:
    """Say in plain sentences why SESSION is in the state that it is in, and with which command it goes on."""
    view = view_of(ground_to_look_at(state).store, session)
    sentences = (*sentences_of(view.state, carried=view.owner is not None), *spending_of(view.state))
    commands = [None if one.command is None or not _is_verb(one.command[0]) else plain_command(*one.command) for one in sentences]
    if as_json:
        told = [
            {"text": one.text, "command": words, "until_ms": one.until_ms} for one, words in zip(sentences, commands, strict=True)
        ]
        json_line({"session": session, "owner": view.owner, "sentences": told})
        return 0
    for one, words in zip(sentences, commands, strict=True):
        until = "" if one.until_ms is None else f" (until {moment(one.until_ms)})"
        shown(one_line(f"{one.text}{until}"))
        if words is not None:
            shown(f"  {words}")
    return 0


def _is_verb(word: str) -> bool:
    """Whether this build has the verb: a log may be in a state that only a newer one brings about and ends."""
    root = click.get_current_context().find_root()
    return isinstance(root.command, click.Group) and word in root.command.list_commands(root)


@verb(
    "semel preview customer-42",
    'semel preview customer-42 "And order 18?" | jq .messages',
    "semel preview customer-42 | sha256sum",
)
@click.argument("session")
@click.argument("prompt", required=False)
@state_option
@json_option
def preview(*, session: str, prompt: str | None, state: str | None, as_json: bool) -> int:
    """Print the body of the next request of SESSION, byte for byte as it would be sent. Nothing is sent.

    Of an open run it is the request that a resume sends. Else it is that of the next run, with PROMPT as its message, if it
    is frozen like the last one.
    """
    ground = ground_to_look_at(state)
    found = preview_of(ground.store, session, ground.clock, prompt)
    if found.placeholder:
        talk(f"no run is open: {PLACEHOLDER} stands for the message that starts the next one")
    if as_json:
        bundle, request = found.bundle, found.request
        body = msgspec.json.decode(request.body)
        where = {"session": session, "family": bundle.family, "model": bundle.model, "endpoint": bundle.endpoint}
        json_line({**where, "placeholder": found.placeholder, "sha256": request.sha256, "body": body})
        return 0
    data(found.request.body.decode() + ("\n" if stdout_is_terminal() else ""))
    return 0
