"""Looking for a call by its name: the index is asked first, and no log is read on the event loop of a service."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from semel import Agent, Completed, Held, Paused, Rule, Runtime
from semel.adapters.file.disk import Disk
from semel.engine.resume import Ground
from semel.errors import ApprovalClosed, UnknownCall
from semel.faces.views import find_waiting_call, waiting_of
from tests.engine.fakes import call, counting, script_file
from tests.engine.slow import HELD_SECONDS_MOST, disk_ground

pytestmark = pytest.mark.anyio

MISTYPED = "deadbeef"


class WatchedDisk(Disk):
    """Counts what is read in the thread of its maker, which runs the event loop, and elsewhere; there it can be held up."""

    def __init__(self) -> None:
        super().__init__()
        self._maker = threading.get_ident()
        self.here = self.elsewhere = 0
        self.entered, self.go = threading.Event(), threading.Event()
        self.go.set()

    def read(self, fd: int, offset: int = 0, limit: int | None = None) -> bytes:
        if threading.get_ident() == self._maker:
            self.here += 1
        else:
            self.elsewhere += 1
            self.entered.set()
            assert self.go.wait(HELD_SECONDS_MOST), "nobody let the disk go on"
        return super().read(fd, offset, limit)


class Shop:
    """Three sessions: one that never asked anybody, one whose approval was answered, one whose held call has its result."""

    def __init__(self, root: Path) -> None:
        self.root, self.keys = root, dict[str, str]()

    def ground(self, disk: Disk | None = None) -> Ground:
        return disk_ground(self.root / "state", disk)

    def agent(self) -> Agent[str]:
        async def act(_arguments: object, _call: object) -> Any:
            return Held()

        script = script_file(self.root / "m.json", {"text": "nothing to do"})
        asked = script_file(self.root / "asked.json", {"calls": [call("pay")]}, {"text": "done"})
        held = script_file(self.root / "held.json", {"calls": [call("order")]}, {"text": "done"})
        self.scripts = {"plain": script, "asked": asked, "held": held}
        return Agent("a", model=script, tools=[counting("pay"), counting("order", behaviour=act)], policy=[Rule("ask", "pay")])

    async def open(self) -> "Shop":
        agent = self.agent()
        async with Runtime(ground=self.ground(), recover="manual") as runtime:
            for name, script in self.scripts.items():
                run = await runtime.session(name, agent=replace(agent, name=name, model=script)).send("go")
                found = await run.result()
                if isinstance(found, Paused):
                    self.keys[name] = key = str(found.waits[0].call_key)
                    answer = runtime.approve(key) if name == "asked" else runtime.deliver(key, "arrived")
                    gone_on = await answer
                    assert gone_on is not None
                    assert isinstance(await gone_on.end(), Completed)
        return self


@pytest.fixture
async def shop(tmp_path: Path) -> Shop:
    return await Shop(tmp_path).open()


VERBS: dict[str, Callable[[Runtime, str], Awaitable[object]]] = {
    "approve": lambda runtime, key: runtime.approve(key),
    "deny": lambda runtime, key: runtime.deny(key),
    "deliver": lambda runtime, key: runtime.deliver(key, "arrived"),
    "resolve": lambda runtime, key: runtime.resolve(key, "happened"),
}


@pytest.mark.parametrize("verb", VERBS)
async def test_a_mistyped_key_holds_up_nothing_else_while_logs_are_read_for_it(verb: str, shop: Shop) -> None:
    disk = WatchedDisk()
    async with Runtime(ground=shop.ground(disk), recover="manual") as runtime:
        disk.here = 0
        disk.go.clear()
        asking = asyncio.ensure_future(VERBS[verb](runtime, MISTYPED))
        assert await asyncio.to_thread(disk.entered.wait, HELD_SECONDS_MOST)
        assert not asking.done(), "this task runs while a log is read"
        disk.go.set()
        with pytest.raises(UnknownCall):
            await asking
        assert disk.here == 0
        assert disk.elsewhere > 0


async def test_a_look_on_the_event_loop_would_be_counted(shop: Shop) -> None:
    """Negative control."""
    disk = WatchedDisk()
    with pytest.raises(UnknownCall):
        find_waiting_call(shop.ground(disk).store, MISTYPED)
    assert disk.here > 0


class Counted:
    """The sessions whose logs a store has read, each time it did."""

    def __init__(self, at: Ground) -> None:
        self.read: list[str] = []
        self._inner = at.store.read
        at.store.read = self._read  # type: ignore[method-assign]  # it counts

    def _read(self, session: str, *arguments: Any, **named: Any) -> Any:
        self.read.append(session)
        return self._inner(session, *arguments, **named)


@pytest.mark.parametrize("verb", VERBS)
async def test_behind_a_listing_a_mistyped_key_reads_only_logs_that_hold_an_answer(verb: str, shop: Shop) -> None:
    at = shop.ground()
    waiting_of(at.store)
    async with Runtime(ground=at, recover="manual") as runtime:
        counted = Counted(at)
        with pytest.raises(UnknownCall):
            await VERBS[verb](runtime, MISTYPED)
    assert set(counted.read) == (set() if verb == "resolve" else {"asked", "held"})


@pytest.mark.parametrize("listed", [False, True])
async def test_an_answer_that_stands_is_found_again_with_the_index_and_without(listed: bool, shop: Shop) -> None:
    at = shop.ground()
    if listed:
        waiting_of(at.store)
    async with Runtime(ground=at, recover="manual") as runtime:
        assert await runtime.approve(shop.keys["asked"]) is None
        with pytest.raises(ApprovalClosed):
            await runtime.deny(shop.keys["asked"])
        await runtime.deliver(shop.keys["held"], "arrived")
        with pytest.raises(UnknownCall):
            await runtime.approve(shop.keys["asked"][:1] + MISTYPED)
