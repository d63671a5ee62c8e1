"""`resolve`: the verdict of a person about a call whose outcome is unknown."""

from pathlib import Path
from typing import Any

import click

from semel.core.records import Verdict
from semel.engine.resume import Ground
from semel.errors import BadSettings
from semel.faces.api import Runtime
from semel.faces.cli.carry import Errand, carry, ground_of
from semel.faces.cli.endings import finish
from semel.faces.cli.options import RunOptions, run_options
from semel.faces.cli.output import json_line, talk
from semel.faces.cli.remedies import command
from semel.faces.cli.verbs import verb
from semel.faces.reading import read_small
from semel.faces.run import RunHandle
from semel.faces.views import InboxItem, find_call, view_of


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
