"""`run`, `send`, `resume`: the verbs that carry runs."""

import click

from semel.core.records import Delivery
from semel.core.values import derived_id
from semel.faces.cli.carry import Carried, Round, carry, ground_of
from semel.faces.cli.endings import finish
from semel.faces.cli.options import RunOptions, file_option, run_options
from semel.faces.cli.output import talk
from semel.faces.cli.sending import deliver, resume_one, resumption
from semel.faces.cli.verbs import verb
from semel.faces.views import view_of, waiting_of

DELIVERIES: dict[str, Delivery] = {"queue": "queue", "follow-up": "follow_up", "interrupt": "interrupt"}


@verb(
    'semel run "Refund order 17"',
    'semel run "Say hi" --model openai:gpt-5',
    'semel run "Refund order 17" --agent support.toml --session customer-42 --key ticket-99 --json',
)
@click.argument("prompt")
@click.option("--session", metavar="ID", help="The session to run in; made if it is new. By default a fresh one.")
@click.option("--key", metavar="KEY", help="Idempotency key: the same key again is the same run, in whatever state it is.")
@file_option
@run_options
def run(*, prompt: str, session: str | None, key: str | None, files: tuple[str, ...], options: RunOptions) -> int:
    """Run an agent on PROMPT (- reads it from stdin) and print its answer.

    The agent is that of the session's last run, else ./agent.toml, else, with --model, one without tools. With --key and no
    --session the session derives from the key, so that a command that is tried again resumes an open run, or prints what a
    finished one came to.
    """
    if key is not None and session is None:
        session = session_of_key(key)
    return deliver(prompt, session, key, options, files=files)


@verb(
    'semel send "And order 18 too" --session customer-42',
    'semel send "Stop, do order 19 first" --session customer-42 --delivery interrupt',
    "semel send - --session customer-42 --key mail-7 --json <mail.txt",
)
@click.argument("prompt")
@click.option("--session", metavar="ID", required=True, help="The session to send to; it must exist.")
@click.option("--key", metavar="KEY", help="Idempotency key: the same key again is the same message.")
@click.option(
    "--delivery",
    type=click.Choice(list(DELIVERIES)),
    help="While a run is open: start one behind it, tell that run when it would stop, or cancel it and start instead.",
)
@file_option
@run_options
def send(*, prompt: str, session: str, key: str | None, delivery: str | None, files: tuple[str, ...], options: RunOptions) -> int:
    """Send PROMPT (- reads it from stdin) to a session that exists, and print the answer.

    The agent is that of the session's last run, unless --agent names another. A run that a crash left open is carried to its
    end first. Where another process runs the session, that takes the message; this command waits for the run that answers it,
    and goes on with it if that process ends. While a run is open a message without --delivery is refused.
    """
    view_of(ground_of(options.state).store, session)
    chosen = None if delivery is None else DELIVERIES[delivery]
    return deliver(prompt, session, key, options, chosen, files=files)


@verb(
    "semel resume customer-42",
    "semel resume",
    "semel resume customer-42 --agent support.toml --json",
)
@click.argument("session", required=False)
@click.option("--continue", "go_on", is_flag=True, help="Start the next message of its queue although a call is unknown.")
@run_options
def resume(*, session: str | None, go_on: bool, options: RunOptions) -> int:
    """Carry on the open run of SESSION, or of every session whose process died.

    Nothing is repeated: a call that may have been sent is asked about, run again if it may be, or left for a person (exit 3).
    The agent is found where the log says, or given by --agent. Without an open run the next message of its queue starts one,
    else the last one is reported. For several sessions the exit code is 3 if one of them needs a person, else the highest.
    """
    if go_on and session is None:
        raise click.UsageError("--continue goes with one SESSION")
    ground = ground_of(options.state)
    if session is not None:
        view_of(ground.store, session)
        return resume_one(session, options, ground, go_on=go_on)
    waiting = waiting_of(ground.store)
    lost = [Carried(session=name, error=error) for name, error in waiting.unreadable.items()]
    if not waiting.stranded and not lost:
        talk("nothing to resume")
        return 0
    done = carry(options, ground, [resumption(item.session) for item in waiting.stranded])
    return finish(Round(carried=(*lost, *done.carried), stopped_by=done.stopped_by), options)


def session_of_key(key: str) -> str:
    """The session of a run that has a key and no session: the same for the same key, everywhere."""
    return f"k-{derived_id('session of key', key)[:20]}"
