"""Foreign code that misbehaves, views that cannot be written, and moments between two states: each ends by name."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from semel import Agent, Completed, Failed, Interrupted, Runtime
from semel.adapters.memory.store import Medium, MemoryStore, MemoryWriter
from semel.adapters.models.openai_chat.options import ChatOptions
from semel.adapters.models.openai_chat.render import ChatForm
from semel.adapters.models.rendering import Renderer
from semel.adapters.system import SystemClock, SystemIds
from semel.core.decide import send
from semel.core.effects import Answered, CallModel
from semel.core.features import KNOWN
from semel.core.prompt import prompt_of
from semel.core.status import decode_status
from semel.core.values import JSON, Bundle, Effect, Opaque, Prompt, ToolSpec
from semel.engine.resume import Ground
from semel.engine.session import open_actor
from semel.errors import SemelError, StoreError, WriterPoisoned
from semel.faces.agent import kit_for_open_run
from semel.ports.model import Answer, Request
from semel.ports.tool import Call, Reconciled
from tests.core.machine import Machine, Script, World, say, tool
from tests.core.machine import call as calls
from tests.core.said import find_in
from tests.engine.fakes import CountingTool, call, counting, ground, script_file
from tests.engine.test_resume import Life, hanging

pytestmark = pytest.mark.anyio

SOON_SECONDS = 5


async def stranded(tmp_path: Path, effect: Effect, **options: object) -> tuple[Agent[str], CountingTool, Medium]:
    """An agent and its tool, and the log of a process that died in that tool's call."""
    medium = Medium()
    tool, reached = hanging("act", effect, **options)
    model = script_file(tmp_path / "m.json", {"calls": [call("act")]}, {"text": "done"}, {"text": "done again"})
    agent = Agent("a", model=model, tools=[tool])
    await Life(medium, agent, reached).die_in_the_tool()
    return agent, tool, medium


class Cancelling(CountingTool):
    """A tool whose library cancels itself when it is asked what became of a call."""

    async def reconcile(self, call: Call[object]) -> Reconciled:
        raise asyncio.CancelledError


async def test_a_question_that_cancels_itself_leaves_the_call_unknown_and_its_caller_alone(tmp_path: Path) -> None:
    agent, act, medium = await stranded(tmp_path, Effect.ONCE, reconciles=True)
    agent = Agent("a", model=agent.model, tools=[Cancelling(spec=act.spec)])
    async with Runtime(agents=[agent], ground=ground(medium), recover="manual") as runtime:
        run = await runtime.resume("s")
        assert run is not None
        assert isinstance(await run.result(), Interrupted)


class FullWriter(MemoryWriter):
    """A writer on a disk that has room for the log, and none for a status until `room` is made."""

    room: asyncio.Event

    def publish_status(self, status: bytes) -> None:
        if not self.room.is_set():
            raise StoreError("no space left for the status")
        super().publish_status(status)


class FullStore(MemoryStore):
    """Hands out writers on a full disk."""

    def __init__(self) -> None:
        super().__init__(SystemClock(), known=KNOWN)
        self.room = asyncio.Event()

    async def open(self, session: str, **given: Any) -> FullWriter:
        writer = await super().open(session, **given)
        writer.__class__ = FullWriter
        assert isinstance(writer, FullWriter)
        writer.room = self.room
        return writer


async def test_a_status_that_cannot_be_written_takes_no_acknowledgement_back_and_is_written_later(tmp_path: Path) -> None:
    store, gate = FullStore(), asyncio.Event()

    async def wait(_arguments: object, _call: object) -> str:
        await gate.wait()
        return "looked"

    model = script_file(tmp_path / "m.json", {"calls": [call("look")]}, {"text": "done"})
    agent = Agent("a", model=model, tools=[counting("look", behaviour=wait)])
    async with Runtime(agents=[agent], ground=Ground(store=store, clock=SystemClock(), ids=SystemIds())) as runtime:
        run = await runtime.session("s", agent=agent).send("go")
        assert ["status.json could not be written" in warning for warning in run.warnings] == [True]
        assert store.read_status("s") is None
        store.room.set()
        gate.set()
        assert isinstance(await run.result(), Completed)
    status = decode_status(store.read_status("s"))
    assert status is not None
    assert status.state == "completed"


class Exploding:
    """A tool that cannot even say what it is."""

    @property
    def spec(self) -> ToolSpec:
        raise RuntimeError("boom")


async def test_a_session_that_breaks_its_resume_is_named_and_keeps_no_other_from_being_resumed(tmp_path: Path) -> None:
    good, look, medium = await stranded(tmp_path, Effect.READ)
    hang, reached = hanging("act", Effect.READ)
    await Life(medium, Agent("bad", model=good.model, tools=[hang]), reached, session="before").die_in_the_tool()
    bad = Agent("bad", model=good.model, tools=[Exploding()])  # type: ignore[list-item]  # that is the point
    async with Runtime(agents=[good, bad], ground=ground(medium)) as runtime:
        assert runtime._recovery is not None
        await runtime._recovery
        assert list(runtime.unrecovered) == ["before"]
        run = await runtime.resume("s")
        assert run is not None
        assert isinstance(await run.result(), Completed)
    assert len(look.keys) == 2


class BrokenModel:
    """A model object that raises what no model may."""

    bundle = Bundle(family="scripted", model="m", endpoint="", renderer=1)

    def render(self, prompt: Prompt) -> Request:
        return Request(body=b"{}", sha256="0" * 64)

    async def stream(self, request: Request) -> AsyncIterator[Answer]:
        raise ValueError("bad day")
        yield

    async def close(self) -> None:
        pass


async def test_a_model_object_that_breaks_its_contract_fails_the_run_by_name(tmp_path: Path) -> None:
    agent = Agent("a", model=BrokenModel())  # type: ignore[arg-type]  # a generator that is not typed as one
    async with Runtime(agents=[agent], ground=ground()) as runtime:
        result = await (await runtime.session("s", agent=agent).send("go")).result()
    assert isinstance(result, Failed)
    assert result.error is not None
    assert "bad day" in result.error.message


async def test_a_resume_in_the_moment_in_which_a_broken_run_is_given_back_says_that_nobody_carries_it(tmp_path: Path) -> None:
    agent, act, medium = await stranded(tmp_path, Effect.READ)
    on = ground(medium)

    async def fail(_arguments: object, _call: object) -> str:
        medium.fault = "sync"
        return "looked"

    act.behaviour = fail
    actor = await open_actor(on, "s")
    assert actor.state.run is not None
    kit = kit_for_open_run(agent, actor.state.run, None, on.clock)
    await actor.resume(kit)
    with pytest.raises(WriterPoisoned):
        await actor.carried().to_rest()
    with pytest.raises(WriterPoisoned):
        await actor.resume(kit)
    await actor.close()


async def test_a_tool_that_sends_to_its_own_session_does_not_wait_for_itself(tmp_path: Path) -> None:
    agent, act, medium = await stranded(tmp_path, Effect.READ)
    said: list[str] = []
    async with Runtime(agents=[agent], ground=ground(medium), recover="manual", drain_seconds=0) as runtime:
        session = runtime.session("s", agent=agent)

        async def knock(_arguments: object, _call: object) -> str:
            try:
                await session.send("from within", key="inner")
            except SemelError as error:
                said.append(error.code)
            return "looked"

        act.behaviour = knock
        async with asyncio.timeout(SOON_SECONDS):  # the run that was left open is carried to its rest before this is accepted
            run = await session.send("more", key="k2")
        assert isinstance(await run.result(), Completed)
    assert said == ["session_busy"]


async def test_a_key_that_was_used_gives_its_run_whatever_has_become_of_the_agent(tmp_path: Path) -> None:
    works = True

    def instructions(_context: JSON) -> str:
        if not works:
            raise RuntimeError("the database is down")
        return "be good"

    agent = Agent("a", model=script_file(tmp_path / "m.json", {"text": "done"}), instructions=instructions)
    async with Runtime(agents=[agent], ground=ground()) as runtime:
        session = runtime.session("s", agent=agent)
        await (await session.send("go", key="k")).result()
        works = False
        assert (await (await session.send("go", key="k")).result()).output == "done"


def test_p4_a_request_does_not_depend_on_what_its_process_has_rendered_before() -> None:
    """Run 1 and 3 on a model that keeps state of its own, run 2 on another; the model object serves them all."""
    secret = Opaque(format="reasoning_content", data='"hm"')
    script = Script(answers=[[secret, *calls("read")], say("1"), say("2"), say("3")], tools=[tool("read", Effect.READ)])
    bundle = Bundle(family="openai_chat", model="m", endpoint="http://x/v1", renderer=1)
    shared = Renderer(ChatForm(bundle, ChatOptions()))
    bodies: list[tuple[bytes, bytes]] = []

    class Rendering(Machine):
        """Renders each request of the first model twice: in a renderer that has served before, and in a fresh one."""

        def answer(self, effect: CallModel) -> Answered:
            run = self.state.run
            assert run is not None
            if run.config.bundle.model == "m":
                prompt = prompt_of(self.state, run, find_in(self.world.logged()))
                bodies.append((shared.render(prompt).body, Renderer(ChatForm(bundle, ChatOptions())).render(prompt).body))
            return super().answer(effect)

    machine = Rendering(World(), script)
    machine.start()
    command = script.command("k2", "another model")
    other = replace(command.config.bundle, model="other")
    machine.run(send(machine.state, replace(command, config=replace(command.config, bundle=other))))
    machine.start("k3", "back")
    assert [served == fresh for served, fresh in bodies] == [True, True, True]
    assert b"hm" in bodies[1][1]


async def test_an_open_session_keeps_no_payload_beside_its_state(tmp_path: Path) -> None:
    begun, gate, big = asyncio.Event(), asyncio.Event(), "x" * 100_000

    async def look(_arguments: object, told: Call[object]) -> str:
        if len(tool.keys) > 20:
            begun.set()
            await gate.wait()
        return big

    tool = counting("look", Effect.READ, behaviour=look)
    turns: list[Any] = [{"calls": [call("look", n=n)]} for n in range(20)]
    agent = Agent("a", model=script_file(tmp_path / "m.json", *turns, {"text": "x"}, *turns[:1], {"text": "y"}), tools=[tool])
    async with Runtime(agents=[agent], ground=ground()) as runtime:
        session = runtime.session("s", agent=agent)
        await (await session.send("go")).result()
        run = await session.send("more")
        await begun.wait()
        kept = sum(len(frame.payload) for frame in runtime._keeper.sessions.actors["s"]._writer.frames)
        gate.set()
        await run.result()
    assert kept < len(big)
