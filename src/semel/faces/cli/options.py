"""The options that verbs share."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from semel.core.values import Frozen
from semel.faces.cli.remedies import keep_state


class RunOptions(Frozen, frozen=True, kw_only=True):
    """What every verb that carries a run takes."""

    agent: str | None
    model: str | None
    state: str | None
    status: Path | None
    as_json: bool
    stream: bool
    verbose: bool


def _kept(_ctx: click.Context, _option: click.Parameter, value: str | None) -> str | None:
    keep_state(value)
    return value


state_option = click.option(
    "--state", metavar="DIR", callback=_kept, help="The state directory; by default $SEMEL_STATE, else ./.semel."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON: one object a line for lists, else one last line.")

file_option = click.option(
    "--file",
    "files",
    metavar="PATH",
    multiple=True,
    help="Send this picture, document or text file along; may be given several times.",
)

_RUN_OPTIONS = (
    click.option("--agent", metavar="FILE", help="Agent file, or module:name of an Agent; by default ./agent.toml."),
    click.option("--model", metavar="NAME", help="Ask this model instead of the agent's; see `semel models`."),
    state_option,
    click.option(
        "--status", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False), help="Write the status document there too."
    ),
    json_option,
    click.option("--stream", is_flag=True, help="Print the answer's text as it arrives."),
    click.option("-v", "--verbose", is_flag=True, help="Print limits and records to stderr as they happen."),
)


def run_options(function: Callable[..., int]) -> Callable[..., int]:
    """Add the options of a run to a verb, which gets them as `options`."""

    @functools.wraps(function)
    def with_options(*args: Any, **given: Any) -> int:
        chosen = {name: given.pop(name) for name in RunOptions.__struct_fields__}
        options = RunOptions(**chosen)
        if options.stream and options.as_json:
            raise click.UsageError("--stream and --json exclude each other; follow the records with `semel tail --follow --json`")
        if options.status is not None and not options.status.absolute().parent.is_dir():
            raise click.BadParameter(f"{options.status.parent} is no directory", param_hint="--status")
        return function(*args, options=options, **given)

    for option in reversed(_RUN_OPTIONS):
        with_options = option(with_options)
    return with_options
