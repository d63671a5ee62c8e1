"""A process that runs the session `s` of a shop and does what it is told on stdin: owner [FAULT]

It says `open` when its first run is durable, then answers each word of stdin with `ok`. Words: `hold` lets the next sync wait,
`held` answers when one waits, `go` lets it through; `die_before` kills the process by SIGKILL instead of its next write,
`die_behind` right after its next sync, `die_at_once` now; `leave` gives the session back. FAULT plants one: `early` answers a
request before it has been carried out.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

from semel.adapters.control.client import UnixControl
from semel.adapters.file.store import FileStore
from semel.adapters.system import SystemClock, SystemIds
from semel.core.features import KNOWN
from semel.engine.resume import Ground
from semel.faces.agentref import load_agent
from semel.faces.answering import Desk
from semel.faces.api import Runtime
from tests.engine.slow import HeldDisk


class DoomedDisk(HeldDisk):
    """A disk whose syncs can be held, and at which the process can die."""

    due = ""

    def write_some(self, fd: int, data: memoryview, offset: int | None) -> int:
        if self.due == "die_before":
            os.kill(os.getpid(), signal.SIGKILL)
        return super().write_some(fd, data, offset)

    def sync(self, fd: int) -> None:
        super().sync(fd)
        if self.due == "die_behind":
            os.kill(os.getpid(), signal.SIGKILL)


def plant_early_answer() -> None:
    """Answers are given for what is still on its way."""
    perform, kept = Desk.perform, []

    async def early(desk: Desk, *given: Any) -> None:
        kept.append(asyncio.ensure_future(perform(desk, *given)))

    Desk.perform = early  # type: ignore[assignment,method-assign]  # the fault


async def obey(disk: DoomedDisk) -> None:
    loop = asyncio.get_running_loop()
    while word := (await loop.run_in_executor(None, sys.stdin.readline)).strip():
        if word == "hold":
            disk.hold()
        elif word == "held":
            await disk.held()
        elif word == "go":
            disk.let_go()
        elif word == "die_at_once":
            os.kill(os.getpid(), signal.SIGKILL)
        elif word == "leave":
            return
        else:
            disk.due = word
        print("ok", flush=True)


async def main(fault: str = "") -> None:
    if fault == "early":
        plant_early_answer()
    clock, disk = SystemClock(), DoomedDisk()
    store = FileStore(Path(".semel"), clock, known=KNOWN, disk=disk, inline_sync=False)
    ground = Ground(store=store, clock=clock, ids=SystemIds(), control=UnixControl(store))
    agent = load_agent("agent.toml")
    async with Runtime(agents=[agent], ground=ground, recover="manual", drain_seconds=0) as runtime:
        await runtime.session("s", agent=agent).send("Pay 17", key="first")
        print("open", flush=True)
        await obey(disk)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
