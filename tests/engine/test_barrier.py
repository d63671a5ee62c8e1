"""P1, P2, B3, B16: nothing leaves and nothing is shown before it is durable."""

from pathlib import Path
from typing import Any

import pytest
from msgspec import json

from semel import Agent, Runtime
from semel.adapters.memory.store import MemoryLog, MemoryStore, MemoryWriter
from semel.adapters.system import SystemClock, SystemIds
from semel.core.features import KNOWN
from semel.core.frame import scan
from semel.engine.resume import Ground
from semel.ports.tool import Call
from tests.engine.fakes import call, counting, script_file

pytestmark = pytest.mark.anyio


class UnsyncedWriter(MemoryWriter):
    """The planted fault: it claims a sync that it has not made."""

    def _sync(self) -> None:
        self._durable = self._point.seq - 1


class UnsyncedStore(MemoryStore):
    """Hands out unsynced writers."""

    async def open(self, session: str, **given: Any) -> MemoryWriter:
        writer = await super().open(session, **given)
        writer.__class__ = UnsyncedWriter
        return writer


def durable_types(log: MemoryLog) -> list[tuple[str, int | None]]:
    """Type and ordinal of every record that would survive a power loss now."""
    frames = scan(bytes(log.data[: log.synced_bytes])).frames
    records = [json.decode(frame.payload) for frame in frames]
    return [(record["type"], record.get("ordinal")) for record in records]


async def watch(store: MemoryStore, tmp_path: Path) -> list[str]:
    """Run two calls and tell what was wrong at each moment at which something left or was shown."""
    wrong: list[str] = []

    async def act(_arguments: object, told: Call[object]) -> str:
        if ("tool_dispatch_intent", told.ordinal) not in durable_types(store.medium.logs["s"]):
            wrong.append(f"call {told.ordinal} left before its intent was durable")
        return "ok"

    model = script_file(tmp_path / "m.json", {"calls": [call("pay", n=1), call("pay", n=2)]}, {"text": "done"})
    agent = Agent("a", model=model, tools=[counting("pay", behaviour=act)])
    clock = SystemClock()
    async with Runtime(agents=[agent], ground=Ground(store=store, clock=clock, ids=SystemIds())) as runtime:
        run = await runtime.session("s", agent=agent).send("hi", key="k")
        log = store.medium.logs["s"]
        wrong += [
            f"record {event['seq']} was shown before it was durable"
            async for event in run.events(after=0)
            if event["type"] not in {kind for kind, _ in durable_types(log)}
        ]
        await run.result()
    return wrong


async def test_p2_no_call_leaves_and_no_record_is_shown_before_it_is_durable(tmp_path: Path) -> None:
    assert await watch(MemoryStore(SystemClock(), known=KNOWN), tmp_path) == []


async def test_canary_a_sync_that_is_skipped_before_the_dispatch_is_caught(tmp_path: Path) -> None:
    wrong = await watch(UnsyncedStore(SystemClock(), known=KNOWN), tmp_path)
    assert any("left before its intent was durable" in line for line in wrong)
    assert any("was shown before it was durable" in line for line in wrong)
