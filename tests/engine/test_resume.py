"""A process dies in the middle of a run; the next one finds the log and goes on. Deaths are simulated on a store in memory."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from semel import Agent, Completed, Happened, Interrupted, Limits, Never, Runtime
from semel.adapters.memory.store import Medium, MemoryStore
from semel.core.decide import send
from semel.core.values import Effect
from semel.engine.feed import Feed
from semel.engine.resume import Ground, open_session
from semel.errors import BadAgent, KeyReuse, OutcomePending, RunNotCompleted, SessionBusy
from semel.faces.agent import kit_for_new_run, send_command
from semel.faces.run import RunHandle
from semel.ports.model import BundleRefused
from semel.ports.tool import Call
from tests.engine.fakes import CountingTool, call, counting, ground, script_file

pytestmark = pytest.mark.anyio


Begin = Callable[[Runtime], Awaitable[RunHandle[str]]]


class Life:
    """One process on a medium: it sends, reaches a tool that never comes back, and dies there."""

    def __init__(self, medium: Medium, agent: Agent[str], reached: asyncio.Event, session: str = "s") -> None:
        self.ground: Ground = ground(medium)
        self.agent = agent
        self.reached = reached
        self.session = session

    async def die_in_the_tool(self, begin: Begin | None = None) -> RunHandle[str]:
        """`begin` starts a run, by default with a send."""
        before = asyncio.all_tasks()
        runtime = Runtime(agents=[self.agent], ground=self.ground, recover="manual")
        begin = begin or (lambda runtime: runtime.session(self.session, agent=self.agent).send("go", key="k"))
        run = await begin(runtime)
        await self.reached.wait()
        store = self.ground.store
        assert isinstance(store, MemoryStore)
        store.crash()
        dead = asyncio.all_tasks() - before
        for task in dead:
            task.cancel()  # nothing that a dead process does afterwards reaches its store
        await asyncio.gather(*dead, return_exceptions=True)
        return run


def hanging(name: str, effect: Effect = Effect.ONCE, **options: object) -> tuple[CountingTool, asyncio.Event]:
    """A tool whose first call never comes back."""
    reached = asyncio.Event()
    tool = counting(name, effect, **options)

    async def act(_arguments: object, _call: object) -> object:
        if len(tool.keys) == 1:
            reached.set()
            await asyncio.Event().wait()
        return f"{name} ok"

    tool.behaviour = act
    return tool, reached


async def test_entering_a_runtime_resumes_open_runs_of_its_agents(tmp_path: Path) -> None:
    medium = Medium()
    look, reached = hanging("look", Effect.READ)
    model = script_file(tmp_path / "m.json", {"calls": [call("look")]}, {"text": "done"})
    agent = Agent("a", model=model, tools=[look])
    await Life(medium, agent, reached).die_in_the_tool()
    async with Runtime(agents=[agent], ground=ground(medium)) as runtime:
        run = await runtime.session("s", agent=agent).send("go", key="k")  # the same key: the run that is being resumed
        result = await run.result()
    assert isinstance(result, Completed)
    assert look.keys[0] == look.keys[1]
    assert len(look.keys) == 2


async def test_a_runtime_leaves_open_runs_of_other_agents_alone(tmp_path: Path) -> None:
    medium = Medium()
    look, reached = hanging("look", Effect.READ)
    model = script_file(tmp_path / "m.json", {"calls": [call("look")]}, {"text": "done"})
    await Life(medium, Agent("a", model=model, tools=[look]), reached).die_in_the_tool()
    other = Agent("b", model=model)
    async with Runtime(agents=[other], ground=ground(medium)) as runtime:
        with pytest.raises(BadAgent, match="no agent 'a' is registered"):
            await runtime.resume("s")
    assert len(look.keys) == 1


async def test_p3_a_lost_once_call_is_unknown_after_the_resume_and_a_send_made_before_is_not_accepted(tmp_path: Path) -> None:
    medium = Medium()
    pay, reached = hanging("pay")
    model = script_file(tmp_path / "m.json", {"calls": [call("pay")]}, {"text": "done"})
    agent = Agent("a", model=model, tools=[pay])
    await Life(medium, agent, reached).die_in_the_tool()
    async with Runtime(agents=[agent], ground=ground(medium), recover="manual") as runtime:
        session = runtime.session("s", agent=agent)
        with pytest.raises(OutcomePending, match="not accepted"):
            await session.send("are you there?", key="k2")
        assert [item.call.tool for item in runtime.inbox()] == ["pay"]
        result = await (await session.send("are you there?", key="k2")).result()  # made after it is known: it goes on
    assert isinstance(result, Completed)
    assert len(pay.keys) == 1


@pytest.mark.parametrize(("found", "text"), [(Happened(output="it is paid"), "it is paid"), (Never(), "Did not happen")])
async def test_a_lost_once_call_that_can_be_asked_about_is_asked_and_the_run_goes_on(
    found: Happened | Never, text: str, tmp_path: Path
) -> None:
    medium = Medium()
    pay, reached = hanging("pay", reconciles=True, found=found)
    model = script_file(tmp_path / "m.json", {"calls": [call("pay")]}, {"text": "done", "expect": text})
    agent = Agent("a", model=model, tools=[pay])
    await Life(medium, agent, reached).die_in_the_tool()
    async with Runtime(agents=[agent], ground=ground(medium), recover="manual") as runtime:
        run = await runtime.resume("s")
        assert run is not None
        assert isinstance(await run.result(), Completed)
    assert pay.asked == pay.keys
    assert len(pay.keys) == 1


async def test_a_lost_once_call_that_the_outside_cannot_tell_about_stays_unknown(tmp_path: Path) -> None:
    medium = Medium()
    pay, reached = hanging("pay", reconciles=True)
    model = script_file(tmp_path / "m.json", {"calls": [call("pay")]}, {"text": "done"})
    agent = Agent("a", model=model, tools=[pay])
    await Life(medium, agent, reached).die_in_the_tool()
    async with Runtime(agents=[agent], ground=ground(medium), recover="manual") as runtime:
        run = await runtime.resume("s")
        assert run is not None
        assert isinstance(await run.result(), Interrupted)
    assert len(pay.asked) == 1


async def test_a_tool_that_kills_its_process_each_time_is_given_up_after_three_reruns(tmp_path: Path) -> None:
    medium = Medium()
    reached = asyncio.Event()

    async def never(_arguments: object, _call: object) -> object:
        reached.set()
        return await asyncio.Event().wait()

    look = counting("look", Effect.READ, behaviour=never)
    model = script_file(tmp_path / "m.json", {"calls": [call("look")]}, {"text": "done", "expect": "may have run"})
    agent = Agent("a", model=model, tools=[look])
    for _ in range(4):
        reached.clear()
        await Life(medium, agent, reached).die_in_the_tool()
    async with Runtime(agents=[agent], ground=ground(medium), recover="manual") as runtime:
        run = await runtime.resume("s")
        assert run is not None
        assert isinstance(await run.result(), Completed)
    assert len(look.keys) == 4


async def test_p4_a_resume_with_another_schema_of_a_tool_is_refused_by_name_and_changes_nothing(tmp_path: Path) -> None:
    medium = Medium()
    look, reached = hanging("look", Effect.READ)
    model = script_file(tmp_path / "m.json", {"calls": [call("look")]}, {"text": "done"})
    await Life(medium, Agent("a", model=model, tools=[look]), reached).die_in_the_tool()
    before = bytes(medium.logs["s"].data)
    for changed, why in [
        ([], "has no tool 'look'"),
        ([counting("look", Effect.ONCE)], "another effect"),
        ([counting("look", Effect.READ, sequential=True)], "another sequential"),
    ]:
        async with Runtime(agents=[Agent("a", model=model, tools=changed)], ground=ground(medium), recover="manual") as runtime:
            with pytest.raises(BadAgent, match=why):
                await runtime.resume("s")
    assert bytes(medium.logs["s"].data) == before


async def test_a_key_that_is_used_again_gives_its_run_or_is_refused_naming_the_field(tmp_path: Path) -> None:
    medium = Medium()
    agent = Agent("a", model=script_file(tmp_path / "m.json", {"text": "one"}, {"text": "two"}))
    async with Runtime(agents=[agent], ground=ground(medium)) as runtime:
        session = runtime.session("s", agent=agent)
        first = await session.send("go", key="k")
        assert (await first.result()).output == "one"
        again = await session.send("go", key="k")
        assert again.run_id == first.run_id
        assert (await again.result()).output == "one"
        with pytest.raises(KeyReuse, match="another input"):
            await session.send("go!", key="k")
        with pytest.raises(KeyReuse, match="another context"):
            await runtime.session("s", agent=agent, context={"tenant": 1}).send("go", key="k")


async def test_a_second_send_while_a_run_is_open_is_refused_and_another_process_is_told_who_holds_the_session(
    tmp_path: Path,
) -> None:
    medium = Medium()
    gate = asyncio.Event()

    async def wait(_arguments: object, _call: object) -> str:
        await gate.wait()
        return "ok"

    model = script_file(tmp_path / "m.json", {"calls": [call("look")]}, {"text": "done"})
    agent = Agent("a", model=model, tools=[counting("look", Effect.READ, behaviour=wait)])
    async with (
        Runtime(agents=[agent], ground=ground(medium)) as runtime,
        Runtime(agents=[agent], ground=ground(medium), recover="manual") as other,
    ):
        run = await runtime.session("s", agent=agent).send("go", key="k")
        with pytest.raises(SessionBusy, match="open run"):
            await runtime.session("s", agent=agent).send("more", key="k2")
        with pytest.raises(SessionBusy, match="in use by"):
            await other.session("s", agent=agent).send("more", key="k2")
        gate.set()
        assert isinstance(await run.result(), Completed)


async def test_leaving_a_runtime_lets_calls_come_back_and_the_next_one_goes_on(tmp_path: Path) -> None:
    medium = Medium()
    reached, gate = asyncio.Event(), asyncio.Event()

    async def slow(_arguments: object, _call: Call[object]) -> str:
        reached.set()
        await gate.wait()
        return "paid"

    pay = counting("pay", behaviour=slow)
    model = script_file(tmp_path / "m.json", {"calls": [call("pay")]}, {"text": "done", "expect": "paid"})
    agent = Agent("a", model=model, tools=[pay])
    async with Runtime(agents=[agent], ground=ground(medium)) as runtime:
        run = await runtime.session("s", agent=agent).send("go", key="k")
        await reached.wait()
        asyncio.get_running_loop().call_later(0.02, gate.set)
    with pytest.raises(RunNotCompleted, match="semel resume"):
        await run.result()
    async with Runtime(agents=[agent], ground=ground(medium), recover="manual") as runtime:
        resumed = await runtime.resume("s")
        assert resumed is not None
        assert isinstance(await resumed.result(), Completed)
    assert len(pay.keys) == 1


async def test_a_run_over_its_step_limit_fails_by_name_with_its_last_calls_done(tmp_path: Path) -> None:
    look = counting("look", Effect.READ)
    turns = [{"calls": [call("look", n=at)]} for at in range(5)]
    agent = Agent("a", model=script_file(tmp_path / "m.json", *turns), tools=[look], limits=Limits(steps=3))
    async with Runtime(agents=[agent], ground=ground()) as runtime:
        result = await (await runtime.session("s", agent=agent).send("go")).result()
    assert result.reason == "max_steps"
    assert len(look.keys) == 3


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"renderer": 99}, "renderer_version_drift"),
        ({"options": "not json"}, "frozen_render_config_unverifiable"),
        ({"options": "{ }"}, "frozen_render_config_drift"),
    ],
)
async def test_p10_a_run_that_was_frozen_to_what_this_build_renders_otherwise_is_refused_before_anything_is_written_or_asked(
    changes: dict[str, Any], reason: str
) -> None:
    medium = Medium()
    agent = Agent("a", model="openai_chat:m@http://127.0.0.1:9/v1")
    frozen = kit_for_new_run(agent, None, ground(medium).clock)
    begun = send_command(agent, frozen, "go", "k", None)
    begun = replace(begun, config=replace(begun.config, bundle=replace(begun.config.bundle, **changes)))
    writer, barrier = await open_session(ground(medium), "s", Feed())
    await barrier.commit(send(barrier.state, begun).records)
    await writer.close()
    before = bytes(medium.logs["s"].data)
    async with Runtime(agents=[agent], ground=ground(medium), recover="manual") as runtime:
        with pytest.raises(BundleRefused, match=reason):
            await runtime.resume("s")
    assert bytes(medium.logs["s"].data) == before
