"""A tool that counts, a script for the model, a ground in memory, and small moves of a test."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from semel import Runtime
from semel.core.values import JSON, Effect, ToolSpec
from semel.faces.views import frame_event
from semel.ports.log import SessionStore
from semel.ports.tool import Call, ProcessMark, Reconciled, StillUnknown
from semel.testing.ground import memory_ground
from tests.support.frames import frames_of

LOOP_TURNS = 10
Plant = Callable[[Runtime], None]
"""Puts a fault into a runtime whose session `s` is open; for the canaries."""
Behaviour = Callable[[dict[str, JSON], Call[object]], Awaitable[JSON]]


@dataclass
class CountingTool:
    """Counts what it was asked to do, by call key; `behaviour` is what it does."""

    spec: ToolSpec
    behaviour: Behaviour | None = None
    found: Reconciled = field(default_factory=StillUnknown)
    keys: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    async def run(self, arguments: dict[str, JSON], call: Call[object]) -> JSON:
        self.keys.append(call.key)
        return await self.behaviour(arguments, call) if self.behaviour else f"{self.spec.name} ok"

    async def reconcile(self, call: Call[object]) -> Reconciled:
        self.asked.append(call.key)
        return self.found

    async def end_leftovers(self, mark: ProcessMark) -> bool:
        return False


def counting(name: str, effect: Effect = Effect.ONCE, behaviour: Behaviour | None = None, **options: object) -> CountingTool:
    found = options.pop("found", StillUnknown())
    spec = ToolSpec(name=name, description=name, parameters='{"type":"object"}', effect=effect, **options)  # type: ignore[arg-type]  # free words, as a test wants them
    return CountingTool(spec=spec, behaviour=behaviour, found=found)  # type: ignore[arg-type]  # free words, as a test wants them


def script_file(path: Path, *answers: JSON) -> str:
    """The name of a scripted model that gives these answers."""
    path.write_text(json.dumps({"answers": list(answers)}))
    return f"scripted:{path}"


def call(name: str, **arguments: JSON) -> JSON:
    return {"name": name, "args": arguments}


ground = memory_ground


def nothing(_runtime: Runtime) -> None:
    """No fault is planted."""


def events_of(store: SessionStore, session: str = "s") -> list[dict[str, Any]]:
    """The durable events of a session, as a reader of its log sees them."""
    return [frame_event(frame) for frame in frames_of(store, session)]


async def leave(runtime: Runtime, meanwhile: Callable[[], object]) -> None:
    """Leave a runtime that was entered by hand, and have something done while it is being left."""
    leaving = asyncio.ensure_future(runtime.__aexit__(None, None, None))
    await loop_turns()
    meanwhile()
    await leaving


async def loop_turns() -> None:
    """Let everything run that is ready, and what becomes ready by that."""
    for _ in range(LOOP_TURNS):
        await asyncio.sleep(0)
