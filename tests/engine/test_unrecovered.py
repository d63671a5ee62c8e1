"""`Runtime.unrecovered`: what could not be resumed at the start, for as long as nothing has mended it."""

import asyncio
from pathlib import Path

import pytest

from semel import Agent, Completed, Runtime
from semel.adapters.memory.store import Medium
from semel.core.values import Effect
from semel.engine.sessions import Sessions
from semel.errors import BadAgent, LogDamaged
from tests.engine.fakes import CountingTool, call, counting, ground, script_file
from tests.engine.slow import StandingClock, disk_ground
from tests.engine.test_resume import Life, hanging
from tests.engine.test_tried_again import _cannot_be_opened, pass_until

pytestmark = pytest.mark.anyio


class Left:
    """A session whose process died in a call that may run again."""

    def __init__(self, tmp_path: Path) -> None:
        self.medium = Medium()
        self.look, self.reached = hanging("look", Effect.READ)
        model = script_file(tmp_path / "m.json", {"calls": [call("look")]}, {"text": "done"}, {"text": "more"})
        self.agent = Agent("a", model=model, tools=[self.look])

    async def die(self) -> Medium:
        await Life(self.medium, self.agent, self.reached).die_in_the_tool()
        return self.medium

    def without_its_tool(self) -> Agent[str]:
        other: CountingTool = counting("other")
        return Agent("a", model=self.agent.model, tools=[other])


async def begun(runtime: Runtime) -> None:
    assert runtime._recovery is not None
    await runtime._recovery


async def test_a_session_whose_log_was_mended_and_which_was_resumed_is_named_no_longer(tmp_path: Path) -> None:
    left = Left(tmp_path)
    log = (await left.die()).logs["s"].data
    log[300] ^= 1
    async with Runtime(agents=[left.agent], ground=ground(left.medium)) as runtime:
        await begun(runtime)
        assert isinstance(runtime.unrecovered["s"], LogDamaged)
        with pytest.raises(LogDamaged):
            await runtime.resume("s")
        assert set(runtime.unrecovered) == {"s"}, "a try that fails mends nothing"
        log[300] ^= 1
        run = await runtime.resume("s")
        assert runtime.unrecovered == {}
        assert run is not None
        assert isinstance(await run.result(), Completed)


async def test_a_session_that_goes_on_by_itself_in_a_later_try_is_named_no_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, gate, called = StandingClock(), asyncio.Event(), asyncio.Event()
    at = disk_ground(tmp_path / "s", clock=clock)

    async def wait(_arguments: object, _call: object) -> str:
        called.set()
        await gate.wait()
        return "seen"

    model = script_file(tmp_path / "m.json", {"calls": [call("look")]}, {"text": "done"})
    agent = Agent("a", model=model, tools=[counting("look", Effect.READ, wait)])
    async with Runtime(agents=[agent], ground=at, drain_seconds=0) as first:
        await first.session("s", agent=agent).send("go")
        await called.wait()
    gate.set()
    async with Runtime(agents=[agent], ground=at) as runtime:
        with monkeypatch.context() as broken:
            broken.setattr(type(at.store), "open", _cannot_be_opened)
            await begun(runtime)
            assert set(runtime.unrecovered) == {"s"}
        await pass_until(clock, lambda: runtime.status("s").state == "completed")
        assert runtime.unrecovered == {}


async def test_a_session_that_was_only_opened_and_whose_run_still_cannot_go_on_is_named_on(tmp_path: Path) -> None:
    left = Left(tmp_path)
    async with Runtime(agents=[agent := left.without_its_tool()], ground=ground(await left.die())) as runtime:
        await begun(runtime)
        assert isinstance(runtime.unrecovered["s"], BadAgent)
        await runtime.session("s", agent=agent).send("later", delivery="queue")
        assert set(runtime.unrecovered) == {"s"}
        assert await runtime.cancel("s") is not None
        assert runtime.unrecovered == {}


async def test_what_is_handed_out_is_a_copy(tmp_path: Path) -> None:
    left = Left(tmp_path)
    async with Runtime(agents=[left.without_its_tool()], ground=ground(await left.die())) as runtime:
        await begun(runtime)
        runtime.unrecovered.clear()
        assert set(runtime.unrecovered) == {"s"}


async def test_an_entry_that_is_never_removed_would_be_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Kept(dict[str, Exception]):
        def pop(self, *_key: object) -> None:  # type: ignore[override]  # the planted fault
            """Nothing goes."""

    made = Sessions.__init__

    def keeps(self: Sessions, *given: object, **named: object) -> None:
        made(self, *given, **named)  # type: ignore[arg-type]  # as they came
        self.unrecovered = Kept()

    monkeypatch.setattr(Sessions, "__init__", keeps)
    with pytest.raises(AssertionError):
        await test_a_session_whose_log_was_mended_and_which_was_resumed_is_named_no_longer(tmp_path)
