"""What is asked of a run while it works or waits: each request is durable before it is answered, and happens once."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from semel import Agent, Cancelled, Completed, Failed, Interrupted, Runtime
from semel.core.values import JSON
from semel.engine.resume import Ground
from semel.errors import KeyReuse, SendRetracted, SessionBusy, UnknownMessage
from semel.faces.views import view_of
from semel.ports.tool import Call
from tests.engine.fakes import call, counting, events_of, ground, script_file
from tests.engine.slow import disk_ground
from tests.engine.test_runtime_races import Waiting

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["memory", "files"])
def on(request: pytest.FixtureRequest, tmp_path: Path) -> Ground:
    return ground() if request.param == "memory" else disk_ground(tmp_path / "s")


def types_of(on: Ground) -> list[str]:
    return [event["type"] for event in events_of(on.store)]


def at(on: Ground, kind: str) -> list[int]:
    return [place for place, found in enumerate(types_of(on)) if found == kind]


def texts(on: Ground) -> list[str]:
    """What the model has been told by people, in order, as the log tells the conversation."""
    return [message.text for message in view_of(on.store, "s").state.transcript if type(message).__name__ == "UserMessage"]


async def test_a_steer_is_durable_when_it_is_answered_and_in_the_next_request(on: Ground, tmp_path: Path) -> None:
    waiting = Waiting(tmp_path)
    async with Runtime(agents=[waiting.agent], ground=on) as runtime:
        session = runtime.session("s", agent=waiting.agent)
        run = await session.send("go")
        await waiting.begun.wait()
        told = await session.steer("rather 5", key="k")
        assert types_of(on)[-1] == "steered"
        assert told.run_id == run.run_id
        waiting.gate.set()
        assert isinstance(await run.result(), Completed)
    drained = [event["record"]["drained"] for event in events_of(on.store) if event["type"] == "step_started"]
    assert [len(names) for names in drained] == [0, 1]
    assert texts(on) == ["go", "rather 5"]


async def test_a_steer_that_is_sent_again_is_one_message_and_another_text_under_its_key_is_refused(
    on: Ground, tmp_path: Path
) -> None:
    waiting = Waiting(tmp_path)
    async with Runtime(agents=[waiting.agent], ground=on) as runtime:
        session = runtime.session("s", agent=waiting.agent)
        run = await session.send("go")
        await waiting.begun.wait()
        first = await session.steer("rather 5", key="k")
        assert await session.steer("rather 5", key="k") == first
        with pytest.raises(KeyReuse, match="input"):
            await session.steer("rather 6", key="k")
        with pytest.raises(KeyReuse, match="delivery"):
            await session.follow_up("rather 5", key="k")
        waiting.gate.set()
        await run.result()
        assert (await session.steer("rather 5", key="k")).run_id == run.run_id
    assert texts(on) == ["go", "rather 5"]


async def test_a_steer_behind_the_end_of_the_run_is_a_send_under_its_key(on: Ground, tmp_path: Path) -> None:
    agent = Agent("a", model=script_file(tmp_path / "m.json", {"text": "one"}, {"text": "two"}))
    async with Runtime(agents=[agent], ground=on) as runtime:
        session = runtime.session("s", agent=agent)
        await (await session.send("go")).result()
        told = await session.steer("more", key="k")
        again = await session.send("more", key="k", delivery="steer")
        assert again.run_id == told.run_id
        assert isinstance(await again.result(), Completed)
    assert types_of(on).count("run_started") == 2
    assert "steered" not in types_of(on)


async def test_a_follow_up_waits_until_the_run_would_stop_and_makes_one_more_step(on: Ground, tmp_path: Path) -> None:
    waiting = Waiting(tmp_path)
    waiting.agent = Agent(
        "a",
        model=script_file(tmp_path / "n.json", {"calls": [call("pay")]}, {"text": "paid"}, {"text": "thanked"}),
        tools=waiting.agent.tools,
    )
    async with Runtime(agents=[waiting.agent], ground=on) as runtime:
        session = runtime.session("s", agent=waiting.agent)
        run = await session.send("go")
        await waiting.begun.wait()
        await session.follow_up("and thank them")
        waiting.gate.set()
        result = await run.result()
    assert isinstance(result, Completed)
    assert result.output == "thanked"
    drained = [len(event["record"]["drained"]) for event in events_of(on.store) if event["type"] == "step_started"]
    assert drained == [0, 0, 1]


async def test_a_queued_message_starts_a_run_of_its_own_behind_the_running_one(on: Ground, tmp_path: Path) -> None:
    waiting = Waiting(tmp_path)
    waiting.agent = Agent(
        "a",
        model=script_file(tmp_path / "n.json", {"calls": [call("pay")]}, {"text": "one"}, {"text": "two"}, {"text": "three"}),
        tools=waiting.agent.tools,
    )
    async with Runtime(agents=[waiting.agent], ground=on) as runtime:
        session = runtime.session("s", agent=waiting.agent)
        first = await session.send("go")
        await waiting.begun.wait()
        second = await session.send("second", delivery="queue", key="2")
        third = await session.send("third", delivery="queue", key="3")
        with pytest.raises(SessionBusy):
            await session.send("at once")
        assert types_of(on)[-2:] == ["queued", "queued"]
        waiting.gate.set()
        results = [await run.result() for run in (first, second, third)]
    assert [result.output for result in results] == ["one", "two", "three"]
    assert texts(on) == ["go", "second", "third"]
    assert on.store.owner("s") is None


async def test_a_message_that_is_taken_back_never_starts_and_its_key_is_spent(on: Ground, tmp_path: Path) -> None:
    waiting = Waiting(tmp_path)
    async with Runtime(agents=[waiting.agent], ground=on) as runtime:
        session = runtime.session("s", agent=waiting.agent)
        run = await session.send("go")
        await waiting.begun.wait()
        await session.send("second", delivery="queue", key="2")
        await session.retract("2")
        await session.retract("2")
        with pytest.raises(SendRetracted):
            await session.send("second", delivery="queue", key="2")
        with pytest.raises(UnknownMessage):
            await session.retract("3")
        waiting.gate.set()
        await run.result()
    assert types_of(on).count("run_started") == 1
    assert types_of(on).count("retracted") == 1


async def test_an_interrupting_message_is_durable_before_the_cancel_and_starts_when_the_run_has_ended(
    on: Ground, tmp_path: Path
) -> None:
    begun = asyncio.Event()

    async def hang(_arguments: dict[str, JSON], _call: Call[object]) -> str:
        begun.set()
        await asyncio.Event().wait()
        return "never"

    model = script_file(tmp_path / "m.json", {"calls": [call("look")]}, {"text": "two"})
    agent = Agent("a", model=model, tools=[counting("look", effect="read", behaviour=hang)])
    async with Runtime(agents=[agent], ground=on) as runtime:
        session = runtime.session("s", agent=agent)
        first = await session.send("go")
        await begun.wait()
        second = await session.send("stop that, do this", delivery="interrupt")
        assert isinstance(await first.result(), Cancelled)
        assert isinstance(await second.result(), Completed)
    assert at(on, "queued")[0] + 1 == at(on, "run_cancel_requested")[0]
    assert at(on, "run_finished")[0] < at(on, "run_started")[1]


async def test_a_cancel_now_withdraws_the_answer_that_was_being_shown(on: Ground, tmp_path: Path) -> None:
    slow = script_file(tmp_path / "m.json", {"text": "one two three four", "chunk": 4, "delay_ms": 30_000})
    agent = Agent("a", model=slow)
    async with Runtime(agents=[agent], ground=on) as runtime:
        session = runtime.session("s", agent=agent)
        run = await session.send("go")
        seen: list[dict[str, Any]] = []

        async def watch() -> None:
            seen.extend([event async for event in run.events(live=True)])

        watching = asyncio.ensure_future(watch())
        await asyncio.sleep(0.01)
        assert await session.cancel() is not None
        assert isinstance(await run.result(), Cancelled)
        await watching
        assert await session.cancel() is None
    assert types_of(on)[-2:] == ["run_cancel_requested", "run_finished"]
    assert any(event.get("live") == "discarded" for event in seen)


async def test_a_once_call_that_a_cancel_cuts_short_is_unknown_and_the_run_is_cancelled(on: Ground, tmp_path: Path) -> None:
    waiting = Waiting(tmp_path)
    async with Runtime(agents=[waiting.agent], ground=on) as runtime:
        session = runtime.session("s", agent=waiting.agent)
        run = await session.send("go")
        await waiting.begun.wait()
        await session.cancel(by="ann")
        result = await run.result()
        assert isinstance(result, Interrupted)  # by its unknown call; the reason stays the run's own
        assert result.reason == "cancelled"
        assert len(result.unknown) == 1


async def test_a_tool_that_may_not_be_interrupted_is_waited_for_and_its_outcome_is_kept(on: Ground, tmp_path: Path) -> None:
    begun, gate = asyncio.Event(), asyncio.Event()

    async def pay(_arguments: dict[str, JSON], _call: Call[object]) -> str:
        begun.set()
        await gate.wait()
        return "paid"

    model = script_file(tmp_path / "m.json", {"calls": [call("pay")]}, {"text": "two"})
    agent = Agent("a", model=model, tools=[counting("pay", behaviour=pay, interruptible=False)])
    async with Runtime(agents=[agent], ground=on) as runtime:
        session = runtime.session("s", agent=agent)
        run = await session.send("go")
        await begun.wait()
        await session.cancel()
        assert types_of(on)[-1] == "run_cancel_requested"
        steer = await session.steer("too late", key="k")  # a run that is to end takes no more messages: it waits for the next
        assert steer.run_id != run.run_id
        gate.set()
        assert isinstance(await run.result(), Cancelled)
    results = [event["record"] for event in events_of(on.store) if event["type"] == "tool_result"]
    assert [result["output"]["text"] for result in results] == ["paid"]
    assert types_of(on).count("run_started") == 2


async def test_a_cancel_at_the_boundary_lets_the_calls_finish_and_asks_no_more(on: Ground, tmp_path: Path) -> None:
    waiting = Waiting(tmp_path)
    async with Runtime(agents=[waiting.agent], ground=on) as runtime:
        session = runtime.session("s", agent=waiting.agent)
        run = await session.send("go")
        await waiting.begun.wait()
        await session.cancel(at="step_boundary")
        waiting.gate.set()
        assert isinstance(await run.result(), Cancelled)
    assert at(on, "tool_result") != []
    assert types_of(on).count("step_started") == 1


async def test_a_cancel_at_the_boundary_escalates_to_now(on: Ground, tmp_path: Path) -> None:
    waiting = Waiting(tmp_path)
    async with Runtime(agents=[waiting.agent], ground=on) as runtime:
        session = runtime.session("s", agent=waiting.agent)
        run = await session.send("go")
        await waiting.begun.wait()
        await session.cancel(at="step_boundary")
        await session.cancel(at="step_boundary")
        await session.cancel()
        await session.cancel()
        assert (await run.result()).reason == "cancelled"
    assert types_of(on).count("run_cancel_requested") == 2


async def test_a_stop_ends_the_run_behind_its_turn(on: Ground, tmp_path: Path) -> None:
    waiting = Waiting(tmp_path)
    async with Runtime(agents=[waiting.agent], ground=on) as runtime:
        session = runtime.session("s", agent=waiting.agent)
        run = await session.send("go")
        await waiting.begun.wait()
        await session.stop()
        waiting.gate.set()
        result = await run.result()
    assert isinstance(result, Failed)
    assert result.reason == "max_steps"
    assert types_of(on).count("step_started") == 1


async def test_a_stop_is_of_one_run_and_the_next_one_is_not_stopped(on: Ground, tmp_path: Path) -> None:
    waiting = Waiting(tmp_path)
    model = script_file(tmp_path / "n.json", {"calls": [call("pay")]}, {"calls": [call("pay")]}, {"text": "done"})
    waiting.agent = Agent("a", model=model, tools=waiting.agent.tools)
    async with Runtime(agents=[waiting.agent], ground=on) as runtime:
        session = runtime.session("s", agent=waiting.agent)
        run = await session.send("go")
        await waiting.begun.wait()
        second = await session.send("second", delivery="queue")
        await session.stop()
        waiting.gate.set()
        assert (await run.result()).reason == "max_steps"
        assert isinstance(await second.result(), Completed)


async def test_an_unknown_call_keeps_the_queue_waiting_until_somebody_goes_on(on: Ground, tmp_path: Path) -> None:
    begun = asyncio.Event()

    async def lose(_arguments: dict[str, JSON], _call: Call[object]) -> str:
        begun.set()
        await gate.wait()
        raise TimeoutError

    gate = asyncio.Event()
    model = script_file(tmp_path / "m.json", {"calls": [call("pay")]}, {"text": "two"}, {"text": "three"})
    agent = Agent("a", model=model, tools=[counting("pay", behaviour=lose)])
    async with Runtime(agents=[agent], ground=on) as runtime:
        session = runtime.session("s", agent=agent)
        run = await session.send("go")
        await begun.wait()
        await session.send("second", delivery="queue")
        gate.set()
        assert isinstance(await run.result(), Interrupted)
        assert types_of(on).count("run_started") == 1
        gone_on = await session.resume(go_on=True)
        assert gone_on is not None
        assert isinstance(await gone_on.result(), Completed)
    assert texts(on)[-1] == "second"


async def test_a_queue_that_a_dead_process_left_is_drained_by_the_next_one(tmp_path: Path) -> None:
    on = disk_ground(tmp_path / "s")
    waiting = Waiting(tmp_path)
    runtime = await Runtime(agents=[waiting.agent], ground=on, drain_seconds=0).__aenter__()
    session = runtime.session("s", agent=waiting.agent)
    await session.send("go")
    await waiting.begun.wait()
    await session.send("second", delivery="queue", key="2")
    await runtime.__aexit__(None, None, None)
    await_resolve = Runtime(recover="manual", agents=[waiting.agent], ground=on)
    async with await_resolve as operator:
        resumed = await operator.resume("s")
        assert resumed is not None
        assert isinstance(await resumed.result(), Interrupted)
        await operator.resolve(operator.inbox()[0].call.call_key, "did_not_happen")
    async with Runtime(agents=[waiting.agent], ground=on) as later:
        again = await later.session("s", agent=waiting.agent).send("second", delivery="queue", key="2")
        assert isinstance(await again.result(), Completed)
    assert texts(on)[-1] == "second"
