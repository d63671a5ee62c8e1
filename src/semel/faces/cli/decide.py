"""`inbox`, `resolve`: what waits for a person, and the verdict."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from semel.core.records import Verdict
from semel.core.values import JSON
from semel.engine.resume import Ground
from semel.errors import BadSettings, SemelError
from semel.faces.api import Runtime
from semel.faces.cli.carry import Errand, carry, ground_of
from semel.faces.cli.endings import finish
from semel.faces.cli.lines import moment
from semel.faces.cli.options import RunOptions, json_option, run_options, state_option
from semel.faces.cli.output import json_line, one_line, shown, table, talk
from semel.faces.cli.remedies import VERDICTS, command, plain_command, resolve_commands
from semel.faces.cli.verbs import verb
from semel.faces.reading import read_small
from semel.faces.run import RunHandle
from semel.faces.views import InboxItem, Stranded, Waiting, find_call, view_of, waiting_of

_EXIT_UNREADABLE = 6


@verb(
    "semel inbox",
    "semel inbox --json | jq -r .next",
)
@state_option
@json_option
def inbox(*, state: str | None, as_json: bool) -> int:
    """List the calls whose outcome is unknown, and the runs whose process died.

    A call in the inbox left the process, and nobody inside can tell whether it took effect. Look at the outside, then tell
    semel with `resolve`. Calls are named by the start of their key. Where a session cannot be read, nobody knows what waits
    in it: it is listed too, and the exit code is 6.
    """
    waiting = waiting_of(ground_of(state).store)
    following = _next_of(waiting.calls)
    if as_json:
        calls = [_call_json(item, following[item.call.call_key]) for item in waiting.calls]
        lost = [_lost_json(session, error) for session, error in waiting.unreadable.items()]
        for value in [*calls, *map(_run_json, waiting.stranded), *lost]:
            json_line(value)
    else:
        _show_inbox(waiting, following)
    return _EXIT_UNREADABLE if waiting.unreadable else 0


def _next_of(calls: Iterable[InboxItem]) -> dict[str, str]:
    """The next command for each call; the last one of a session goes on with it."""
    keys: dict[str, list[str]] = {}
    for item in calls:
        keys.setdefault(item.session, []).append(item.call.call_key)
    return {key: one for of in keys.values() for key, one in zip(of, resolve_commands(of), strict=True)}


def _show_inbox(waiting: Waiting, following: dict[str, str]) -> None:
    if not waiting.calls and not waiting.stranded and not waiting.unreadable:
        talk("the inbox is empty")
    rows = [
        (item.call.call_key[:8], item.call.tool, item.call.arguments, item.session, moment(item.call.since_ms))
        for item in waiting.calls
    ]
    if rows:
        table(("call", "tool", "arguments", "session", "since"), rows)
        talk(f"find out what happened, then, {VERDICTS}:")
        for one in following.values():
            talk(f"  {one}")
    for run in waiting.stranded:
        shown(f"run {run.run_id[:8]} of session {run.session} is open since {moment(run.since_ms)}, and nobody carries it")
    if waiting.stranded:
        talk(f"{command('resume')} goes on with what nobody carries")
    for session, error in waiting.unreadable.items():
        shown(one_line(f"session {session} cannot be read, so what waits in it is not known: {error}"))


@verb(
    "semel resolve 7f3a --happened --continue",
    'semel resolve 7f3a --happened --output receipt.json --note "found in the bank\'s list"',
    "semel resolve 7f3a --did-not-happen --continue --json",
)
@click.argument("call")
@click.option("--happened", "verdict", flag_value="happened", help="It took effect.")
@click.option("--did-not-happen", "verdict", flag_value="did_not_happen", help="It did not, and never will.")
@click.option("--abandon", "verdict", flag_value="abandoned", help="Nobody will find out; the model is told so.")
@click.option(
    "--output",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="With --happened: a file with the call's result, for the model.",
)
@click.option("--note", metavar="TEXT", help="A note for the log; the model does not see it.")
@click.option("--continue", "go_on", is_flag=True, help="Go on with the session in a new run, and wait for it.")
@run_options
def resolve(
    *, call: str, verdict: Verdict | None, output: Path | None, note: str | None, go_on: bool, options: RunOptions
) -> int:
    """Record what became of CALL, named by its key or the start of it.

    The verdict stands: the same one again changes nothing, another is refused. The model reads it as the result of the call.
    With --continue the exit code is that of the run that goes on.
    """
    if verdict is None:
        raise click.UsageError("say what happened: --happened, --did-not-happen or --abandon")
    if output is not None and verdict != "happened":
        raise click.UsageError("--output goes with --happened only; what did not happen has no result")
    text = None if output is None else _text_of(output)
    ground = ground_of(options.state)
    item = find_call(ground.store, call)
    if go_on:
        _warn_of_others(ground, item)

    async def begin(runtime: Runtime) -> RunHandle[Any] | None:
        return await runtime.resolve(item.call.call_key, verdict, output=text, note=note, go_on=go_on)

    done = carry(options, ground, [Errand(session=item.session, begin=begin)])
    if go_on or done.carried[0].error is not None:
        return finish(done, options)
    _resolved(item, verdict, options)
    return 0


def _warn_of_others(ground: Ground, item: InboxItem) -> None:
    """To go on while another call is unknown is allowed, and seldom what one means."""
    unknown = [call for call in view_of(ground.store, item.session).state.unknown if call.call_key != item.call.call_key]
    if unknown:
        names = ", ".join(f"{call.tool} ({call.call_key[:8]})" for call in unknown)
        talk(f"semel: the session goes on while the outcome of {names} is still unknown; the model is told that it is")


def _resolved(item: InboxItem, verdict: Verdict, options: RunOptions) -> None:
    if options.as_json:
        json_line({"session": item.session, "call_key": item.call.call_key, "tool": item.call.tool, "verdict": verdict})
    else:
        talk(
            f"{item.call.tool} ({item.call.call_key[:8]}): {verdict}. {command('send', '--session', item.session, '...')} goes on"
        )


def _text_of(path: Path) -> str:
    try:
        return read_small(path).decode("utf-8", "replace")
    except OSError as error:
        raise BadSettings(f"{path} cannot be read: {error.strerror}") from None


def _call_json(item: InboxItem, following: str) -> dict[str, JSON]:
    call = item.call
    return {
        "kind": "call",
        "call_key": call.call_key,
        "tool": call.tool,
        "arguments": _arguments(call.arguments),
        "session": item.session,
        "run_id": call.run_id,
        "step_id": call.step_id,
        "ordinal": call.ordinal,
        "agent": item.agent,
        "since_ms": call.since_ms,
        "next": following,
    }


def _run_json(run: Stranded) -> dict[str, JSON]:
    return {
        "kind": "run",
        "session": run.session,
        "run_id": run.run_id,
        "agent": run.agent,
        "since_ms": run.since_ms,
        "next": plain_command("resume", run.session),
    }


def _lost_json(session: str, error: SemelError) -> dict[str, JSON]:
    return {
        "kind": "session",
        "session": session,
        "error": {"code": error.code, "message": str(error)},
        "next": plain_command("verify", session),
    }


def _arguments(text: str) -> JSON:
    """What the tool received; a text that is no JSON stays a text."""
    try:
        return json.loads(text)
    except ValueError:
        return text
