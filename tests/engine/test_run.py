"""A run through the engine, on a store in memory and the scripted model."""

from pathlib import Path

import pytest

from semel import Agent, Completed, Interrupted, Runtime
from semel.core.values import Effect
from tests.engine.fakes import call, counting, ground, script_file

pytestmark = pytest.mark.anyio


async def test_a_text_answer_completes_the_run(tmp_path: Path) -> None:
    agent = Agent("a", model=script_file(tmp_path / "m.json", {"text": "hello"}))
    async with Runtime(agents=[agent], ground=ground()) as runtime:
        run = await runtime.session("s", agent=agent).send("hi", key="k")
        result = await run.result()
    assert isinstance(result, Completed)
    assert result.output == "hello"


async def test_parallel_calls_run_and_their_results_reach_the_model_in_issue_order(tmp_path: Path) -> None:
    read, pay = counting("read", Effect.READ), counting("pay")
    model = script_file(tmp_path / "m.json", {"calls": [call("read", n=1), call("pay", n=2)]}, {"text": "done"})
    agent = Agent("a", model=model, tools=[read, pay])
    async with Runtime(agents=[agent], ground=ground()) as runtime:
        run = await runtime.session("s", agent=agent).send("hi", key="k")
        events = [event async for event in run.events(after=0)]
        result = await run.result()
    assert result.output == "done"
    assert len(read.keys) == len(pay.keys) == 1
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert events[-1]["type"] == "run_finished"


async def test_a_once_call_that_is_lost_stops_the_run_for_a_person_and_a_verdict_goes_on(tmp_path: Path) -> None:
    async def lost(_arguments: object, _call: object) -> object:
        raise ConnectionResetError("peer went away")

    pay = counting("pay", behaviour=lost)
    model = script_file(tmp_path / "m.json", {"calls": [call("pay", n=2)]}, {"text": "done"})
    agent = Agent("a", model=model, tools=[pay])
    async with Runtime(agents=[agent], ground=ground()) as runtime:
        run = await runtime.session("s", agent=agent).send("hi", key="k")
        result = await run.result()
        assert isinstance(result, Interrupted)
        (item,) = runtime.inbox()
        assert item.call.call_key == result.unknown[0].call_key == pay.keys[0]
        again = await runtime.resolve(item.call.call_key[:8], "happened", output="paid", go_on=True)
        assert again is not None
        assert (await again.result()).output == "done"
        assert runtime.inbox() == []
    assert len(pay.keys) == 1


async def test_a_session_tells_its_state_and_its_records_by_reading(tmp_path: Path) -> None:
    agent = Agent("a", model=script_file(tmp_path / "m.json", {"text": "hello"}))
    async with Runtime(agents=[agent], ground=ground()) as runtime:
        session = runtime.session("s", agent=agent)
        assert session.state() is None
        assert list(session.events()) == []
        run = await session.send("hi")
        await run.result()
        status = session.state()
        assert status is not None
        assert (status.state, status.run_id, status.exit) == ("completed", run.run_id, 0)
        assert [event["seq"] for event in session.events(after=2)] == list(range(3, status.head_seq + 1))
