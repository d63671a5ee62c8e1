"""An MCP server as a source of tools: what a table of an agent file says of it, and what it lists (design 4, 6 and 11).

A tool is called `mcp__SERVER__TOOL`. Its effect is what the operator states; a server's own hints count only where the operator
trusts them; else it is `once`.
"""

import hashlib
import itertools
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypedDict, Unpack

import msgspec
from msgspec.structs import replace

from semel.adapters.system import SystemClock
from semel.adapters.tools.command import GRACE_SECONDS, child_environment, program_at
from semel.adapters.tools.declaration import EffectName, declare
from semel.adapters.tools.execution import Command
from semel.adapters.tools.mcp.connection import Connection
from semel.adapters.tools.mcp.handshake import Listed, connect
from semel.adapters.tools.mcp.server import RunServer
from semel.adapters.tools.processes import CALL_KEY_VARIABLE
from semel.core.rules import ask_rule
from semel.core.values import Effect, Frozen, ToolSpec, control_free
from semel.errors import BadAgent, CallNotSent
from semel.ports.source import ToolSource
from semel.ports.tool import ProcessMark
from semel.ports.world import Clock

STDERR_BYTES_MAX = 16 * 1024
MESSAGE_BYTES_MAX = 1024 * 1024
DESCRIPTION_CHARS_MAX = 8192
NAME_CHARS_MAX = 64
START_SECONDS, START_SECONDS_MAX = 30.0, 600.0

_SERVER_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]|_(?!_)){0,29}")
_numbers = itertools.count(1)


class McpDeclaration(Frozen, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A `[tools.NAME]` table of an agent file that has an `mcp`: the argument list that starts a server.

    `effect` is that of all its tools, `effects` that of some by the server's own names; `trust_hints` believes the server where
    neither says anything. `env` names further variables to pass on. `timeout` of a call and `start_timeout` are in seconds;
    `message_bytes_max` is the longest message that is read. `ask` has a person approve every call.
    """

    mcp: tuple[str, ...]
    trust_hints: bool = False
    effect: Effect | None = None
    effects: dict[str, Effect] = msgspec.field(default_factory=dict)
    interruptible: bool = True
    sequential: bool = False
    timeout: float | None = None
    env: tuple[str, ...] = ()
    ask: bool = False
    ask_expires: float | None = None
    start_timeout: float = START_SECONDS
    message_bytes_max: Annotated[int, msgspec.Meta(ge=64 * 1024, le=64 * 1024 * 1024)] = MESSAGE_BYTES_MAX

    def effect_of(self, tool: str, hinted: Effect) -> Effect:
        """The effect of one tool, by the server's own name; `hinted` is what it claims."""
        stated = self.effects.get(tool, self.effect)
        return stated if stated is not None else hinted if self.trust_hints else Effect.ONCE


class McpServer(ToolSource):
    """A declared MCP server."""

    def __init__(
        self,
        name: str,
        declaration: McpDeclaration,
        *,
        directory: Path,
        clock: Clock,
        grace_seconds: float = GRACE_SECONDS,
    ) -> None:
        """`directory`, that of the agent file, is where the server runs. Raises BadAgent."""
        if not _SERVER_NAME.fullmatch(name):
            raise BadAgent(f"tool {name!r}: an MCP server has a name of 1 to 30 letters, digits, '-' and single '_'.")
        if not declaration.mcp or not declaration.mcp[0]:
            raise BadAgent(f"tool {name!r}: mcp needs a program to run.")
        if not 0 < declaration.start_timeout <= START_SECONDS_MAX:
            raise BadAgent(f"tool {name!r}: start_timeout is in seconds, above 0 and at most {START_SECONDS_MAX:.0f}.")
        ask_rule(name, ask=declaration.ask, expires=declaration.ask_expires)
        self.name = name
        self.declaration = declaration
        self.clock = clock
        self._directory = directory.absolute()
        self.grace_seconds = grace_seconds
        self._declared(name, "", '{"type":"object"}', Effect.ONCE)  # what holds for no tool is refused before a run

    @property
    def module(self) -> str:
        """Its name in the log."""
        return f"mcp:{self.name}"

    async def offered(self) -> Sequence[ToolSpec]:
        """Start it, ask what it has, and end it again. Raises BadAgent that says what to do."""
        try:
            command = self.command(f"{self.name}:asked:{os.getpid()}:{next(_numbers)}")
            connection, listed = await self.connect(command)
        except CallNotSent as error:
            raise BadAgent(
                f"tools.{self.name}: the MCP server {self.declaration.mcp[0]!r} cannot be used: {error}. "
                f"Start it by hand to see why, and mind that it gets only the variables that `env` names"
            ) from error
        await connection.close()
        return [spec for _own_name, spec in self.specs(listed).values()]

    def open(self, specs: Sequence[ToolSpec], run_id: str | None) -> RunServer:
        """Serve a run; a server is started for its first call."""
        return RunServer(self, [self._today(spec) for spec in specs], run_id)

    async def connect(
        self, command: Command, started: Callable[[ProcessMark], None] = lambda _mark: None
    ) -> tuple[Connection, list[Listed]]:
        """See `handshake.connect`."""
        told = self.declaration
        return await connect(
            command,
            name=self.name,
            clock=self.clock,
            seconds=told.start_timeout,
            line_bytes_max=told.message_bytes_max,
            started=started,
        )

    def command(self, marker: str) -> Command:
        """What is started; `marker` is in the environment of all its processes, so that they are found again."""
        program, *arguments = self.declaration.mcp
        return Command(
            argv=[program_at(program, self._directory), *arguments],
            directory=self._directory,
            environment=child_environment(os.environ, self.declaration.env) | {CALL_KEY_VARIABLE: marker},
            call_key=marker,
            output_bytes_max=STDERR_BYTES_MAX,
            grace_seconds=self.grace_seconds,
            declared=self.declaration.env,
        )

    def specs(self, listed: Sequence[Listed]) -> Mapping[str, tuple[str, ToolSpec]]:
        """By the name for the model: the server's own name of a tool, and its spec. Raises BadAgent for what no model takes."""
        found: dict[str, tuple[str, ToolSpec]] = {}
        for tool in listed:
            name = offered_name(self.name, tool.name)
            if name in found:
                raise BadAgent(f"tools.{self.name}: the server lists {tool.name!r} twice, or two tools that come to be {name!r}.")
            found[name] = tool.name, self._spec(name, tool)
        unknown = sorted(self.declaration.effects.keys() - {own for own, _spec in found.values()})
        if unknown:
            raise BadAgent(f"tools.{self.name}.effects: the server has no tool {unknown[0]!r}; take it out.")
        return found

    def _spec(self, name: str, tool: Listed) -> ToolSpec:
        told, hints = self.declaration, tool.annotations
        hinted = Effect.ONCE
        if hints is not None:
            hinted = Effect.READ if hints.readOnlyHint else Effect.IDEMPOTENT if hints.idempotentHint else Effect.ONCE
        description = control_free((tool.description or "")[:DESCRIPTION_CHARS_MAX])
        schema = msgspec.json.encode({"type": "object", "properties": {}} | tool.inputSchema, order="deterministic").decode()
        return replace(self._declared(name, description, schema, told.effect_of(tool.name, hinted)), module=self.module)

    def _declared(self, name: str, description: str, schema: str, effect: Effect) -> ToolSpec:
        told = self.declaration
        return declare(
            name,
            description=description,
            parameters=schema,
            effect=effect,
            interruptible=told.interruptible,
            sequential=told.sequential,
            timeout=told.timeout,
            reconciles=False,
        )

    def _today(self, spec: ToolSpec) -> ToolSpec:
        """What today's table makes of a frozen tool: another effect is for the guard of a resume to refuse."""
        own_name = next((tool for tool in self.declaration.effects if offered_name(self.name, tool) == spec.name), "")
        effect = self.declaration.effect_of(own_name, spec.effect)
        return replace(spec, effect=effect, sequential=self.declaration.sequential)


class Declared(TypedDict, total=False):
    """What is declared of a server beside its name and its command."""

    trust_hints: bool
    effect: EffectName | None
    effects: Mapping[str, EffectName]
    interruptible: bool
    sequential: bool
    timeout: float | None
    env: Sequence[str]
    ask: bool
    ask_expires: float | None
    start_timeout: float
    message_bytes_max: int


def mcp_server(
    name: str, command: Sequence[str], *, directory: str | os.PathLike[str] = ".", **declared: Unpack[Declared]
) -> McpServer:
    """An MCP server for the `tools` of an agent: it is started by `command` in `directory`, and offers `mcp__NAME__TOOL`.

    `effect` is that of all its tools, `effects` that of some by the server's own names; without them a tool is `once`, unless
    `trust_hints` believes what the server says of it. The rest is as in `McpDeclaration`. Raises BadAgent.
    """
    return server_of_table(name, {"mcp": list(command), **declared}, directory=Path(directory), clock=SystemClock())


def server_of_table(name: str, table: Mapping[str, Any], *, directory: Path, clock: Clock) -> McpServer:
    """The server that a `[tools.NAME]` table declares. Raises BadAgent that names the field."""
    try:
        declaration = msgspec.convert(dict(table), McpDeclaration)
    except msgspec.ValidationError as error:
        raise BadAgent(f"tool {name!r}: {error}.") from None
    return McpServer(name, declaration, directory=directory, clock=clock)


def offered_name(server: str, tool: str) -> str:
    """The name for the model: letters that every provider takes, and 64 of them at most; a longer one ends in its digest."""
    name = f"mcp__{server}__" + re.sub(r"[^A-Za-z0-9_-]", "_", tool)
    if len(name) <= NAME_CHARS_MAX:
        return name
    return f"{name[: NAME_CHARS_MAX - 9]}_{hashlib.sha256(tool.encode('utf-8', 'replace')).hexdigest()[:8]}"
