"""Who gave a session back notices what others write in it: once, as soon as nobody holds it, and not what he knows already."""

import asyncio
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

import pytest

from semel import Agent, Paused, Rule, Runtime
from semel.engine.lookout import Lookout
from semel.errors import SessionBusy
from semel.ports.control import Control
from semel.ports.log import SessionStore
from semel.ports.world import Clock
from tests.engine.fakes import call, counting, loop_turns, script_file
from tests.engine.slow import disk_ground

pytestmark = pytest.mark.anyio


@dataclass
class Logs:
    """What a look at sessions finds."""

    marks: dict[str, str] = field(default_factory=dict)
    owners: dict[str, str] = field(default_factory=dict)

    def mark(self, session: str) -> str | None:
        return self.marks.get(session)

    def owner(self, session: str) -> str | None:
        return self.owners.get(session)


class Steps:
    """A clock whose sleepers wake when a test says so."""

    def __init__(self) -> None:
        self._next = asyncio.Event()

    async def sleep(self, _seconds: float) -> None:
        await self._next.wait()

    async def step(self) -> None:
        self._next.set()
        self._next = asyncio.Event()
        await loop_turns()


class Watched:
    """A lookout over sessions `a` and `b`, and what it went on with."""

    def __init__(self) -> None:
        self.logs, self.clock, self.told = Logs({"a": "1", "b": "1"}), Steps(), list[str]()
        self.lookout = Lookout(cast("SessionStore", self.logs), cast("Clock", self.clock), self._go_on)

    async def _go_on(self, session: str) -> None:
        self.told.append(session)
        self.lookout.forget("b") if session == "a" else None

    async def after(self, *, steps: int = 1) -> list[str]:
        for _ in range(steps):
            await loop_turns()
            await self.clock.step()
        return self.told


async def test_a_session_that_was_written_to_is_gone_on_with_once() -> None:
    watched = Watched()
    watched.lookout.watch("b", "1")
    assert await watched.after(steps=3) == []
    watched.logs.marks["b"] = "2"
    assert await watched.after(steps=3) == ["b"]


async def test_one_that_somebody_holds_is_waited_for_until_it_is_free() -> None:
    watched = Watched()
    watched.logs.owners["b"] = "process 7"
    watched.lookout.watch("b", None)
    assert await watched.after(steps=3) == []
    del watched.logs.owners["b"]
    assert await watched.after() == ["b"]


async def test_one_that_this_process_took_meanwhile_is_not_gone_on_with() -> None:
    watched = Watched()
    for session in "ab":
        watched.lookout.watch(session, "0")
    assert await watched.after(steps=2) == ["a"], "b was forgotten while a was gone on with"


async def test_a_lookout_that_is_closed_looks_no_more() -> None:
    watched = Watched()
    watched.lookout.watch("a", "0")
    await watched.lookout.close()
    watched.lookout.watch("b", "0")
    assert await watched.after(steps=3) == []


class Alone:
    """Stands for a socket that nobody uses; with it, other processes are reckoned with."""

    address = ""

    async def serve(self, _handle: object) -> "Alone":
        return self

    async def close(self) -> None:
        pass


async def test_a_run_that_waits_is_looked_after_also_behind_a_message_that_was_refused_because_others_held_it(
    tmp_path: Path,
) -> None:
    pay = counting("pay")
    agent = Agent("a", model=script_file(tmp_path / "m.json", {"calls": [call("pay")]}), tools=[pay], policy=[Rule("ask")])
    on = replace(disk_ground(tmp_path / "s"), control=cast("Control", Alone()))
    async with Runtime(agents=[agent], ground=on) as runtime:
        session, lookout = runtime.session("s", agent=agent), runtime._keeper.sessions.lookout
        assert isinstance(await (await session.send("go")).result(), Paused)
        assert list(lookout._marks) == ["s"]
        writer = await disk_ground(tmp_path / "s").store.open("s")
        with pytest.raises(SessionBusy):
            await session.steer("more")
        assert list(lookout._marks) == ["s"]
        await writer.close()
        await session.cancel()
        assert not lookout._marks, "nothing waits any more"
