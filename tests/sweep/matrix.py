"""One run with one call, that ends its process by SIGKILL at a named point of the call's life: one life of it (T24).

The points are where the log is written and synced and where the tool acts, so that they stay what they are when a run takes more
or fewer persistence calls. What the outside can tell is in side files: that the tool was entered, that it acted, under which key,
that its reply has come, each request, and up to which byte the log was synced.
"""

import asyncio
import os
import signal
from collections.abc import AsyncGenerator, Callable
from pathlib import Path

from semel import Agent, Call, Interrupted, Runtime, tool
from semel.adapters.file.root import Place
from semel.adapters.file.store import FileStore
from semel.adapters.system import SystemClock, SystemIds
from semel.core.features import KNOWN
from semel.core.values import Effect
from semel.engine.resume import Ground
from semel.ports.model import Answer, Delta, Request
from semel.testing.faults import KILL_VARIABLE, NumberedDisk
from tests.engine.doors import Door, behind_a_door
from tests.sweep.reference import ACTIONS, witness

SESSION, ASKED, ENTERED, REPLIED, SYNCED = "matrix", "asked.jsonl", "entered.jsonl", "replied.jsonl", "synced"
ANSWERS = ({"calls": [{"name": "act", "args": {}}]}, {"text": "Done."})
WRITES = {"intent": b'"type":"tool_dispatch_intent"', "result": b'"type":"tool_result"'}


def die_at(point: str) -> None:
    """The end of the process, if this is its point."""
    if os.environ.get(KILL_VARIABLE) == point:
        os.kill(os.getpid(), signal.SIGKILL)


class CutDisk(NumberedDisk):
    """A disk at which the process can die around the write of an intent or of a result."""

    def __init__(self, place: Path) -> None:
        super().__init__()
        self._place = place
        self._logs: set[int] = set()
        self._written = ""

    def open_file(self, name: str, within: int, flags: int) -> int:
        fd = super().open_file(name, within, flags)
        self._logs.discard(fd)
        if name == Place.LOG:
            self._logs.add(fd)
        return fd

    def write_some(self, fd: int, data: memoryview, offset: int | None) -> int:
        if fd in self._logs:
            self._written = next((kind for kind, mark in WRITES.items() if mark in bytes(data)), "")
            if self._written == "result":
                witness(self._place / REPLIED, "the tool has answered")
            die_at(f"{self._written} before its write")
        return super().write_some(fd, data, offset)

    def flush(self, fd: int, *, directory: bool) -> None:
        if directory or fd not in self._logs:
            super().flush(fd, directory=directory)
            return
        die_at(f"{self._written} before its sync")
        super().flush(fd, directory=directory)
        (self._place / SYNCED).write_text(str(os.fstat(fd).st_size))
        die_at(f"{self._written} behind its sync")


class Heard(Door):
    """Writes down each request in front of its sending."""

    place: Path

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Answer, None]:
        witness(self.place / ASKED, {"answers": request.body.count(b'"assistant"'), "sha256": request.sha256})
        async for chunk in self.inner.stream(request):
            yield chunk


def agent_of(place: Path, effect: Effect) -> Agent[str]:
    @tool(effect=effect)
    async def act(*, call: Call[None]) -> str:
        witness(place / ENTERED, {"key": call.key})
        die_at("the tool before it acts")
        witness(place / ACTIONS, {"key": call.key})
        die_at("the tool behind its act")
        return "done"

    _, door = behind_a_door(place, *ANSWERS)
    model = Heard(door.inner)
    model.place = place
    return Agent("one", model=model, tools=[act])


async def once(place: Path, effect: Effect) -> int:
    clock = SystemClock()
    store = FileStore(place / "state", clock, known=KNOWN, disk=CutDisk(place), inline_sync=True)
    agent = agent_of(place, effect)
    async with Runtime(agents=[agent], recover="manual", ground=Ground(store=store, clock=clock, ids=SystemIds())) as runtime:
        run = await runtime.session(SESSION, agent=agent).send("Go.", key="go")
        result = await run.result()
    return 3 if isinstance(result, Interrupted) else 0


def life(effect: Effect) -> Callable[[Path, str], int]:
    """One life with a tool of that kind, to its end."""
    return lambda place, _url: asyncio.run(once(place, effect))
