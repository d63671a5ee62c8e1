"""`approve`, `deny`, `deliver`: what a call that waits is given, whoever runs its session."""

import sys

import click

from semel.faces.cli.carry import ground_of
from semel.faces.cli.endings import finish
from semel.faces.cli.options import RunOptions, run_options
from semel.faces.cli.owner import acknowledge, tell, watch_run
from semel.faces.cli.sending import resume_one
from semel.faces.cli.verbs import verb
from semel.faces.views import find_waiting_call
from semel.ports.control import Item

_note = click.option("--note", metavar="TEXT", help="A note for the log; the model does not see it.")
_by = click.option("--by", metavar="NAME", help="Who answers, for the log.")
_continue = click.option(
    "--continue", "go_on", is_flag=True, help="Go on with the run, and wait for it; the exit code is its own."
)


@verb(
    "semel approve 7f3a",
    "semel approve 7f3a --continue",
    """semel approve 7f3a --arguments '{"cents": 400}' --by anna --json""",
)
@click.argument("call")
@click.option("--arguments", metavar="JSON", help="Let it go with these arguments instead, which are recorded.")
@_note
@_by
@_continue
@run_options
def approve(*, call: str, arguments: str | None, note: str | None, by: str | None, go_on: bool, options: RunOptions) -> int:
    """Let CALL go, named by its key or the start of it, as `semel inbox` shows it.

    The answer is for exactly these arguments, is given once, and is durable when this returns. The same one again changes
    nothing, another is refused. Behind the last answer of its batch the run goes on where a process runs it; else `resume` does.
    """
    return _give(call, "approve", {"arguments": arguments, "note": note, "by": by}, "approved", options, go_on=go_on)


@verb(
    "semel deny 7f3a",
    'semel deny 7f3a --note "not before Monday" --continue',
)
@click.argument("call")
@_note
@_by
@_continue
@run_options
def deny(*, call: str, note: str | None, by: str | None, go_on: bool, options: RunOptions) -> int:
    """Refuse CALL, named by its key or the start of it; the model is told. Otherwise like `approve`."""
    return _give(call, "deny", {"note": note, "by": by}, "denied", options, go_on=go_on)


@verb(
    'semel deliver 7f3a "The parcel arrived."',
    "semel deliver order-7 - --continue <answer.json",
    'semel deliver 7f3a "The bank refused it." --error --event-id evt-19 --json',
)
@click.argument("call")
@click.argument("result", required=False)
@click.option("--error", "is_error", is_flag=True, help="The result is an error.")
@click.option("--event-id", metavar="ID", help="What the outside calls this delivery, for the log.")
@_continue
@run_options
def deliver(*, call: str, result: str | None, is_error: bool, event_id: str | None, go_on: bool, options: RunOptions) -> int:
    """Bring the RESULT (- reads it from stdin) that CALL owes, named by its key, the start of it, or its handle.

    A run that waited for it goes on where a process runs it; else `resume` does. The result of a deferred call is in the next
    request of the session. The same result again changes nothing, another is refused.
    """
    if result is None:
        raise click.UsageError("say what came: the result as a text, or - to read it from stdin")
    text = sys.stdin.read() if result == "-" else result
    args: Item = {"text": text, "is_error": is_error, "event_id": event_id}
    return _give(call, "deliver", args, "delivered", options, go_on=go_on)


def _give(call: str, what: str, args: Item, said: str, options: RunOptions, *, go_on: bool) -> int:
    ground = ground_of(options.state)
    found = find_waiting_call(ground.store, call)
    key, session = found.call.call_key, found.session
    told = tell(ground, options, session, what, {**args, "call": key}, carries=go_on)
    if go_on and told.run_id is not None:
        if told.done is not None:
            return finish(told.done, options)
        code = watch_run(ground, session, told.run_id, options)
        return resume_one(session, options, ground) if code is None else code
    words = f"{found.call.tool} ({key[:8]}): {said}"
    return acknowledge(told, ground, options, session, words, call_key=key, tool=found.call.tool)
