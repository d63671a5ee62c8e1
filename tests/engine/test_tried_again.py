"""What fails in a session for a passing reason is tried again by itself: later each time, and never without an end in between."""

import asyncio
import errno
import os
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import cast

import pytest

from semel import Agent, Held, Runtime
from semel.adapters.file.disk import Disk
from semel.core.values import JSON, Effect
from semel.engine.alarm import MOST_AGAIN_SECONDS, Alarm
from semel.engine.session import SessionActor
from semel.engine.sessions import Sessions
from semel.errors import BadAgent, CallNotSent, LogDamaged, SessionBusy, StoreError
from semel.faces.run import RunHandle
from semel.ports.tool import Call
from semel.ports.world import Clock
from tests.engine.fakes import call, counting, events_of, ground, loop_turns, script_file
from tests.engine.slow import StandingClock, disk_ground
from tests.engine.test_held_calls import holding

pytestmark = pytest.mark.anyio

FULL = StoreError("no space left on device")


class Woken:
    """An alarm whose wakes fail as long as they are told to, and the seconds at which it woke."""

    def __init__(self) -> None:
        self.clock, self.fails, self.at = StandingClock(), True, list[int]()
        self.began_ms = self.clock.now_ms()
        self.alarm = Alarm(cast("Clock", self.clock), self._wake)

    async def _wake(self, session: str) -> None:
        self.at.append((self.clock.now_ms() - self.began_ms) // 1000)
        if self.fails:
            self.alarm.set(session, self.began_ms)  # as a session that is given back sets what is still due
            await asyncio.sleep(0)
            self.alarm.failed(session, again=True)
        else:
            self.alarm.went_well(session)

    async def pass_time(self, seconds: int) -> list[int]:
        await loop_turns()
        for _ in range(seconds):
            self.clock.advance(1)
            await loop_turns()
        return self.at


async def test_a_wake_that_fails_is_made_again_later_each_time_and_at_most_once_a_minute_in_the_end() -> None:
    woken = Woken()
    woken.alarm.set("s", woken.began_ms)
    times = await woken.pass_time(300)
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert gaps == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert gaps[-1] == MOST_AGAIN_SECONDS
    await woken.alarm.close()


async def test_one_that_goes_well_is_not_woken_again_and_its_next_failure_is_a_first_one() -> None:
    woken = Woken()
    woken.alarm.set("s", woken.began_ms)
    assert await woken.pass_time(4) == [0, 1, 3]
    woken.fails = False
    assert await woken.pass_time(200) == [0, 1, 3, 7]
    woken.fails = True
    woken.alarm.set("s", woken.began_ms + 300_000)
    assert (await woken.pass_time(100))[4:] == [300, 301, 303]
    await woken.alarm.close()


async def test_what_is_set_meanwhile_does_not_take_the_next_try_away() -> None:
    woken = Woken()
    woken.alarm.failed("s", again=True)
    woken.alarm.set("s", None)
    woken.fails = False
    assert await woken.pass_time(10) == [1]


async def test_one_that_is_not_to_be_tried_again_is_only_woken_for_what_is_due_and_not_at_once() -> None:
    woken = Woken()
    woken.fails = False
    woken.alarm.failed("s", again=False)
    assert await woken.pass_time(100) == []
    woken.alarm.failed("s", again=False)
    woken.alarm.set("s", woken.began_ms)
    assert await woken.pass_time(10) == [102]


async def test_a_held_call_that_is_over_while_its_log_cannot_be_opened_is_given_up_when_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = StandingClock()
    agent, on = holding(tmp_path, Held(until=clock.now_ms() / 1000 + 10)), disk_ground(tmp_path / "s", clock=clock)
    async with Runtime(agents=[agent], ground=on) as runtime:
        await (await runtime.session("s", agent=agent).send("go")).result()
        with monkeypatch.context() as broken:
            broken.setattr(type(on.store), "open", _cannot_be_opened)
            for _ in range(14):
                clock.advance(1)
                await loop_turns()
            assert {(one.session, one.code) for one in runtime.diary.incidents} == {("s", "store")}
            assert len(runtime.diary.incidents) == 3, "at 10, 11 and 13 s, and each is told once"
        await pass_until(clock, lambda: runtime.status("s").state == "completed")


async def _cannot_be_opened(*_: object, **__: object) -> None:
    raise StoreError("too many open files")


async def pass_until(clock: StandingClock, true: Callable[[], bool], seconds: float = 1) -> None:
    """Let time pass in steps of so many seconds until something holds."""
    for _ in range(400):
        if true():
            return
        clock.advance(seconds)
        await asyncio.sleep(0.002)
    raise AssertionError("it has not come about")


class FullDisk(Disk):
    """A disk that takes nothing while it is full."""

    full = False

    def write_some(self, fd: int, data: memoryview, offset: int | None) -> int:
        if self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write_some(fd, data, offset)


class Filling:
    """An agent whose tool fills the disk when it is called first."""

    def __init__(self, place: Path, clock: StandingClock) -> None:
        self.disk = FullDisk()
        self.on = disk_ground(place / "s", self.disk, cast("Clock", clock))
        model = script_file(place / "m.json", {"calls": [call("look_up")]}, {"text": "done"})
        self.tool = counting("look_up", Effect.IDEMPOTENT, self._fill)
        self.agent = Agent("a", model=model, tools=[self.tool])

    async def _fill(self, _arguments: dict[str, JSON], _call: Call[object]) -> str:
        self.disk.full = len(self.tool.keys) == 1
        return "found"


async def fails(run: RunHandle[str], clock: StandingClock) -> None:
    ended = asyncio.ensure_future(run.rest())
    await pass_until(clock, ended.done, 0.05)  # a write that is refused is made a few times
    with pytest.raises(StoreError):
        await ended


async def test_a_run_that_a_full_disk_kept_from_going_on_is_gone_on_with_when_there_is_room_again(tmp_path: Path) -> None:
    clock = StandingClock()
    filling = Filling(tmp_path, clock)
    async with Runtime(agents=[filling.agent], ground=filling.on) as runtime:
        run = await runtime.session("s", agent=filling.agent).send("go")
        await fails(run, clock)
        await pass_until(clock, lambda: len(runtime.diary.incidents) == 3, 0.1)
        assert runtime.status("s").state == "running"
        assert len(filling.tool.keys) == 1, "what cannot be recorded is not begun"
        filling.disk.full = False
        await pass_until(clock, lambda: runtime.status("s").state == "completed")
        assert runtime.diary.debts == {}
    types = [event["type"] for event in events_of(filling.on.store)]
    assert (len(filling.tool.keys), types.count("tool_result"), types.count("run_finished")) == (2, 1, 1)


async def test_a_runtime_that_leaves_recovery_to_others_does_not_try_a_run_again(tmp_path: Path) -> None:
    clock = StandingClock()
    filling = Filling(tmp_path, clock)
    async with Runtime(agents=[filling.agent], ground=filling.on, recover="manual") as runtime:
        run = await runtime.session("s", agent=filling.agent).send("go")
        await fails(run, clock)
        filling.disk.full = False
        for _ in range(10):
            clock.advance(60)
            await asyncio.sleep(0.002)
        assert runtime.status("s").state == "running"
        assert len(filling.tool.keys) == 1


def unstarted(cause: BaseException | None) -> BadAgent:
    error = BadAgent("tools.box: the MCP server cannot be used")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "again"),
    [
        (FULL, True),
        (OSError("no"), True),
        (SessionBusy("another process has it"), True),
        (LogDamaged("wal.log", 0, 1, "a digest is wrong"), False),
        (BadAgent("no agent 'b' is registered here"), False),
        (unstarted(CallNotSent("it could not be started")), True),
    ],
)
async def test_what_a_person_has_to_mend_is_not_tried_again(error: Exception, again: bool) -> None:
    async def look_again(_session: str) -> None:
        raise error

    async def wake(_actor: SessionActor) -> None:
        """Nothing is due."""

    sessions = Sessions(ground(), next_run=None, wake=wake, look_again=look_again)
    sessions.try_again("s", error)
    assert bool(sessions.alarm._times()) is again
    await sessions.leave(0)
