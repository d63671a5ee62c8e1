"""`run`, `send`, `resume`: the verbs that carry runs."""

import sys
from typing import Any

import click

from semel.core.values import derived_id
from semel.engine.resume import Ground
from semel.faces.agent import Agent
from semel.faces.agentref import default_agent, find_agent, load_agent, with_model
from semel.faces.api import Runtime
from semel.faces.cli.carry import Carried, Errand, Round, carry, ground_of
from semel.faces.cli.endings import finish
from semel.faces.cli.options import RunOptions, file_option, run_options
from semel.faces.cli.output import talk
from semel.faces.cli.verbs import verb
from semel.faces.files import Attached, attached
from semel.faces.report import report_of
from semel.faces.run import RunHandle
from semel.faces.views import known_run, last_agent, view_of, waiting_of


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
    return _deliver(prompt, session, key, attached(files), options)


@verb(
    'semel send "And order 18 too" --session customer-42',
    "semel send - --session customer-42 --key mail-7 --json <mail.txt",
)
@click.argument("prompt")
@click.option("--session", metavar="ID", required=True, help="The session to send to; it must exist.")
@click.option("--key", metavar="KEY", help="Idempotency key: the same key again is the same message.")
@file_option
@run_options
def send(*, prompt: str, session: str, key: str | None, files: tuple[str, ...], options: RunOptions) -> int:
    """Send PROMPT (- reads it from stdin) to a session that exists, and print the answer.

    The agent is that of the session's last run, unless --agent names another. A run that a crash left open is carried to its
    end first.
    """
    view_of(ground_of(options.state).store, session)
    return _deliver(prompt, session, key, attached(files), options)


@verb(
    "semel resume customer-42",
    "semel resume",
    "semel resume customer-42 --agent support.toml --json",
)
@click.argument("session", required=False)
@run_options
def resume(*, session: str | None, options: RunOptions) -> int:
    """Carry on the open run of SESSION, or of every session whose process died.

    Nothing is repeated: a call that may have been sent is asked about, run again if it may be, or left for a person (exit 3).
    The agent is found where the log says, or given by --agent. Without an open run the last one is reported. For several
    sessions the exit code is 3 if one of them needs a person, else the highest.
    """
    ground = ground_of(options.state)
    if session is not None:
        view_of(ground.store, session)
        return finish(carry(options, ground, [_resumption(session)]), options)
    waiting = waiting_of(ground.store)
    lost = [Carried(session=name, error=error) for name, error in waiting.unreadable.items()]
    if not waiting.stranded and not lost:
        talk("nothing to resume")
        return 0
    done = carry(options, ground, [_resumption(item.session) for item in waiting.stranded])
    return finish(Round(carried=(*lost, *done.carried), stopped_by=done.stopped_by), options)


def session_of_key(key: str) -> str:
    """The session of a run that has a key and no session: the same for the same key, everywhere."""
    return f"k-{derived_id('session of key', key)[:20]}"


def _resumption(session: str) -> Errand:
    async def begin(runtime: Runtime) -> RunHandle[Any] | None:
        return await runtime.resume(session)

    return Errand(session=session, begin=begin)


def _deliver(prompt: str, session: str | None, key: str | None, beside: Attached, options: RunOptions) -> int:
    text = sys.stdin.read() if prompt == "-" else prompt
    if not text.strip():
        raise click.BadParameter("the message is empty", param_hint="PROMPT")
    ground = ground_of(options.state)
    known = session is not None and ground.store.exists(session)
    if known and session is not None and key is not None:
        run_id = known_run(ground.store, session, key, text, parts=beside.parts)
        report = None if run_id is None else report_of(ground.store, session, run_id)
        if report is not None and report.status.state == "running":
            return finish(carry(options, ground, [_resumption(session)]), options)
        if report is not None:
            return finish(Round(carried=(Carried(session=session, report=report),)), options)
    return _send_new(text, session, key, options, ground, beside=beside)


def _send_new(text: str, session: str | None, key: str | None, options: RunOptions, ground: Ground, *, beside: Attached) -> int:
    agent = _agent(session, options, ground)

    async def begin(runtime: Runtime) -> RunHandle[Any]:
        if session is not None and runtime.check_open_run(session) and (options.verbose or sys.stderr.isatty()):
            talk("the run that a dead process left open is carried to its end first")
        return await runtime.session(session, agent=agent).send(text, key=key, files=beside.files)

    return finish(carry(options, ground, [Errand(session=session, begin=begin)]), options)


def _agent(session: str | None, options: RunOptions, ground: Ground) -> Agent[Any]:
    """The agent of a new message: the one given, else the one that the session had last, else that of this directory."""
    if options.agent is not None:
        return with_model(load_agent(options.agent), options.model)
    had = last_agent(ground.store, session) if session is not None and ground.store.exists(session) else None
    return default_agent(options.model) if had is None else with_model(find_agent(had), options.model)
