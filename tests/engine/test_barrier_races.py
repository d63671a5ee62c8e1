"""What happens in a session while a sync is under way in its thread: one commit at a time, and none is lost (B3, B16)."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from semel import Agent, Completed, Interrupted, Limits, Runtime, wiring
from semel.core.effects import Resolve
from semel.errors import SemelError
from semel.faces.views import view_of
from semel.ports.tool import Call, ProcessMark
from tests.engine.fakes import Plant, call, counting, loop_turns, nothing, script_file
from tests.engine.slow import HeldDisk, SlowDisk, disk_ground

pytestmark = pytest.mark.anyio

MARK = ProcessMark(pid=1, started=1, boot="b")


async def lost(_arguments: object, _call: object) -> object:
    raise ConnectionResetError("gone")


async def process_beside_a_sync(tmp_path: Path, plant: Plant = nothing, *, full_for: int = 0) -> list[str]:
    """The second call starts its process while the return of the first is being synced; tells the types of all records.

    So many writes behind that sync find no space.
    """
    disk = HeldDisk()

    async def act(_arguments: object, told: Call[object]) -> str:
        if told.ordinal == 0:
            disk.hold()
            return "one"
        await disk.held()
        try:
            told.spawned(MARK)
            disk.full_for = full_for
        finally:
            disk.let_go()
        return "two"

    model = script_file(tmp_path / "m.json", {"calls": [call("pay"), call("pay")]}, {"text": "done", "expect": "two"})
    agent = Agent("a", model=model, tools=[counting("pay", behaviour=act)])
    async with Runtime(agents=[agent], ground=disk_ground(tmp_path / "s", disk)) as runtime:
        run = await runtime.session("s", agent=agent).send("go")
        plant(runtime)
        events = [event["type"] async for event in run.events(after=0)]
        assert isinstance(await run.result(), Completed)
    return events


async def test_a_process_that_starts_while_the_return_of_another_call_is_synced_is_recorded_behind_it(tmp_path: Path) -> None:
    events = await process_beside_a_sync(tmp_path)
    assert [kind for kind in events if kind in ("tool_call_returned", "tool_process")] == ["tool_call_returned", "tool_process"]


@pytest.mark.parametrize("full_for", [1, 2])
async def test_a_process_that_there_is_no_space_for_behind_a_sync_undoes_nothing_and_is_recorded_with_the_next(
    full_for: int, tmp_path: Path
) -> None:
    """What was synced is durable, whatever becomes of the note behind it."""
    events = await process_beside_a_sync(tmp_path, full_for=full_for)
    kinds = ("tool_call_returned", "tool_process", "tool_batch_finished", "run_finished")
    assert [kind for kind in events if kind in kinds] == list(kinds if full_for == 1 else [kinds[0], *kinds[2:]])


def asked_of(runtime: Runtime) -> asyncio.Event:
    """Set when a verdict has come to the session: before that it is looked for in a thread."""
    actor, asked = runtime._keeper.sessions.actors["s"], asyncio.Event()
    resolve = actor.resolve

    async def told(command: Resolve) -> None:
        asked.set()
        await resolve(command)

    actor.resolve = told  # type: ignore[method-assign]  # it tells
    return asked


async def both_at_once(
    disk: HeldDisk, first: str, verdict: Coroutine[Any, Any, object], gate: asyncio.Event, asked: asyncio.Event
) -> Awaitable[object]:
    """Give the verdict and let the call come back, the second one while the first one is being synced."""
    disk.hold()
    try:
        if first == "return":
            gate.set()
            await disk.held()
        resolving = asyncio.ensure_future(verdict)
        if first == "verdict":
            await disk.held()
            gate.set()
        await asked.wait()
        await loop_turns()
    finally:
        disk.let_go()
    return resolving


async def verdict_beside_a_return(tmp_path: Path, first: str, plant: Plant = nothing) -> None:
    """A call comes back while the verdict on another run's call is synced, or the verdict is given while the return is."""
    disk, begun, gate = HeldDisk(), asyncio.Event(), asyncio.Event()

    async def wait(_arguments: object, _call: object) -> str:
        begun.set()
        await gate.wait()
        return "deployed"

    answers = {"calls": [call("pay")]}, {"calls": [call("deploy")]}, {"text": "done", "expect": "deployed"}
    tools = [counting("pay", behaviour=lost), counting("deploy", behaviour=wait)]
    agent = Agent("a", model=script_file(tmp_path / "m.json", *answers), tools=tools)
    async with Runtime(agents=[agent], ground=disk_ground(tmp_path / "s", disk)) as runtime:
        session = runtime.session("s", agent=agent)
        paying = await (await session.send("pay")).result()
        assert isinstance(paying, Interrupted)
        run = await session.send("deploy")
        await begun.wait()
        plant(runtime)
        verdict = runtime.resolve(paying.unknown[0].call_key, "happened")
        resolving = await both_at_once(disk, first, verdict, gate, asked_of(runtime))
        await resolving
        assert isinstance(await run.result(), Completed)
        assert runtime.inbox() == []


@pytest.mark.parametrize("first", ["verdict", "return"])
async def test_a_verdict_and_the_return_of_another_runs_call_are_both_recorded_whichever_is_synced_first(
    first: str, tmp_path: Path
) -> None:
    await verdict_beside_a_return(tmp_path, first)


async def test_a_send_that_is_repeated_while_a_process_is_only_noted_gives_the_run_under_way(tmp_path: Path) -> None:
    begun, gate = asyncio.Event(), asyncio.Event()

    async def act(_arguments: object, told: Call[object]) -> str:
        told.spawned(MARK)
        begun.set()
        await gate.wait()
        return "ok"

    model = script_file(tmp_path / "m.json", {"calls": [call("pay")]}, {"text": "done"})
    agent = Agent("a", model=model, tools=[counting("pay", behaviour=act)])
    async with Runtime(agents=[agent], ground=disk_ground(tmp_path / "s")) as runtime:
        session = runtime.session("s", agent=agent)
        run = await session.send("go", key="k")
        await begun.wait()
        again = await session.send("go", key="k")
        gate.set()
        assert again.run_id == run.run_id
        assert isinstance(await again.result(), Completed)


async def test_more_quick_commands_than_may_run_at_once_all_run_and_complete(tmp_path: Path) -> None:
    spec = {"command": ["touch", "made-{n}"], "args": {"n": "integer"}}
    calls = [call("make", n=n) for n in range(12)]
    agent = Agent(
        "a",
        model=script_file(tmp_path / "m.json", {"calls": calls}, {"text": "done"}),
        tools=[wiring.command_tool("make", spec, tmp_path)],
        limits=Limits(parallel_calls=4),
    )
    async with Runtime(agents=[agent], ground=disk_ground(tmp_path / "s", SlowDisk())) as runtime:
        result = await (await runtime.session("s", agent=agent).send("go")).result()
    assert isinstance(result, Completed)
    assert len(list(tmp_path.glob("made-*"))) == len(calls)


async def process_told_of_late(tmp_path: Path, when: str, plant: Plant = nothing) -> None:
    """A tool of the second step tells of a process of the first one's call, at rest or while a sync is under way."""
    disk, told_of = HeldDisk(), list[Callable[[ProcessMark], None]]()

    async def act(_arguments: object, told: Call[object]) -> str:
        told_of.append(told.spawned)
        if told.step_id == 1:
            return "one"
        if when == "within a sync" and told.ordinal == 0:
            disk.hold()
            return "two"
        if when == "within a sync":
            await disk.held()
        try:
            with suppress(SemelError):
                told_of[0](MARK)
        finally:
            disk.let_go()
        return "three"

    turns = {"calls": [call("pay")]}, {"calls": [call("pay"), call("pay")]}, {"text": "done", "expect": "three"}
    agent = Agent("a", model=script_file(tmp_path / "m.json", *turns), tools=[counting("pay", behaviour=act)])
    async with Runtime(agents=[agent], ground=disk_ground(tmp_path / "s", disk)) as runtime:
        run = await runtime.session("s", agent=agent).send("go")
        plant(runtime)
        assert isinstance(await run.result(), Completed)
    assert view_of(disk_ground(tmp_path / "s").store, "s").state.run is None


@pytest.mark.parametrize("when", ["at rest", "within a sync"])
async def test_a_process_that_is_told_of_when_its_batch_is_over_is_not_recorded_and_the_log_reads(
    when: str, tmp_path: Path
) -> None:
    await process_told_of_late(tmp_path, when)
