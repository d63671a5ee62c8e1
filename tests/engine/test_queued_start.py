"""A run's end is told when it is durable, however long the next run of the queue takes to start; the queue keeps its order."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from semel import Agent, Cancelled, Completed, Held, Runtime
from semel.core.values import Effect, ToolSpec
from semel.engine.resume import Ground
from semel.engine.session import SessionActor
from semel.engine.sessions import Sessions
from semel.errors import BadAgent
from semel.faces.run import RunHandle
from semel.ports.source import OpenSource, ToolSource
from tests.core.said import said_in
from tests.engine.fakes import call, counting, events_of, ground, loop_turns, script_file
from tests.engine.slow import disk_ground

pytestmark = pytest.mark.anyio


class Nothing(OpenSource):
    """What a source serves that offers nothing."""

    tools = {}  # noqa: RUF012  as the port has it

    async def close(self) -> None:
        """Nothing runs for it."""


class Slow(ToolSource):
    """A source of no tools, such as a server that is slow to start: it answers when its gate is open."""

    module = "slow"

    def __init__(self) -> None:
        self.asked, self.gate = 0, asyncio.Event()
        self.gate.set()
        self.fails = False

    async def offered(self) -> Sequence[ToolSpec]:
        self.asked += 1
        await self.gate.wait()
        if self.fails:
            raise BadAgent("it does not start")
        return ()

    def open(self, specs: Sequence[ToolSpec], run_id: str | None) -> OpenSource:
        return Nothing()


class Scene:
    """A session whose first run waits in a call, with messages behind it, and a source that is slow from then on."""

    def __init__(self, tmp_path: Path, on: Ground) -> None:
        self.on, self.slow = on, Slow()
        self.begun, self.go = asyncio.Event(), asyncio.Event()
        look_up = {"calls": [call("look")]}
        answers = [look_up, {"text": "one"}, look_up, {"text": "two"}, {"text": "three"}, {"text": "four"}]
        look = counting("look", Effect.READ, self._wait)
        self.agent = Agent("a", model=script_file(tmp_path / "m.json", *answers), tools=[look, self.slow])

    async def _wait(self, _arguments: object, _call: object) -> str:
        self.begun.set()
        await self.go.wait()
        return "seen"

    async def play(self, runtime: Runtime) -> list[RunHandle[str]]:
        """Three messages; the first run is at its end, and the start of the second waits for the source."""
        session = runtime.session("s", agent=self.agent)
        first = await session.send("first")
        await self.begun.wait()
        behind = [await session.send(text, delivery="queue") for text in ("second", "third")]
        self.slow.gate.clear()
        self.go.set()
        while self.slow.asked < 2:
            await asyncio.sleep(0)
        await loop_turns()
        return [first, *behind]

    def texts(self) -> list[str]:
        return [message.text for message in said_in(self.on.store, "s") if type(message).__name__ == "UserMessage"]


@pytest.fixture(params=["memory", "files"])
def on(request: pytest.FixtureRequest, tmp_path: Path) -> Ground:
    return ground() if request.param == "memory" else disk_ground(tmp_path / "s")


async def test_the_result_of_a_run_does_not_wait_for_the_start_of_the_next_one(on: Ground, tmp_path: Path) -> None:
    scene = Scene(tmp_path, on)
    async with Runtime(agents=[scene.agent], ground=on) as runtime:
        first, second, third = await scene.play(runtime)
        assert first.at_rest
        assert (await first.result()).output == "one"
        assert not second.at_rest
        scene.slow.gate.set()
        assert [(await run.result()).output for run in (second, third)] == ["two", "three"]
    assert on.store.owner("s") is None
    assert scene.texts() == ["first", "second", "third"]


async def test_a_send_right_behind_such_a_result_starts_at_once_and_the_queue_keeps_its_order_behind_it(
    on: Ground, tmp_path: Path
) -> None:
    """Nobody holds the session while a source is waited for; the start that was being made is given up and made again."""
    scene = Scene(tmp_path, on)
    async with Runtime(agents=[scene.agent], ground=on) as runtime:
        first, second, third = await scene.play(runtime)
        await first.result()
        plain = Agent("b", model=scene.agent.model, tools=scene.agent.tools[:1])  # it has no source to wait for
        at_once = await runtime.session("s", agent=plain).send("at once")
        assert isinstance(await at_once.result(), Completed)
        assert not second.at_rest
        scene.slow.gate.set()
        assert [(await run.result()).output for run in (second, third)] == ["three", "four"]
    assert scene.texts() == ["first", "at once", "second", "third"]


async def test_a_start_that_fails_behind_a_result_that_was_told_gives_the_session_back_and_the_message_waits(
    on: Ground, tmp_path: Path
) -> None:
    scene = Scene(tmp_path, on)
    async with Runtime(agents=[scene.agent], ground=on) as runtime:
        first, second, _third = await scene.play(runtime)
        assert isinstance(await first.result(), Completed)
        scene.slow.fails = True
        scene.slow.gate.set()
        while not second.at_rest:
            await asyncio.sleep(0)
        assert on.store.owner("s") is None
        assert [(one.stage, one.code) for one in runtime.diary.incidents] == [("begin", "bad_agent")]
    assert [event["type"] for event in events_of(on.store)].count("run_started") == 1


async def test_a_run_with_nothing_behind_it_is_told_when_its_session_has_been_given_back(on: Ground, tmp_path: Path) -> None:
    scene = Scene(tmp_path, on)
    async with Runtime(agents=[scene.agent], ground=on) as runtime:
        first = await runtime.session("s", agent=scene.agent).send("first")
        scene.go.set()
        await first.result()
        assert on.store.owner("s") is None


async def test_a_cancel_of_a_run_that_waits_is_answered_before_the_next_run_starts(on: Ground, tmp_path: Path) -> None:
    slow = Slow()

    async def hold(_arguments: object, _call: object) -> Held:
        return Held("somebody has it")

    model = script_file(tmp_path / "m.json", {"calls": [call("look")]}, {"text": "two"})
    agent = Agent("a", model=model, tools=[counting("look", behaviour=hold), slow])
    async with Runtime(agents=[agent], ground=on) as runtime:
        session = runtime.session("s", agent=agent)
        await (await session.send("first")).result()
        await session.send("second", delivery="queue", key="2")
        slow.gate.clear()
        cancelled = await session.cancel()
        assert cancelled is not None
        assert isinstance(await cancelled.result(), Cancelled)
        assert [event["type"] for event in events_of(on.store)].count("run_started") == 1
        slow.gate.set()
        second = await session.send("second", delivery="queue", key="2")
        assert (await second.result()).output == "two"


async def test_a_result_that_is_told_only_behind_the_next_start_would_be_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Sessions._tell

    def late(self: Sessions, session: str, state: object, failure: object = None, *, only_ended: bool = False) -> None:
        actor: SessionActor | None = self.actors.get(session)
        if not only_ended or actor is None or actor.running:
            whole(self, session, state, failure, only_ended=only_ended)  # type: ignore[arg-type]  # as it was given

    monkeypatch.setattr(Sessions, "_tell", late)
    scene = Scene(tmp_path, ground())
    async with Runtime(agents=[scene.agent], ground=scene.on) as runtime:
        first, *_behind = await scene.play(runtime)
        assert not first.at_rest
        scene.slow.gate.set()
        await first.result()
