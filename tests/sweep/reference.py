"""The reference run: 3 model calls over real HTTP, 4 tool calls, one terminal, on a real directory. `life` is one life of it.

Whatever leaves the process is written to a side file, and synced, before it counts: each action of a tool, and each record that
the runtime has acknowledged. A life may be ended by SIGKILL at any persistence call (`SEMEL_TEST_KILL`); the next one goes on.
"""

import asyncio
import json
import os
from pathlib import Path

from semel import Agent, Call, Interrupted, Runtime, tool
from semel.adapters.file.store import FileStore
from semel.adapters.system import SystemClock, SystemIds
from semel.core.features import KNOWN
from semel.engine.resume import Ground
from semel.testing.faults import KillingDisk
from semel.wiring import command_tool

SCRIPT = {
    "answers": [
        {"text": "Looking.", "calls": [{"name": "look", "args": {"n": 1}}, {"name": "charge", "args": {"n": 2}}]},
        {"calls": [{"name": "store", "args": {"n": 3}}, {"name": "deploy", "args": {"n": 4}}]},
        {"text": "All done."},
    ]
}
STORE = """echo '{"tool": "store", "key": "'$1'"}' >> actions.jsonl; echo "store $2 done"\n"""
SESSION = "reference"
ACTIONS, ACKNOWLEDGED, PERSISTED = "actions.jsonl", "acknowledged.jsonl", "persisted.jsonl"


def witness(path: Path, fact: object) -> None:
    """Append a fact to a side file and sync it."""
    with path.open("a") as side:
        side.write(json.dumps(fact) + "\n")
        side.flush()
        os.fsync(side.fileno())


def agent_of(place: Path, url: str, charge_is_back: asyncio.Event) -> Agent[str]:
    """One read, one idempotent (a process) and two once tools, which act before they answer; `look` ends behind `charge`."""

    def act(name: str, n: int, call: "Call[None]") -> str:
        witness(place / ACTIONS, {"tool": name, "key": call.key})
        return f"{name} {n} done"

    @tool(effect="read")
    async def look(n: int, *, call: Call[None]) -> str:
        await charge_is_back.wait()
        return act("look", n, call)

    @tool
    async def charge(n: int, *, call: Call[None]) -> str:
        return act("charge", n, call)

    (place / "store.sh").write_text(STORE)
    store = command_tool(
        "store",
        {
            "command": ["sh", "./store.sh", "{call_key}", "{n}"],
            "args": {"n": "integer"},
            "effect": "idempotent",
            "sequential": True,
        },
        place,
    )

    @tool
    async def deploy(n: int, *, call: Call[None]) -> str:
        return act("deploy", n, call)

    return Agent("reference", model=f"openai_chat:m@{url}", instructions="Work.", tools=[look, charge, store, deploy])


async def run_once(place: Path, url: str) -> int:
    """Send, or go on with what a dead life has sent: it is the same key. Returns the exit code that the end stands for."""
    disk = KillingDisk.from_environment()
    clock = SystemClock()
    store = FileStore(place / "state", clock, known=KNOWN, disk=disk, inline_sync=True)
    charge_is_back = asyncio.Event()
    agent = agent_of(place, url, charge_is_back)
    async with Runtime(agents=[agent], recover="manual", ground=Ground(store=store, clock=clock, ids=SystemIds())) as runtime:
        run = await runtime.session(SESSION, agent=agent).send("Go.", key="reference")
        async for event in run.events(after=0):
            witness(place / ACKNOWLEDGED, event)
            if event["type"] == "tool_call_returned":
                charge_is_back.set()
        result = await run.result()
    witness(place / PERSISTED, disk.calls)
    return 3 if isinstance(result, Interrupted) else 0


def life(place: Path, url: str) -> int:
    """One life, to its end."""
    return asyncio.run(run_once(place, url))
