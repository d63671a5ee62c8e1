"""A run that is talked to while it works: a steer, a follow-up, a queued message; `life` is one life of it.

Each life sends all of its messages again under their keys, as whoever got no answer does. What was acknowledged is witnessed.
"""

import asyncio
from pathlib import Path

from semel import Agent, Call, Interrupted, Runtime, tool
from semel.adapters.file.store import FileStore
from semel.adapters.system import SystemClock, SystemIds
from semel.core.features import KNOWN
from semel.engine.resume import Ground
from semel.faces.handles import SessionHandle
from semel.testing.faults import KillingDisk
from tests.sweep.reference import ACKNOWLEDGED, ACTIONS, PERSISTED, witness

SCRIPT = {"answers": [{"calls": [{"name": "pay", "args": {}}]}, *({"text": f"answer {at}"} for at in range(1, 9))]}
SESSION = "talk"
MESSAGES = {"go": "Go.", "steer": "Rather in euros.", "follow_up": "Then thank them.", "queue": "Now the next one."}


def agent_of(place: Path, url: str, told: asyncio.Event) -> Agent[str]:
    @tool
    async def pay(*, call: Call[None]) -> str:
        await told.wait()
        witness(place / ACTIONS, {"tool": "pay", "key": call.key})
        return "paid"

    return Agent("teller", model=f"openai_chat:m@{url}", tools=[pay])


async def talk(session: SessionHandle[str], place: Path, told: asyncio.Event) -> None:
    """Send everything, and wait for all that comes of it."""
    run = await session.send(MESSAGES["go"], key="go")
    for delivery in ("steer", "follow_up", "queue"):
        await session.send(MESSAGES[delivery], key=delivery, delivery=delivery)  # type: ignore[arg-type]  # one of the words
        witness(place / ACKNOWLEDGED, delivery)
    told.set()
    await run.result()


async def once(place: Path, url: str) -> int:
    disk, clock, told = KillingDisk.from_environment(), SystemClock(), asyncio.Event()
    store = FileStore(place / "state", clock, known=KNOWN, disk=disk, inline_sync=True)
    agent = agent_of(place, url, told)
    async with Runtime(agents=[agent], recover="manual", ground=Ground(store=store, clock=clock, ids=SystemIds())) as runtime:
        session = runtime.session(SESSION, agent=agent)
        await talk(session, place, told)
        for item in runtime.inbox():
            await runtime.resolve(item.call.call_key, "abandoned")
        last = await session.send(MESSAGES["queue"], key="queue", delivery="queue")
        result = await last.result()
    witness(place / PERSISTED, disk.calls)
    return 3 if isinstance(result, Interrupted) else 0


def life(place: Path, url: str) -> int:
    """One life, to its end."""
    return asyncio.run(once(place, url))
