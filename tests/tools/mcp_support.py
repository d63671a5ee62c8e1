"""Shared by the tests of MCP: a declared server of a mode, and a run of an agent that has it."""

import dataclasses
import os
import sys
from pathlib import Path
from typing import Any

from tool_support import DATA, SystemClock, a_call

from semel import Agent, Runtime
from semel.adapters.tools.mcp.source import McpDeclaration, McpServer
from semel.core.values import ToolMessage
from semel.ports.tool import Call
from semel.testing.ground import memory_ground
from tests.core.said import said_in
from tests.engine.fakes import script_file
from tests.support.frames import frames_of

GRACE_SECONDS = 0.1
ACT = "mcp__box__act"
RUN = f"r{os.getpid()}"  # that of the calls which belong to no run; no other run of the tests has it
MARK = f"{RUN}:box"


def server(mode: str, *notes: object, name: str = "box", **declared: Any) -> McpServer:
    """The hostile server of that mode, as an agent file would declare it."""
    argv = (sys.executable, "-I", "-S", "mcp_hostile.py", mode, *map(str, notes))
    declaration = McpDeclaration(mcp=argv, **declared)
    return McpServer(name, declaration, directory=DATA, clock=SystemClock(), grace_seconds=GRACE_SECONDS)


def agent_of(place: Path, found: McpServer, *answers: dict[str, Any]) -> Agent[str]:
    """An agent with that server alone; without other answers it calls `act` once."""
    script = script_file(place / "m.json", *(answers or ({"calls": [{"name": ACT, "args": {}}]}, {"text": "done"})))
    return Agent("a", model=script, tools=[found])


async def run_of(place: Path, found: McpServer, *answers: dict[str, Any]) -> tuple[Any, list[str], Any]:
    """A run from its start to its end: how it ended, what the model was told of its calls, and where its log is."""
    agent, at = agent_of(place, found, *answers), memory_ground()
    async with Runtime(agents=[agent], ground=at) as runtime:
        result = await (await runtime.session("s", agent=agent).send("go")).result()
    return result, [message.text for message in said_in(at.store, "s") if isinstance(message, ToolMessage)], at


def records_of(at: Any, kind: str) -> list[bytes]:
    """The records of one type, as they are written."""
    return [frame.payload for frame in frames_of(at.store, "s") if f'"type":"{kind}"'.encode() in frame.payload]


def a_served_call(progress: list[str], **more: Any) -> Call[Any]:
    """A call that keeps what is told beside it."""
    return dataclasses.replace(a_call(**more), run_id=RUN, progress=progress.append)
