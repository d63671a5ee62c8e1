"""Who gave a session back notices what others write in it: once, as soon as nobody holds it, and not what he knows already."""

import asyncio
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

import pytest

from semel import Agent, Paused, Rule, Runtime
from semel.engine.lookout import GO_ON_MOST, LOOK_SECONDS, Lookout
from semel.errors import SessionBusy, UnsafeStore
from semel.ports.control import Control
from semel.ports.log import SessionStore
from semel.ports.world import Clock
from tests.engine.fakes import call, counting, loop_turns, script_file
from tests.engine.slow import StandingClock, disk_ground

pytestmark = pytest.mark.anyio


@dataclass
class Logs:
    """What a look at sessions finds."""

    marks: dict[str, str] = field(default_factory=dict)
    owners: dict[str, str] = field(default_factory=dict)
    broken: set[str] = field(default_factory=set)

    def mark(self, session: str) -> str | None:
        return self.marks.get(session)

    def owner(self, session: str) -> str | None:
        if session in self.broken:
            raise UnsafeStore(f"{session} may be written by everybody")
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
        self.gates, self.failures, self.takes = dict[str, asyncio.Event](), list[str](), dict[str, str]()
        self.lookout = Lookout(cast("SessionStore", self.logs), cast("Clock", self.clock), self._go_on, self._failed)

    def _failed(self, session: str, error: Exception) -> None:
        self.failures.append(f"{session}: {type(error).__name__}")

    async def _go_on(self, session: str) -> None:
        self.told.append(session)
        if session in self.takes:
            self.lookout.forget(self.takes[session])
        if session in self.gates:
            await self.gates[session].wait()

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
    watched.takes["a"] = "b"
    for session in "ab":
        watched.lookout.watch(session, "0")
    assert await watched.after(steps=2) == ["a"], "b was forgotten while a was gone on with"


async def test_a_session_that_is_slow_to_go_on_with_delays_no_other() -> None:
    watched = Watched()
    watched.gates["a"] = asyncio.Event()
    for session in "ab":
        watched.lookout.watch(session, "0")
    assert await watched.after() == ["a", "b"]
    watched.lookout.watch("b", "0")
    assert await watched.after() == ["a", "b", "b"], "and it is looked on while a is gone on with"
    await watched.lookout.close()


async def test_no_more_sessions_than_a_few_are_gone_on_with_at_a_time_and_the_others_behind_them() -> None:
    watched, names = Watched(), [f"s{at}" for at in range(GO_ON_MOST + 3)]
    for session in names:
        watched.gates[session] = asyncio.Event()
        watched.logs.marks[session] = "1"
        watched.lookout.watch(session, "0")
    assert await watched.after(steps=3) == names[:GO_ON_MOST]
    for session in names[:3]:
        watched.gates[session].set()
    await loop_turns()
    assert watched.told == names
    await watched.lookout.close()


async def test_a_session_that_cannot_be_looked_at_is_told_once_and_the_others_are_looked_at() -> None:
    watched = Watched()
    watched.logs.broken.add("a")
    for session in "ab":
        watched.lookout.watch(session, "0")
    assert await watched.after(steps=3) == ["b"]
    assert watched.failures == ["a: UnsafeStore"]
    watched.logs.broken.clear()
    assert await watched.after() == ["b", "a"], "it is looked at again, and gone on with when that goes well"
    watched.logs.broken.add("a")
    watched.lookout.watch("a", "0")
    await watched.after(steps=2)
    assert watched.failures == ["a: UnsafeStore", "a: UnsafeStore"], "what goes wrong anew is told anew"
    await watched.lookout.close()


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


async def test_a_session_that_cannot_be_looked_at_is_in_the_diary_of_its_runtime(tmp_path: Path) -> None:
    pay = counting("pay")
    agent = Agent("a", model=script_file(tmp_path / "m.json", {"calls": [call("pay")]}), tools=[pay], policy=[Rule("ask")])
    clock = StandingClock()
    on = replace(disk_ground(tmp_path / "s", clock=clock), control=cast("Control", Alone()))
    async with Runtime(agents=[agent], ground=on) as runtime:
        await (await runtime.session("s", agent=agent).send("go")).result()
        log, lease = (tmp_path / "s" / "sessions" / "s" / name for name in ("wal.log", "lease"))
        lease.rename(lease.with_name("elsewhere"))
        lease.symlink_to("elsewhere")
        os.utime(log, ns=(0, 0))
        for _ in range(3):
            clock.advance(LOOK_SECONDS)
            await loop_turns()
        assert [(one.session, one.stage, one.code) for one in runtime.diary.incidents] == [("s", "look", "unsafe_store")]
