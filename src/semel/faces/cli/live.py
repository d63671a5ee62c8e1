"""`steer`, `cancel`, `stop`, `retract`: verbs on a session, whoever runs it."""

import click

from semel.engine.resume import Ground
from semel.faces.cli.carry import ground_of
from semel.faces.cli.endings import ending_line, finish
from semel.faces.cli.options import RunOptions, run_options
from semel.faces.cli.output import talk
from semel.faces.cli.owner import Told, acknowledge, tell
from semel.faces.cli.sending import text_of
from semel.faces.cli.verbs import verb
from semel.faces.views import view_of


@verb(
    'semel steer "Use the other account" --session customer-42',
    'semel steer "Use the other account" --session customer-42 --key note-1 --json',
)
@click.argument("prompt")
@click.option("--session", metavar="ID", required=True, help="The session whose run is told; it must exist.")
@click.option("--key", metavar="KEY", help="Idempotency key: the same key again is the same message.")
@run_options
def steer(*, prompt: str, session: str, key: str | None, options: RunOptions) -> int:
    """Tell the open run of a session PROMPT (- reads it from stdin): its next request has it.

    Answered once that is durable; nobody waits for the run. Where no process runs the session it is recorded, and `resume` goes
    on. Without an open run it starts one, which this command waits for.
    """
    text, ground = text_of(prompt), _known(session, options)
    fixed = ground.ids.fresh() if key is None else key
    told = tell(ground, options, session, "send", {"text": text, "key": fixed, "delivery": "steer"})
    if told.done is not None and told.ended is not None:
        return finish(told.done, options)
    return acknowledge(told, ground, options, session, "told", key=fixed)


_POINTS = ("now", "step-boundary")


def _point(_ctx: click.Context, _param: click.Parameter, value: str) -> str:
    """When a run is to end, as the log has it. `step_boundary`, as Python writes it, is `step-boundary`."""
    if value.replace("_", "-") not in _POINTS:
        raise click.BadParameter(f"{value!r} is not one of {', '.join(map(repr, _POINTS))}.")
    return value.replace("-", "_")


@verb(
    "semel cancel customer-42",
    "semel cancel customer-42 --at step-boundary",
    "semel cancel customer-42 --json",
)
@click.argument("session")
@click.option(
    "--at",
    callback=_point,
    metavar="[now|step-boundary]",
    default="now",
    help="Now, or when its step and the calls of it are done.",
)
@click.option("--by", metavar="NAME", help="Who asks, for the log.")
@run_options
def cancel(*, session: str, at: str, by: str | None, options: RunOptions) -> int:
    """End the open run of SESSION. Answered once that is durable; without an open run there is nothing to do.

    Calls whose tools allow it are cut short, others are waited for. Where no process runs the session, it is closed out here.
    """
    ground = _known(session, options)
    told = tell(ground, options, session, "cancel", {"at": at, "by": by}, carries=True)
    return _ended(told, ground, options, session, "cancel")


@verb("semel stop customer-42", "semel stop customer-42 --json")
@click.argument("session")
@click.option("--by", metavar="NAME", help="Who asks, for the log.")
@run_options
def stop(*, session: str, by: str | None, options: RunOptions) -> int:
    """End the open run of SESSION as at a limit: behind its turn, or at once where it waits.

    Answered once that is durable: a resume ends the run where its process dies before.
    """
    ground = _known(session, options)
    told = tell(ground, options, session, "stop", {"by": by}, carries=True)
    return _ended(told, ground, options, session, "stop")


@verb("semel retract mail-7 --session customer-42")
@click.argument("key")
@click.option("--session", metavar="ID", required=True, help="The session in whose queue the message waits.")
@run_options
def retract(*, key: str, session: str, options: RunOptions) -> int:
    """Take back the message of KEY that waits in the queue of a session. Its key is spent."""
    ground = _known(session, options)
    told = tell(ground, options, session, "retract", {"key": key})
    return acknowledge(told, ground, options, session, "taken back", key=key)


def _known(session: str, options: RunOptions) -> Ground:
    """Raises UnknownSession, and what reading the log raises."""
    ground = ground_of(options.state)
    view_of(ground.store, session)
    return ground


def _ended(told: Told, ground: Ground, options: RunOptions, session: str, what: str) -> int:
    """Say what was asked of the run, and how it ended where this process ended it."""
    if told.run_id is None:
        return acknowledge(told, ground, options, session, "no run is open")
    if told.ended is not None and not options.as_json:
        talk(ending_line(told.ended.status))
        return 0
    return acknowledge(told, ground, options, session, f"{what} asked for run {told.run_id[:8]}")
