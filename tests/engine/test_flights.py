"""A call runs in one task with its tool, and whatever the tool does with that task, the run goes on by a named outcome."""

import asyncio
import gc
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from semel import Agent, Completed, Limits, Runtime
from semel.adapters.memory.store import MemoryStore
from semel.core.features import KNOWN
from semel.core.frame import Frame
from semel.core.values import Effect
from semel.engine import flight, flights
from semel.engine.flights import Flights
from semel.engine.waiting import Bell
from semel.errors import OutcomeUnknown, RunNotCompleted
from semel.ports.hook import PostTool
from semel.ports.log import Bookmark, LogWriter, Payload, TakeFrames
from semel.ports.model import Answer, Delta, Request
from semel.ports.tool import Call, ProcessMark
from semel.ports.world import Clock
from tests.core.said import said_in
from tests.engine.doors import Door, behind_a_door
from tests.engine.fakes import Behaviour, CountingTool, call, counting, ground, loop_turns, script_file

pytestmark = pytest.mark.anyio


async def said_of(tool: CountingTool, tmp_path: Path, *, calls: int = 1, **agent: object) -> list[str]:
    """What the model reads of the calls of a run that completes."""
    at = ground()
    model = script_file(tmp_path / "m.json", {"calls": [call(tool.spec.name)] * calls}, {"text": "done"})
    runs = Agent("a", model=model, tools=[tool], **agent)  # type: ignore[arg-type]  # free words, as a test wants them
    async with Runtime(agents=[runs], ground=at) as runtime:
        result = await (await runtime.session("s", agent=runs).send("go")).result()
    assert isinstance(result, Completed), result
    return [message.text for message in said_in(at.store, "s")[2:-1]]  # type: ignore[union-attr]  # all of them are results


async def test_a_tool_sees_one_task_of_its_own_while_it_runs(tmp_path: Path) -> None:
    seen: list[object] = []

    async def act(_arguments: object, _call: object) -> str:
        mine = asyncio.current_task()
        seen.append(mine)
        await asyncio.sleep(0)
        return "ok" if asyncio.current_task() is mine else "another task"

    assert await said_of(counting("look", behaviour=act), tmp_path, calls=3) == ["ok"] * 3
    assert len(set(seen)) == 3


def leaves_a_cancel_behind() -> Behaviour:
    """A tool that returns, and whose own background work cancels the task that it ran in when that is over."""

    async def act(_arguments: object, _call: object) -> str:
        mine = asyncio.current_task()
        assert mine is not None

        async def late() -> None:
            await loop_turns()
            mine.cancel()

        leftover.append(asyncio.ensure_future(late()))
        return "ok"

    leftover: list[asyncio.Future[None]] = []
    return act


async def slow_hook(_told: PostTool) -> None:
    for _ in range(3):
        await loop_turns()


async def test_a_cancel_that_comes_behind_the_tool_reaches_nothing_of_the_run(tmp_path: Path) -> None:
    tool = counting("look", behaviour=leaves_a_cancel_behind())
    assert await said_of(tool, tmp_path, post_tool=[slow_hook]) == ["ok"]


async def test_a_tool_whose_task_goes_on_behind_it_would_lose_its_outcome_to_such_a_cancel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def all_in_one(self: Flights, flight: flight.Flight) -> None:
        back = await self._performer.send(flight)
        try:
            self._landed(flight, await self._performer.conclude(flight, back))
        except asyncio.CancelledError:
            self._landed(flight, None)

    monkeypatch.setattr(Flights, "_one", all_in_one)
    tool = counting("look", behaviour=leaves_a_cancel_behind())
    with pytest.raises(RunNotCompleted):
        await said_of(tool, tmp_path, post_tool=[slow_hook])


async def test_a_tool_that_cancels_its_own_task_and_returns_has_returned(tmp_path: Path) -> None:
    async def act(_arguments: object, _call: object) -> str:
        mine = asyncio.current_task()
        assert mine is not None
        mine.cancel()
        return "ok"

    assert await said_of(counting("look", behaviour=act), tmp_path) == ["ok"]


@pytest.mark.parametrize("raised", [GeneratorExit(), KeyboardInterrupt(), SystemExit(3), asyncio.CancelledError()])
async def test_whatever_a_tool_raises_is_the_outcome_of_its_call(raised: BaseException, tmp_path: Path) -> None:
    async def act(_arguments: object, _call: object) -> str:
        raise raised

    (told,) = await said_of(counting("look", Effect.READ, behaviour=act), tmp_path)
    assert told


@pytest.mark.parametrize(
    ("raised", "words"), [(ValueError("no"), "ValueError: no"), (ConnectionResetError("cut"), "the connection failed")]
)
async def test_whatever_a_tool_raises_before_there_is_anything_to_await_is_the_outcome_of_its_call(
    raised: Exception, words: str, tmp_path: Path
) -> None:
    class Plain(CountingTool):
        def run(self, arguments: object, call: object) -> Any:
            raise raised

    (told,) = await said_of(Plain(spec=counting("look", Effect.READ).spec), tmp_path)
    assert words in told


async def test_canary_a_tool_that_is_called_outside_the_guarded_part_ends_the_carrying(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Plain(CountingTool):
        def run(self, arguments: object, call: object) -> Any:
            raise ValueError("no")

    through = flight.Flight.through

    async def early(self: flight.Flight, run: Callable[[], Any], time: Any) -> object:
        running = run()
        return await through(self, lambda: running, time)

    monkeypatch.setattr(flight.Flight, "through", early)
    with pytest.raises(ValueError, match="no"):
        await said_of(Plain(spec=counting("look", Effect.READ).spec), tmp_path)


async def test_a_deaf_tool_is_named_once_for_as_long_as_it_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flight, "CANCEL_GRACE_SECONDS", 0.01)
    ended = asyncio.Event()

    async def act(_arguments: object, _call: object) -> str:
        while not ended.is_set():
            with suppress(asyncio.CancelledError):
                await ended.wait()
        return "late"

    tool = counting("look", Effect.READ, behaviour=act, timeout_ms=10)
    runs = Agent("a", model=script_file(tmp_path / "m.json", {"calls": [call("look")]}, {"text": "done"}), tools=[tool])
    async with Runtime(agents=[runs], ground=ground()) as runtime:
        assert isinstance(await (await runtime.session("s", agent=runs).send("go")).result(), Completed)
        assert runtime.resources().deaf == ("tool look",)
    assert runtime.stop_outcome is not None
    assert runtime.stop_outcome.deaf == ("tool look",)
    ended.set()
    await loop_turns()
    assert runtime.resources().none


async def test_a_deaf_tool_that_nothing_else_holds_goes_on_and_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flight, "CANCEL_GRACE_SECONDS", 0.01)
    heard = list[str]()

    async def act(_arguments: object, _call: object) -> str:
        while not heard:
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
        return "late"

    tool = counting("look", Effect.READ, behaviour=act, timeout_ms=10)
    runs = Agent("a", model=script_file(tmp_path / "m.json", {"calls": [call("look")]}, {"text": "done"}), tools=[tool])
    before = asyncio.all_tasks()
    async with Runtime(agents=[runs], ground=ground()) as runtime:
        assert isinstance(await (await runtime.session("s", agent=runs).send("go")).result(), Completed)
    gc.collect()
    assert runtime.resources().deaf == ("tool look",)
    heard.append("now")
    for task in asyncio.all_tasks() - before:
        task.cancel()
    await loop_turns()
    assert runtime.resources().none


async def test_a_given_up_tool_that_starts_a_process_is_refused_so_that_its_adapter_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flight, "CANCEL_GRACE_SECONDS", 0.01)
    given_up, told = asyncio.Event(), list[str]()

    async def act(_arguments: object, call: Call[Any]) -> str:
        while not given_up.is_set():
            with suppress(asyncio.CancelledError):
                await given_up.wait()
        try:
            call.spawned(ProcessMark(pid=1, started=1, boot="b", call_key=call.key))
        except OutcomeUnknown as error:
            told.append(str(error))
        return "late"

    tool, at = counting("look", Effect.READ, behaviour=act, timeout_ms=10), ground()
    runs = Agent("a", model=script_file(tmp_path / "m.json", {"calls": [call("look")]}, {"text": "done"}), tools=[tool])
    async with Runtime(agents=[runs], ground=at) as runtime:
        assert isinstance(await (await runtime.session("s", agent=runs).send("go")).result(), Completed)
        given_up.set()
        await loop_turns()
    assert told == ["nobody waits for this call any more"]
    assert b"tool_process" not in b"".join(frame.payload for frame in at.store.read("s").frames)


def deaf_model(path: Path, reached: asyncio.Event, heard: asyncio.Event) -> Agent[str]:
    """An agent whose model answers nothing and ignores its cancellation until it is `heard`."""

    class Deaf(Door):
        async def stream(self, request: Request) -> AsyncGenerator[Delta | Answer, None]:
            reached.set()
            while not heard.is_set():
                with suppress(asyncio.CancelledError):
                    await heard.wait()
            raise RuntimeError("late")
            yield

    _, door = behind_a_door(path, {"text": "hi"})
    return Agent("a", model=Deaf(door.inner))


@pytest.mark.parametrize("how", ["cancel", "leave"])
async def test_a_deaf_model_holds_up_neither_a_cancel_nor_a_stop_and_is_named(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flights, "CANCEL_GRACE_SECONDS", 0.01)
    reached, heard = asyncio.Event(), asyncio.Event()
    agent = deaf_model(tmp_path, reached, heard)
    try:
        async with Runtime(agents=[agent], ground=ground(), drain_seconds=0) as runtime:
            run = await runtime.session("s", agent=agent).send("go")
            await reached.wait()
            if how == "cancel":
                await runtime.cancel("s")
                assert (await run.result()).reason == "cancelled"
        assert runtime.stop_outcome is not None
        assert runtime.stop_outcome.deaf == ("model door.json",)
    finally:
        heard.set()
    await loop_turns()
    assert runtime.resources().none


async def test_a_deaf_tool_does_not_keep_the_calls_that_wait_for_their_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flight, "CANCEL_GRACE_SECONDS", 0.01)
    ended = asyncio.Event()

    async def act(_arguments: object, _call: object) -> str:
        while len(tool.keys) == 1 and not ended.is_set():
            with suppress(asyncio.CancelledError):
                await ended.wait()
        return "ok"

    tool = counting("look", Effect.READ, behaviour=act, timeout_ms=10)
    deaf, other = await said_of(tool, tmp_path, calls=2, limits=Limits(parallel_calls=1))
    ended.set()
    assert (deaf != "ok", other) == (True, "ok")


class SlowCancels(MemoryStore):
    """A log whose writer tells that a cancel is durable only when it is `released`."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock, known=KNOWN)
        self.durable, self.released = asyncio.Event(), asyncio.Event()

    async def open(self, session: str, *, take: TakeFrames | None = None, bookmark: Bookmark | None = None) -> LogWriter:
        writer = await super().open(session, take=take, bookmark=bookmark)
        append = writer.append

        async def slowly(payloads: Sequence[Payload], *, at_ms: int | None = None) -> Sequence[Frame]:
            frames = await append(payloads, at_ms=at_ms)
            if any(b"run_cancel_requested" in payload.json for payload in payloads):
                self.durable.set()
                await self.released.wait()
            return frames

        writer.append = slowly  # type: ignore[method-assign]  # this writer tells late
        return writer


async def test_no_call_leaves_while_a_cancel_of_its_run_is_being_written_down(tmp_path: Path) -> None:
    began, goes_on = asyncio.Event(), asyncio.Event()

    async def act(_arguments: object, _call: object) -> str:
        began.set()
        await goes_on.wait()
        return "ok"

    at = ground()
    store = SlowCancels(at.clock)
    tool = counting("look", behaviour=act)
    model = script_file(tmp_path / "m.json", {"calls": [call("look")] * 2}, {"text": "done"})
    runs = Agent("a", model=model, tools=[tool], limits=Limits(parallel_calls=1))
    async with Runtime(agents=[runs], ground=replace(at, store=store)) as runtime:
        run = await runtime.session("s", agent=runs).send("go")
        await began.wait()
        cancelling = asyncio.ensure_future(runtime.cancel("s"))
        await store.durable.wait()
        goes_on.set()  # the first call comes back, and the turn of the second has come
        await loop_turns()
        store.released.set()
        await cancelling
        assert (await run.result()).reason == "cancelled"
    assert len(tool.keys) == 1


async def test_a_bell_that_rang_before_anybody_waits_is_heard_once() -> None:
    bell = Bell()
    bell.ring()
    await bell.wait()
    waiting = asyncio.ensure_future(bell.wait())
    await loop_turns()
    assert not waiting.done()
    bell.ring()
    await waiting
