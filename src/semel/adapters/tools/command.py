"""A command as a tool: an argument list, never a shell (design 6 and 11; B37, A14-A16).

The child has its own session and process group, a short list of environment variables, and no descriptors but its three.
Its exit code is its answer. A signal, or a cancel, leaves the outcome unknown and no process of the call running.
"""

import os
import re
import shlex
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec

from semel.adapters.tools.declaration import declare
from semel.adapters.tools.execution import Command, Ended, execute
from semel.adapters.tools.processes import CALL_KEY_VARIABLE, end_processes
from semel.core.rules import ask_rule
from semel.core.values import JSON, Effect, Frozen, ToolSpec, printable
from semel.errors import BadAgent, CallNotSent, InvariantBroken, OutcomeUnknown, ToolFailed
from semel.ports.tool import Call, Happened, Never, ProcessMark, Reconciled, StillUnknown, ToolPort
from semel.ports.world import Clock

GRACE_SECONDS = 2.0  # between asking a process to end and killing it
OUTPUT_BYTES_MAX = 64 * 1024

_PASSED_VARIABLES = frozenset({"HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "LANG", "TMPDIR"})
_ARGUMENT_TYPES = frozenset({"string", "integer", "number", "boolean"})
_PLACEHOLDER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")
_CALL_KEY = "call_key"


class CommandDeclaration(Frozen, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A `[tools.NAME]` table of an agent file that has a `command`.

    `command` and `reconcile` are argument lists; `{name}` in an item stands for an argument, `{call_key}` for the call's
    key. `args` gives each argument its type, or its JSON Schema; one with a `default` may be left out. `env` names further
    variables to pass on. `timeout` is in seconds, `output_bytes_max` bounds what is kept of the output. `ask` is true, or a
    condition over the arguments, where a person has to approve a call first; after `ask_expires` seconds silence means no.
    """

    command: tuple[str, ...]
    args: dict[str, str | dict[str, Any]] = msgspec.field(default_factory=dict)
    description: str | None = None
    effect: Effect = Effect.ONCE
    interruptible: bool = True
    sequential: bool = False
    timeout: float | None = None
    reconcile: tuple[str, ...] | None = None
    env: tuple[str, ...] = ()
    output_bytes_max: Annotated[int, msgspec.Meta(ge=1024, le=16 * 1024 * 1024)] = OUTPUT_BYTES_MAX
    ask: bool | str | None = None
    ask_expires: float | None = None


def answer(ended: Ended) -> str:
    """The text for the model. Raises ToolFailed for an exit code other than 0, OutcomeUnknown for a signal (design 6)."""
    if ended.code < 0:
        said = f"; it had said: {printable(ended.stderr[-300:], limit=300)}" if ended.stderr.strip() else ""
        raise OutcomeUnknown(f"the command was ended by {_signal_name(-ended.code)}{said}")
    held = "[a background process holds the output open; what it writes from now on is lost]" if ended.held else ""
    errors = f"[stderr]\n{ended.stderr}" if ended.stderr.strip() else ""
    text = "\n".join(part for part in (ended.stdout, errors, held) if part)
    if ended.code:
        raise ToolFailed(f"the command ended with exit code {ended.code}", output=text)
    return text


def verdict(ended: Ended) -> Reconciled:
    """What a `reconcile` command found out: exit code 0 is happened, 1 is never, all else is unknown.

    A 1 with words on stderr is unknown too: so ends a script that broke, and `never` must be a certain answer.
    """
    if ended.code == 0:
        return Happened(output=ended.stdout)
    return Never() if ended.code == 1 and not ended.stderr.strip() else StillUnknown()


class CommandTool(ToolPort):
    """A declared command as a tool."""

    def __init__(
        self,
        name: str,
        declaration: CommandDeclaration,
        *,
        directory: Path,
        clock: Clock,
        grace_seconds: float = GRACE_SECONDS,
    ) -> None:
        """`directory`, that of the agent file, is where the command runs and what a relative path in it starts from."""
        self._command = _checked_argv(name, declaration.command, declaration)
        self._reconcile = None if declaration.reconcile is None else _checked_argv(name, declaration.reconcile, declaration)
        self._declaration = declaration
        self._defaults = {
            argument: schema["default"]
            for argument, schema in declaration.args.items()
            if isinstance(schema, dict) and "default" in schema
        }
        self._directory = directory.absolute()
        self._clock = clock
        self._grace_seconds = grace_seconds
        self.ask_rule = ask_rule(name, ask=declaration.ask, expires=declaration.ask_expires)
        self._spec = declare(
            name,
            description=f"Runs {Path(declaration.command[0]).name}"
            if declaration.description is None
            else declaration.description,
            parameters=_schema(name, declaration),
            effect=declaration.effect,
            interruptible=declaration.interruptible,
            sequential=declaration.sequential,
            timeout=declaration.timeout,
            reconciles=declaration.reconcile is not None,
        )

    @property
    def spec(self) -> ToolSpec:
        """What the model sees and recovery knows."""
        return self._spec

    async def run(self, arguments: dict[str, JSON], call: Call[Any]) -> JSON:
        """Run the command. Raises CallNotSent if it could not be started, and what `answer` raises."""
        return answer(await self._execute(self._command, arguments, call.key, call.spawned))

    async def reconcile(self, call: Call[Any]) -> Reconciled:
        """Run the declared reconcile command; one that cannot be started has found out nothing."""
        if self._reconcile is None:
            raise InvariantBroken(f"tool {self._spec.name!r} was asked to reconcile and declares nothing for it")
        arguments = call.arguments if isinstance(call.arguments, dict) else {}
        try:
            return verdict(await self._execute(self._reconcile, arguments, call.key, lambda _mark: None))
        except CallNotSent:
            return StillUnknown()

    async def end_leftovers(self, mark: ProcessMark) -> bool:
        """End what a dead runtime left running of a call; True if anything was."""
        return await end_processes(mark, clock=self._clock, grace_seconds=self._grace_seconds)

    def reconcile_command(self, arguments: Mapping[str, JSON], key: str) -> str | None:
        """The declared reconcile command for one call, as a line for a shell; None where none is declared."""
        if self._reconcile is None:
            return None
        argv = shlex.join(self._filled(self._reconcile, arguments, key))
        return f"cd {shlex.quote(str(self._directory))} && {CALL_KEY_VARIABLE}={shlex.quote(key)} {argv}"

    def _filled(self, argv: Sequence[str], arguments: Mapping[str, JSON], key: str) -> list[str]:
        words = {name: _word(value) for name, value in (self._defaults | dict(arguments)).items()} | {_CALL_KEY: key}
        filled = [_PLACEHOLDER.sub(lambda match: words.get(match[1], match[0]), item) for item in argv]
        return [program_at(filled[0], self._directory), *filled[1:]]

    async def _execute(
        self, argv: Sequence[str], arguments: Mapping[str, JSON], key: str, spawned: Callable[[ProcessMark], None]
    ) -> Ended:
        command = Command(
            argv=self._filled(argv, arguments, key),
            directory=self._directory,
            environment=child_environment(os.environ, self._declaration.env) | {CALL_KEY_VARIABLE: key},
            call_key=key,
            output_bytes_max=self._declaration.output_bytes_max,
            grace_seconds=self._grace_seconds,
        )
        return await execute(command, clock=self._clock, spawned=spawned)


def command_tool(name: str, table: Mapping[str, Any], *, directory: Path, clock: Clock) -> CommandTool:
    """The tool that a `[tools.NAME]` table declares. Raises BadAgent that names the field."""
    try:
        declaration = msgspec.convert(dict(table), CommandDeclaration)
    except msgspec.ValidationError as error:
        raise BadAgent(f"tool {name!r}: {error}.") from None
    return CommandTool(name, declaration, directory=directory, clock=clock)


def child_environment(parent: Mapping[str, str], declared: Sequence[str]) -> dict[str, str]:
    """What a child gets of our environment: the variables that every program needs, and the declared ones (A14).

    A value that starts with "()" is a shell function in disguise and is left out.
    """
    passed = _PASSED_VARIABLES | set(declared)
    return {
        name: value for name, value in parent.items() if (name in passed or name.startswith("LC_")) and not value.startswith("()")
    }


def _checked_argv(name: str, argv: Sequence[str], declaration: CommandDeclaration) -> Sequence[str]:
    if not argv or not argv[0]:
        raise BadAgent(f"tool {name!r}: a command needs a program to run.")
    if _PLACEHOLDER.search(argv[0]):
        raise BadAgent(f"tool {name!r}: the program {argv[0]!r} cannot depend on an argument.")
    known = {*declaration.args, _CALL_KEY}
    for placeholder in _PLACEHOLDER.findall(" ".join(argv)):
        if placeholder not in known:
            raise BadAgent(f"tool {name!r}: {{{placeholder}}} is not an argument; there are {', '.join(sorted(known))}.")
    return argv


def _schema(name: str, declaration: CommandDeclaration) -> str:
    used = set(_PLACEHOLDER.findall(" ".join(declaration.command)))
    properties: dict[str, JSON] = {}
    for argument, kind in declaration.args.items():
        if argument == _CALL_KEY or argument not in used:
            why = "is the call's own key" if argument == _CALL_KEY else "is not used in the command"
            raise BadAgent(f"tool {name!r}: argument {argument!r} {why}.")
        if isinstance(kind, str) and kind not in _ARGUMENT_TYPES:
            raise BadAgent(f"tool {name!r}: {argument!r} is of {', '.join(sorted(_ARGUMENT_TYPES))} or a schema, not {kind!r}.")
        properties[argument] = {"type": kind} if isinstance(kind, str) else kind
    required = [argument for argument, schema in properties.items() if "default" not in schema]
    schema = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    return msgspec.json.encode(schema, order="deterministic").decode()


def program_at(path: str, directory: Path) -> str:
    """A path with a slash starts from the agent file's directory; a bare name is looked up on the child's PATH."""
    return str(directory / path) if "/" in path else path


def _word(value: JSON) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"
