"""The tools of one MCP server for one run, and the process that serves them: started for the first call, ended with the run.

A call goes out only if the server still offers its tool as the run was frozen with it (A17). Once a server is lost or was given
up, the next call starts another.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from semel.adapters.tools.mcp.connection import Connection
from semel.adapters.tools.mcp.content import shown
from semel.adapters.tools.mcp.handshake import Listed, in_time, list_tools
from semel.adapters.tools.processes import end_processes
from semel.adapters.tools.waits import undisturbed
from semel.core.outcomes import describe
from semel.core.rules import ask_rule
from semel.core.values import JSON, ToolSpec
from semel.errors import BadAgent, CallNotSent, InvariantBroken
from semel.ports.source import OpenSource
from semel.ports.tool import Call, ProcessMark, Reconciled, ToolPort

if TYPE_CHECKING:
    from semel.adapters.tools.mcp.source import McpServer


class RunServer(OpenSource):
    """What serves one run."""

    def __init__(self, source: "McpServer", specs: Sequence[ToolSpec], run_id: str | None) -> None:
        """Starts nothing. `run_id` is that of a run which a dead process may have left a server of."""
        self._source = source
        self._run_id = run_id
        self._leftovers_possible = run_id is not None
        self._door = asyncio.Lock()
        self._connection: Connection | None = None
        self._started_for: str | None = None
        self._names: Mapping[str, tuple[str, ToolSpec]] = {}
        declared = source.declaration
        self._tools = {spec.name: McpTool(self, spec, ask=declared.ask, ask_expires=declared.ask_expires) for spec in specs}

    @property
    def tools(self) -> Mapping[str, ToolPort]:
        """By their names for the model."""
        return self._tools

    async def call(self, spec: ToolSpec, arguments: dict[str, JSON], call: Call[Any]) -> msgspec.Raw:
        """Send one call. Raises CallNotSent while nothing of it has left, and what `Connection.call` raises."""
        try:
            async with self._door:
                connection = await self._connected(call)
                own_name = self._own_name(spec)
                self._note(connection, call)
        except asyncio.CancelledError:
            raise CallNotSent(f"it was cancelled before the MCP server {self._source.name} took it") from None
        except BadAgent as error:
            raise CallNotSent(str(error)) from error
        return await connection.call(own_name, arguments, call.progress)

    async def close(self) -> None:
        """End the server, if one runs, and what a dead runtime may have left of this run; idempotent."""
        if self._connection is not None:
            await self._connection.close()
        elif self._run_id is not None:
            await self._end_left_of(self._run_id)

    async def end_leftovers(self, mark: ProcessMark) -> bool:
        """End what runs of this server for this run, here or as a dead runtime left it."""
        if self._connection is not None:
            running = not self._connection.process.exited.done()
            await self._connection.close(0)
            return running
        return await self._ended(mark if self._run_id is None else replace(mark, call_key=self._marker(self._run_id)))

    async def _connected(self, call: Call[Any]) -> Connection:
        """The server that takes the next call. Whoever waits here for another to start one is told of its failure."""
        connection = self._connection
        if connection is not None and not connection.closing:
            if connection.list_changed:
                await self._look_again(connection)
            return connection
        if connection is not None:
            await connection.gone()
        marker = self._marker(call.run_id)
        if self._run_id is not None:
            await self._end_left_of(self._run_id)
        connection, listed = await self._start(marker, call)
        try:
            self._names = self._source.specs(listed)
        except BadAgent:
            await undisturbed(connection.close(0))
            raise
        self._connection, self._started_for = connection, call.key
        return connection

    async def _look_again(self, connection: Connection) -> None:
        """Learn what the server offers now. As long as that is not known, no call goes out."""
        self._names = {}
        seconds, clock = self._source.declaration.start_timeout, self._source.clock
        try:
            self._names = self._source.specs(await in_time(list_tools(connection), connection, seconds, clock))
        finally:
            connection.list_changed = connection.list_changed or not self._names

    async def _end_left_of(self, run_id: str) -> None:
        """A server that had no call when its runtime died is in no record; the mark of its run finds it, once."""
        if self._leftovers_possible:
            self._leftovers_possible = False
            await self._ended(ProcessMark(pid=0, started=0, boot="", call_key=self._marker(run_id)))

    async def _ended(self, mark: ProcessMark) -> bool:
        return await end_processes(mark, clock=self._source.clock, grace_seconds=self._source.grace_seconds)

    async def _start(self, marker: str, call: Call[Any]) -> tuple[Connection, list[Listed]]:
        try:
            return await self._source.connect(self._source.command(marker), started=call.spawned)
        except CallNotSent as error:
            raise CallNotSent(f"the MCP server {self._source.name} cannot be used: {error}") from error

    def _note(self, connection: Connection, call: Call[Any]) -> None:
        """Which process serves the call; the one that started it has said so at once."""
        if self._started_for == call.key:
            return
        try:
            call.spawned(connection.process.mark)
        except Exception as error:
            raise CallNotSent(f"the process that serves it cannot be noted: {describe(error)}") from error

    def _own_name(self, spec: ToolSpec) -> str:
        """The server's own name of a tool that is offered as it was frozen. Raises CallNotSent for any other."""
        own_name, now = self._names.get(spec.name, ("", None))
        told = f"the MCP server {self._source.name}"
        if now is None:
            raise CallNotSent(f"{told} does not offer {spec.name} any more; what it offers now is for the next run")
        if (now.parameters, now.effect) != (spec.parameters, spec.effect):
            what = "schema" if now.parameters != spec.parameters else "effect"
            raise CallNotSent(f"{told} changed the {what} of {spec.name} since this run began; the change is for the next run")
        return own_name

    def _marker(self, run_id: str) -> str:
        return f"{run_id}:{self._source.name}"


class McpTool(ToolPort):
    """One tool of a server."""

    def __init__(self, server: RunServer, spec: ToolSpec, *, ask: bool, ask_expires: float | None) -> None:
        """`server` sends its calls."""
        self._server = server
        self._spec = spec
        self.ask_rule = ask_rule(spec.name, ask=ask, expires=ask_expires)

    @property
    def spec(self) -> ToolSpec:
        """What the model sees and recovery knows."""
        return self._spec

    async def run(self, arguments: dict[str, JSON], call: Call[Any]) -> JSON:
        """Call it. Raises ToolFailed for an error that the server reports, and what `RunServer.call` raises."""
        return shown(await self._server.call(self._spec, arguments, call))

    async def reconcile(self, call: Call[Any]) -> Reconciled:
        """MCP has no question for what became of a call."""
        raise InvariantBroken(f"tool {self._spec.name!r} was asked to reconcile call {call.key} and declares nothing for it")

    async def end_leftovers(self, mark: ProcessMark) -> bool:
        """End the server of a dead runtime; True if one ran."""
        return await self._server.end_leftovers(mark)
