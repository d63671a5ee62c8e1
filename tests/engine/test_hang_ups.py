"""A caller hangs up, by a timeout or because its client is gone, at each persistence call of what it asked for.

Whatever it asked for is then either not there at all or carried on, the log reads, and asking again is answered.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest

from semel import Agent, Completed, Interrupted, Runtime
from semel.adapters.memory.store import Medium
from semel.core.state import Session
from semel.core.values import Effect
from semel.errors import SessionBusy
from semel.faces.views import view_of
from tests.engine.fakes import CountingTool, Plant, call, counting, nothing, script_file
from tests.engine.slow import StruckDisk, disk_ground
from tests.engine.test_resume import Life, hanging

pytestmark = pytest.mark.anyio

AskedOnce = Callable[[Path, int], Awaitable[int]]
"""Asks in a place of its own, hangs up at that persistence call (0: not at all), checks, and tells how many calls there were."""


async def hang_up_at_each_call(ask: AskedOnce, tmp_path: Path) -> int:
    """How many persistence calls what was asked for makes; at each of them the caller hung up once."""
    count = await ask(fresh(tmp_path, 0), 0)
    for at in range(1, count + 1):
        await ask(fresh(tmp_path, at), at)
    return count


def fresh(tmp_path: Path, at: int) -> Path:
    place = tmp_path / str(at)
    place.mkdir()
    return place


async def asked(disk: StruckDisk, at: int, asking: Awaitable[object]) -> int:
    """Ask and hang up at that call, if at any; tells how many calls were made."""
    before = len(disk.calls)

    async def counted() -> int:
        await asking
        return len(disk.calls) - before

    task = asyncio.ensure_future(counted())
    if not at:
        return await task
    disk.strike_at(at, task.cancel)
    await asyncio.wait({task})
    assert task.cancelled(), "who hangs up is let go"
    return at


def at_rest(place: Path) -> Session:
    """The session as its log says, which nobody holds any more."""
    store = disk_ground(place).store
    assert store.owner("s") is None
    state = view_of(store, "s").state
    assert state.run is None
    return state


@pytest.mark.parametrize("again", ["one", "two"])
async def test_a_send_whose_caller_hangs_up_anywhere_is_carried_or_never_was(again: str, tmp_path: Path) -> None:
    async def ask(place: Path, at: int) -> int:
        disk = StruckDisk()
        agent = Agent("a", model=script_file(place / "m.json", *[{"text": "done"}] * 3))
        async with Runtime(agents=[agent], ground=disk_ground(place, disk)) as runtime:
            session = runtime.session("s", agent=agent)
            await (await session.send("zero", key="zero")).result()
            count = await asked(disk, at, session.send("one", key="one"))
            with suppress(SessionBusy):  # the run is carried, and another one must wait
                await (await session.send(again, key=again)).result()
            assert isinstance(await (await session.send("one", key="one")).result(), Completed)
        ended = {run.key: run.reason for run in at_rest(place).ended.values()}
        assert set(ended.values()) == {"completed"}
        assert {"zero", "one"} <= set(ended) <= {"zero", "one", "two"}
        return count

    assert await hang_up_at_each_call(ask, tmp_path) >= 20


async def lost(_arguments: object, _call: object) -> object:
    raise ConnectionResetError("gone")


async def verdict_beside_a_run(place: Path, at: int, plant: Plant = nothing) -> int:
    """Another run of the session waits for its tool while the verdict on a call of an earlier run is given."""
    disk, begun, gate = StruckDisk(), asyncio.Event(), asyncio.Event()

    async def wait(_arguments: object, _call: object) -> str:
        begun.set()
        await gate.wait()
        return "deployed"

    answers = {"calls": [call("pay")]}, {"calls": [call("deploy")]}, {"text": "done", "expect": "deployed"}
    tools = [counting("pay", behaviour=lost), counting("deploy", behaviour=wait)]
    agent = Agent("a", model=script_file(place / "m.json", *answers), tools=tools)
    async with Runtime(agents=[agent], ground=disk_ground(place, disk)) as runtime:
        session = runtime.session("s", agent=agent)
        paying = await (await session.send("pay")).result()
        assert isinstance(paying, Interrupted)
        run = await session.send("deploy")
        await begun.wait()
        plant(runtime)
        key = paying.unknown[0].call_key
        count = await asked(disk, at, runtime.resolve(key, "happened"))
        await runtime.resolve(key, "happened")
        gate.set()
        assert isinstance(await run.result(), Completed)
    assert [resolved.verdict for resolved in at_rest(place).resolved.values()] == ["happened"]
    return count


async def test_a_verdict_whose_giver_hangs_up_anywhere_leaves_the_run_beside_it_alone(tmp_path: Path) -> None:
    assert await hang_up_at_each_call(verdict_beside_a_run, tmp_path) >= 2


async def test_a_verdict_that_continues_whose_giver_hangs_up_anywhere_continues_once(tmp_path: Path) -> None:
    async def ask(place: Path, at: int) -> int:
        disk, pay = StruckDisk(), counting("pay", behaviour=lost)
        agent = Agent("a", model=script_file(place / "m.json", {"calls": [call("pay")]}, {"text": "done"}), tools=[pay])
        async with Runtime(agents=[agent], ground=disk_ground(place, disk)) as runtime:
            await (await runtime.session("s", agent=agent).send("pay")).result()
            count = await asked(disk, at, runtime.resolve(pay.keys[0], "happened", go_on=True))
            run = await runtime.resolve(pay.keys[0], "happened", go_on=True)
            assert run is not None
            assert isinstance(await run.result(), Completed)
        assert [ended.reason for ended in at_rest(place).ended.values()] == ["interrupted", "completed"]
        return count

    assert await hang_up_at_each_call(ask, tmp_path) >= 20


async def rested(runtime: Runtime) -> None:
    """Wait for the open run of the session, if it has one."""
    run = await runtime.resume("s")
    if run is not None:
        await run.rest()


class Stranded:
    """A log that a dead process left open in the middle of its call of `look`, to be copied into any place."""

    def __init__(self, agent: Agent[str], log: bytes) -> None:
        self.agent, self._log = agent, log

    @classmethod
    async def made(cls, tmp_path: Path) -> "Stranded":
        look, reached = hanging("look", Effect.READ)
        model = script_file(tmp_path / "m.json", {"calls": [call("look")]}, {"text": "done"}, {"text": "done again"})
        medium, agent = Medium(), Agent("a", model=model, tools=[look])
        await Life(medium, agent, reached).die_in_the_tool()
        return cls(agent, bytes(medium.logs["s"].data))

    def copied(self, place: Path) -> tuple[Agent[str], CountingTool]:
        """The log in that place, and its agent with a tool that comes back."""
        directory = place / "sessions" / "s"
        for level in (place, directory.parent, directory):
            level.mkdir(mode=0o700, exist_ok=True)
        (directory / "wal.log").write_bytes(self._log)
        (directory / "wal.log").chmod(0o600)
        look = counting("look", Effect.READ)
        return Agent("a", model=self.agent.model, tools=[look]), look


async def test_a_resume_whose_caller_hangs_up_anywhere_is_carried_or_never_was(tmp_path: Path) -> None:
    stranded = await Stranded.made(tmp_path)

    async def ask(place: Path, at: int) -> int:
        disk, hung_up = StruckDisk(), asyncio.Event()
        agent, look = stranded.copied(place)

        async def act(_arguments: object, _call: object) -> str:
            await hung_up.wait()  # the run goes no further, so that each asking makes the same calls
            return "look ok"

        look.behaviour = act
        async with Runtime(agents=[agent], ground=disk_ground(place, disk), recover="manual") as runtime:
            count = await asked(disk, at, runtime.resume("s"))
            hung_up.set()
            await rested(runtime)
        assert [ended.reason for ended in at_rest(place).ended.values()] == ["completed"]
        assert len(look.keys) == 1
        return count

    assert await hang_up_at_each_call(ask, tmp_path) >= 20


async def test_a_send_behind_a_stranded_run_whose_caller_hangs_up_anywhere_loses_neither(tmp_path: Path) -> None:
    stranded = await Stranded.made(tmp_path)

    async def ask(place: Path, at: int) -> int:
        disk = StruckDisk()
        agent, look = stranded.copied(place)
        async with Runtime(agents=[agent], ground=disk_ground(place, disk), recover="manual") as runtime:
            session = runtime.session("s", agent=agent)
            count = await asked(disk, at, session.send("more", key="k2"))
            await rested(runtime)
            assert isinstance(await (await session.send("more", key="k2")).result(), Completed)
        assert [(ended.key, ended.reason) for ended in at_rest(place).ended.values()] == [("k", "completed"), ("k2", "completed")]
        assert len(look.keys) == 1
        return count

    assert await hang_up_at_each_call(ask, tmp_path) >= 40
