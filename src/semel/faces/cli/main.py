"""The command line: `semel VERB`. A verb's module is loaded when the verb is used, so that `semel --help` costs next to nothing.

Whatever goes wrong is one line on stderr, which says what happened and what to do, and an exit code of docs/status.md.
"""

import itertools
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import click

from semel.errors import InvariantBroken, SemelError, UnsupportedPlatform, UsageError
from semel.faces.cli.output import json_line, talk
from semel.faces.cli.remedies import with_state
from semel.faces.cli.verbs import write_examples

DEBUG_VARIABLE = "SEMEL_DEBUG"
EXIT_STDOUT_FAILED, EXIT_INTERRUPTED_BY_KEY, EXIT_PIPE_CLOSED = 1, 130, 141

COMMANDS = {
    "init": ("semel.faces.cli.init:init", "Write an agent file to start from."),
    "run": ("semel.faces.cli.run:run", "Run an agent on a prompt."),
    "send": ("semel.faces.cli.run:send", "Send a message to a session that exists."),
    "resume": ("semel.faces.cli.run:resume", "Carry on what a crash left open."),
    "ls": ("semel.faces.cli.look:ls", "List the sessions."),
    "show": ("semel.faces.cli.look:show", "Tell what happened in a session."),
    "tail": ("semel.faces.cli.tail:tail", "Print the records of a session, and follow them."),
    "explain": ("semel.faces.cli.look:explain", "Say why a session is in its state, and what to do."),
    "preview": ("semel.faces.cli.look:preview", "Print the body of the next request to the model."),
    "import": ("semel.faces.cli.histories:import_history", "Start a session from a conversation held elsewhere."),
    "verify": ("semel.faces.cli.verify:verify", "Check logs byte by byte."),
    "doctor": ("semel.faces.cli.keep:doctor", "Look at the state directory, and say what to do about it."),
    "reindex": ("semel.faces.cli.keep:reindex", "Derive the index of the sessions anew."),
    "repair": ("semel.faces.cli.keep:repair", "Cut a damaged log where its damage starts."),
    "backup": ("semel.faces.cli.keep:backup", "Copy every session into a new directory."),
    "restore": ("semel.faces.cli.keep:restore", "Put a backup in place of a state directory."),
    "inbox": ("semel.faces.cli.inbox:inbox", "List what waits for a person."),
    "resolve": ("semel.faces.cli.decide:resolve", "Say what became of a call whose outcome is unknown."),
    "models": ("semel.faces.cli.models:models", "List the providers of models."),
    "mock": ("semel.faces.cli.models:mock", "Serve a scripted model over HTTP."),
    "bench": ("semel.faces.cli.bench:bench", "Measure semel on this disk, beside the raw floor."),
    "demo": ("semel.faces.cli.demo:demo", "Pay an invoice, be killed twice, pay it once."),
}

EXAMPLES = (
    "semel init",
    'semel run "Refund order 17"',
    "semel resume",
    "semel inbox",
    "semel resolve 7f3a --happened --continue",
)


class PipeClosed(Exception):
    """Nobody reads stdout any more."""


class Verbs(click.Group):
    """The group of all verbs, by the table above."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The verbs in the order in which one meets them."""
        return [name for name, (home, _) in COMMANDS.items() if find_spec(home.partition(":")[0]) is not None]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Load the module of a verb."""
        if cmd_name not in self.list_commands(ctx):
            return None
        module, _, name = COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(import_module(module), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The verbs with their lines, without loading them."""
        with formatter.section("Verbs"):
            formatter.write_dl([(name, COMMANDS[name][1]) for name in self.list_commands(ctx)])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """What one does first."""
        write_examples(formatter, EXAMPLES)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the verb. A closed stdout is not for click, which would make it exit code 1."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise PipeClosed from error


def _say_version(ctx: click.Context, _option: click.Parameter, wanted: bool) -> None:
    if not wanted:
        return
    from importlib.metadata import PackageNotFoundError, version

    try:
        found = version("semel")
    except PackageNotFoundError:
        found = "from a source tree"
    click.echo(f"semel {found}")
    ctx.exit()


@click.group(cls=Verbs, no_args_is_help=True, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_say_version, help="Show the version and exit."
)
def semel() -> None:
    """Run LLM agents whose tools do real things. A crash neither repeats an action nor loses a word.

    The state is in ./.semel, $SEMEL_STATE, or --state. Exit codes: 0 completed, 1 failed, 2 usage, 3 a person must look,
    4 paused, 5 cancelled, 6 the log is damaged or newer, 7 the session is in use.
    """


def main(arguments: Sequence[str] | None = None) -> None:
    """The entry point: run a verb and exit."""
    _prepare_streams()
    try:
        code = _exit_code(sys.argv[1:] if arguments is None else arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        code = EXIT_PIPE_CLOSED
    except OSError as error:
        code = EXIT_STDOUT_FAILED
        talk(f"semel: stdout cannot be written: {error.strerror}. What is in the log stays there")
    if code in (EXIT_PIPE_CLOSED, EXIT_STDOUT_FAILED):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what the interpreter flushes at its end goes nowhere
    sys.exit(code)


def _prepare_streams() -> None:
    """Text that an encoding lacks is escaped; a stream that is closed is one that nobody reads."""
    for name in ("stdin", "stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "r" if name == "stdin" else "w", encoding="utf-8"))  # noqa: SIM115, PTH123  stays open
        else:
            stream.reconfigure(errors="backslashreplace")


def _refuse_windows() -> None:
    if sys.platform == "win32":
        raise UnsupportedPlatform("this is Windows, and semel runs on Linux and macOS; inside WSL it works")


def _exit_code(arguments: Sequence[str]) -> int:
    try:
        _refuse_windows()
        return int(semel.main(arguments, prog_name="semel", standalone_mode=False) or 0)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.ctx.get_help() if error.ctx else "", err=True)
        return 2
    except click.ClickException as error:
        return _refused(arguments, UsageError.code, f"{error.format_message().rstrip('.')}. {_help_of(error)}", error.exit_code)
    except SemelError as error:
        _trace()
        return _refused(arguments, error.code, with_state(str(error)), error.exit)
    except PipeClosed:
        return EXIT_PIPE_CLOSED
    except (click.Abort, KeyboardInterrupt):
        talk("semel: stopped. What was durable stays; nothing is lost")
        return EXIT_INTERRUPTED_BY_KEY
    except Exception as error:  # noqa: BLE001 - the last line of defence: no traceback for somebody who did not ask for one
        if isinstance(error, OSError):
            sys.stdout.flush()  # raises again if it was stdout that failed, which is no bug
        _trace()
        how = "" if os.environ.get(DEBUG_VARIABLE) else f" Set {DEBUG_VARIABLE}=1 for the traceback."
        what = f"an unexpected error, which is a bug in semel: {type(error).__name__}: {error}.{how}"
        return _refused(arguments, InvariantBroken.code, what, InvariantBroken.exit)


def _refused(arguments: Sequence[str], code: str, message: str, exit_code: int) -> int:
    """Say why on one line, and with --json as one object on stdout too. It may be that the options were not even parsed."""
    talk(f"semel: {message}")
    if "--json" in itertools.takewhile(lambda word: word != "--", arguments):
        json_line({"error": {"code": code, "message": message, "exit": exit_code}})
    return exit_code


def _help_of(error: click.ClickException) -> str:
    ctx = getattr(error, "ctx", None)
    return f"See `{ctx.command_path if ctx else 'semel'} --help`."


def _trace() -> None:
    if os.environ.get(DEBUG_VARIABLE):
        import traceback

        traceback.print_exc()
