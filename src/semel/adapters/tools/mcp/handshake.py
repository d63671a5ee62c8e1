"""How a conversation with a server begins: its version is agreed on, and it says which tools it has."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec

from semel.adapters.tools.execution import Command
from semel.adapters.tools.mcp.connection import Connection
from semel.adapters.tools.mcp.messages import KNOWN_VERSIONS, PROTOCOL_VERSION
from semel.adapters.tools.mcp.process import ServerProcess
from semel.adapters.tools.waits import undisturbed, within
from semel.core.outcomes import describe
from semel.core.values import JSON
from semel.errors import CallNotSent
from semel.ports.tool import ProcessMark
from semel.ports.world import Clock

PAGES_MAX, TOOLS_MAX = 50, 500


class Hints(msgspec.Struct, frozen=True):
    """What a server claims of a tool."""

    readOnlyHint: bool = False  # noqa: N815 - the protocol's own name
    idempotentHint: bool = False  # noqa: N815 - the protocol's own name


class Listed(msgspec.Struct, frozen=True):
    """A tool as the server lists it."""

    name: str
    inputSchema: dict[str, Any]  # noqa: N815 - the protocol's own name
    description: str | None = None
    annotations: Hints | None = None


class _Page(msgspec.Struct, frozen=True):
    tools: list[Listed]
    nextCursor: str | None = None  # noqa: N815 - the protocol's own name


class _Greeting(msgspec.Struct, frozen=True):
    protocolVersion: str  # noqa: N815 - the protocol's own name


async def connect(
    command: Command,
    *,
    name: str,
    clock: Clock,
    seconds: float,
    line_bytes_max: int,
    started: Callable[[ProcessMark], None] = lambda _mark: None,
) -> tuple[Connection, list[Listed]]:
    """Start a server and agree with it; what it lists is ready then.

    `started` is told at once how to find its process again. No call has been sent when this fails: it raises CallNotSent, also
    where it is cancelled, and leaves no process running.
    """
    process = ServerProcess(command, clock)
    connection = Connection(name, process, clock, line_bytes_max=line_bytes_max)
    try:
        started(process.mark)
        return connection, await in_time(_agree(connection), connection, seconds, clock)
    except BaseException as error:
        await undisturbed(connection.close(0))
        if isinstance(error, CallNotSent):
            raise
        raise CallNotSent(f"it was started and then ended again: {describe(error)}") from error


async def in_time(
    asked: "Coroutine[None, None, list[Listed]]", connection: Connection, seconds: float, clock: Clock
) -> list[Listed]:
    """What the server says of its tools. Raises CallNotSent if it does not within `seconds`."""
    asking = asyncio.ensure_future(asked)
    try:
        await within(seconds, [asking], clock)
        if not asking.done():
            raise CallNotSent(f"it did not say within {seconds:g} s which tools it has{connection.dropped()}")
        return asking.result()
    finally:
        asking.cancel()


async def list_tools(connection: Connection) -> list[Listed]:
    """What the server offers now. Raises CallNotSent."""
    connection.list_changed = False
    found: list[Listed] = []
    params: dict[str, JSON] = {}
    for _ in range(PAGES_MAX):
        page = _read(await connection.ask("tools/list", params), _Page, "tools/list")
        found += page.tools
        if len(found) > TOOLS_MAX:
            raise CallNotSent(f"it lists more than {TOOLS_MAX} tools")
        if not page.nextCursor:
            return found
        params = {"cursor": page.nextCursor}
    raise CallNotSent(f"its list of tools has no end within {PAGES_MAX} pages")


async def _agree(connection: Connection) -> list[Listed]:
    client: JSON = {"name": "semel", "version": "0"}
    params: JSON = {"protocolVersion": PROTOCOL_VERSION, "capabilities": {}, "clientInfo": client}
    greeting = _read(await connection.ask("initialize", params), _Greeting, "initialize")
    if greeting.protocolVersion not in KNOWN_VERSIONS:
        raise CallNotSent(f"it speaks MCP of {greeting.protocolVersion[:40]}; known are {', '.join(KNOWN_VERSIONS)}")
    connection.tell("notifications/initialized")
    return await list_tools(connection)


def _read(result: msgspec.Raw, kind: type[Any], method: str) -> Any:
    try:
        return msgspec.json.decode(result, type=kind)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise CallNotSent(f"its answer to {method!r} is not what MCP says: {describe(error)}") from None
