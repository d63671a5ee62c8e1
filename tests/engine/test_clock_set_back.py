"""A wall clock that is set back makes no resume wait longer than its run may ever wait, and no limit of time longer (X16)."""

import asyncio
from pathlib import Path

import pytest

from semel import Agent, Completed, Limits, Runtime
from semel.adapters.memory.store import Medium
from semel.adapters.system import SystemClock
from semel.core.limits import Limits as Frozen
from semel.core.values import Effect
from semel.engine.resume import Ground
from semel.ports.world import Clock
from semel.testing.ground import memory_ground
from semel.testing.model_server import ModelServer
from tests.engine.fakes import call, counting, script_file
from tests.engine.slow import EPOCH_MS

pytestmark = pytest.mark.anyio
MOST_SECONDS, ASKED_SECONDS, DAY_MS = Frozen().retry_wait_ms / 1000, 90, 86_400_000
RUN_SECONDS = Frozen().wall_ms / 1000
WALL_SECONDS = 100.0
BUSY = {"kind": "status", "status": 503, "headers": {"retry-after": str(ASKED_SECONDS)}}


class SetBack:
    """The clock of a machine, set back by so much. A long wait is noted, and is over at once, or never."""

    def __init__(self, back_ms: int = 0, *, ends: bool) -> None:
        self._system, self._back_ms, self._ends = SystemClock(), back_ms, ends
        self.waits: list[float] = []
        self.waiting = asyncio.Event()

    def now_ms(self) -> int:
        return self._system.now_ms() - self._back_ms

    def monotonic(self) -> float:
        return self._system.monotonic()

    async def sleep(self, seconds: float) -> None:
        if seconds < ASKED_SECONDS / 2 or RUN_SECONDS - 60 < seconds <= RUN_SECONDS:
            await self._system.sleep(seconds)  # what is short, and the time that a run may take
            return
        self.waits.append(seconds)
        self.waiting.set()
        if not self._ends:
            await asyncio.Event().wait()


def on(medium: Medium, clock: Clock) -> Ground:
    ground = memory_ground(medium)
    return Ground(store=ground.store, clock=clock, ids=ground.ids)


@pytest.mark.parametrize(("back_ms", "waited"), [(0, ASKED_SECONDS), (DAY_MS, MOST_SECONDS)])
async def test_a_resume_waits_for_its_server_and_never_longer_than_a_run_may(back_ms: int, waited: float) -> None:
    medium, before, after = Medium(), SetBack(ends=False), SetBack(back_ms, ends=True)
    async with ModelServer({"answers": [{"text": "Done.", "fault": BUSY}]}) as server:
        agent = Agent("a", model=f"openai_chat:m@{server.url}")
        async with Runtime(agents=[agent], ground=on(medium, before), recover="manual", drain_seconds=0) as runtime:
            await runtime.session("s", agent=agent).send("go")
            await before.waiting.wait()
        async with Runtime(agents=[agent], ground=on(medium, after), recover="manual") as runtime:
            run = await runtime.session("s", agent=agent).resume()
            assert run is not None
            result = await run.result()
    assert isinstance(result, Completed)
    assert before.waits == pytest.approx([ASKED_SECONDS], abs=30)  # real time passes behind the refusal
    assert after.waits == pytest.approx([waited], abs=30)


class HandMoved:
    """A clock whose time a test sets, and whose waits a test ends."""

    def __init__(self) -> None:
        self.wall_ms, self.rings = EPOCH_MS, asyncio.Event()

    def now_ms(self) -> int:
        return self.wall_ms

    def monotonic(self) -> float:
        return 0.0

    async def sleep(self, seconds: float) -> None:
        await (self.rings.wait() if seconds == WALL_SECONDS else asyncio.Event().wait())


@pytest.mark.parametrize("back_ms", [-WALL_SECONDS * 1000, 0, DAY_MS])
async def test_a_run_whose_time_is_up_ends_by_name_whatever_the_wall_clock_says_by_then(back_ms: int, tmp_path: Path) -> None:
    clock, waits = HandMoved(), asyncio.Event()

    async def wait(_arguments: object, _call: object) -> str:
        waits.set()
        await asyncio.Event().wait()
        return "never"

    slow, pay = counting("slow", Effect.READ, behaviour=wait), counting("pay")
    model = script_file(tmp_path / "m.json", {"calls": [call("slow")]}, {"calls": [call("pay")]}, {"text": "done"})
    agent = Agent("a", model=model, tools=[slow, pay], limits=Limits(wall_seconds=WALL_SECONDS))
    async with Runtime(agents=[agent], ground=on(Medium(), clock)) as runtime:
        run = await runtime.session("s", agent=agent).send("go")
        await waits.wait()
        clock.wall_ms -= int(back_ms)
        clock.rings.set()
        result = await run.result()
    assert (result.reason, pay.keys) == ("time_limit", [])
