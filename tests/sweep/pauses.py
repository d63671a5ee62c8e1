"""A run whose key is refused behind a payment, which is then put right, and that is stopped while a call is out: one life of it.

The file `key` is the right key: its model's provider answers the second request only where that is there. What was answered to
whoever asked is witnessed, and so is each request in front of its sending.
"""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

from semel import Agent, Call, Failed, Interrupted, Paused, Runtime, tool
from semel.adapters.file.store import FileStore
from semel.adapters.system import SystemClock, SystemIds
from semel.core.features import KNOWN
from semel.engine.resume import Ground
from semel.ports.model import Answer, Delta, FailureClass, ModelFailed, Request
from semel.testing.faults import KillingDisk
from tests.engine.doors import Door, behind_a_door
from tests.sweep.reference import ACKNOWLEDGED, ACTIONS, PERSISTED, witness

SESSION, ASKED, KEY = "pauses", "asked.jsonl", "key"
ANSWERS = ({"calls": [{"name": "pay", "args": {}}]}, {"calls": [{"name": "look", "args": {}}]}, {"text": "never asked for"})


class Gate(Door):
    """Refuses the second request of the run without the key."""

    place: Path

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Answer, None]:
        answers = request.body.count(b'"assistant"')
        witness(self.place / ASKED, {"answers": answers, "sha256": request.sha256})
        if answers == 1 and not (self.place / KEY).exists():
            raise ModelFailed(FailureClass.AUTH, "no such key")
        async for chunk in self.inner.stream(request):
            yield chunk


def agent_of(place: Path, begun: asyncio.Event, gate: asyncio.Event) -> Agent[str]:
    @tool
    async def pay(*, call: Call[None]) -> str:
        witness(place / ACTIONS, {"tool": "pay", "key": call.key})
        return "paid"

    @tool(effect="read")
    async def look() -> str:
        begun.set()
        await gate.wait()
        return "seen"

    _, door = behind_a_door(place, *ANSWERS)
    model = Gate(door.inner)
    model.place = place
    return Agent("teller", model=model, tools=[pay, look])


async def once(place: Path) -> int:
    disk, clock = KillingDisk.from_environment(), SystemClock()
    store = FileStore(place / "state", clock, known=KNOWN, disk=disk, inline_sync=True)
    begun, gate = asyncio.Event(), asyncio.Event()
    agent = agent_of(place, begun, gate)
    async with Runtime(agents=[agent], recover="manual", ground=Ground(store=store, clock=clock, ids=SystemIds())) as runtime:
        session = runtime.session(SESSION, agent=agent)
        run = await session.send("Go.", key="go")
        tries = 0
        while True:
            ending, looking = asyncio.ensure_future(run.result()), asyncio.ensure_future(begun.wait())
            await asyncio.wait({ending, looking}, return_when=asyncio.FIRST_COMPLETED)
            if not ending.done():
                await session.stop()
                witness(place / ACKNOWLEDGED, "stopped")
                gate.set()
            result = await ending
            looking.cancel()
            if not isinstance(result, Paused):
                break
            witness(place / ACKNOWLEDGED, "paused")
            tries += 1
            if tries == 2:
                (place / KEY).touch()
            run = await session.resume()  # type: ignore[assignment]  # a run is open
    witness(place / PERSISTED, disk.calls)
    assert isinstance(result, Failed | Interrupted), result
    return 3 if isinstance(result, Interrupted) else 0


def life(place: Path, _url: str) -> int:
    """One life, to its end."""
    return asyncio.run(once(place))
