"""How the calls of an answer settle in a whole run: siblings finish, results in issue order, progress as it happens."""

import asyncio
import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from semel import Agent, Completed, Done, Failed, Limits, Runtime, TurnView
from semel.core.values import Effect, ToolMessage
from semel.errors import ToolFailed
from semel.faces.views import view_of
from semel.ports.tool import Call
from tests.engine.fakes import call, counting, events_of, ground, script_file
from tests.engine.slow import disk_ground

pytestmark = pytest.mark.anyio


def told(at: Any) -> list[str]:
    return [message.text for message in view_of(at.store, "s").state.transcript if isinstance(message, ToolMessage)]


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
async def test_a12_progress_comes_in_completion_order_and_results_stand_in_issue_order(
    tmp_path: Path, order: tuple[int, ...]
) -> None:
    gates = [asyncio.Event() for _ in order]

    async def act(arguments: Any, at: Call[object]) -> str:
        await gates[arguments["n"]].wait()
        at.progress(f"done {arguments['n']}")
        return f"result {arguments['n']}"

    look = counting("look", Effect.READ, behaviour=act)
    model = script_file(tmp_path / "m.json", {"calls": [call("look", n=n) for n in range(3)]}, {"text": "x"})
    agent, at, seen = Agent("a", model=model, tools=[look]), ground(), list[str]()
    async with Runtime(agents=[agent], ground=at) as runtime:
        run = await runtime.session("s", agent=agent).send("go")
        gates[order[0]].set()
        async for event in run.events(after=0, live=True):
            if event.get("live") == "progress":
                seen.append(event["text"])
                if len(seen) < 3:
                    gates[order[len(seen)]].set()
    assert seen == [f"done {n}" for n in order]
    assert told(at) == ["result 0", "result 1", "result 2"]
    ordinals = [event["record"].get("ordinal", 0) for event in events_of(at.store) if event["type"] == "tool_result"]
    assert ordinals == [0, 1, 2]


@pytest.mark.parametrize("failing", [0, 1, 2])
async def test_t2_the_siblings_of_a_failing_call_finish_and_its_cause_is_told(tmp_path: Path, failing: int) -> None:
    async def act(arguments: Any, _call: object) -> str:
        if arguments["n"] == failing:
            raise ToolFailed("card\x1b[31m declined")
        return "paid"

    pay = counting("pay", behaviour=act)
    model = script_file(tmp_path / "m.json", {"calls": [call("pay", n=n) for n in range(3)]}, {"text": "x"})
    agent, at = Agent("a", model=model, tools=[pay]), ground()
    async with Runtime(agents=[agent], ground=at) as runtime:
        assert isinstance(await (await runtime.session("s", agent=agent).send("go")).result(), Completed)
    assert len(pay.keys) == 3
    assert told(at) == ["card [31m declined" if n == failing else "paid" for n in range(3)]


async def floor_before_the_call(tmp_path: Path) -> str:
    """The floor of the state directory as a tool finds it that then asks for the end of its run."""
    floors: list[str | Exception] = []

    async def act(_arguments: object, _call: object) -> object:
        try:
            floors.append((tmp_path / "state" / "wal-feature-floor").read_text())
        except OSError as error:
            floors.append(error)
        return Done("paid, and that was all")

    pay = counting("pay", behaviour=act)
    agent = Agent("a", model=script_file(tmp_path / "m.json", {"calls": [call("pay")]}), tools=[pay])
    async with Runtime(agents=[agent], ground=disk_ground(tmp_path / "state")) as runtime:
        result = await (await runtime.session("s", agent=agent).send("go")).result()
    assert isinstance(result, Completed)
    assert result.output == "paid, and that was all"
    (found,) = floors
    if isinstance(found, Exception):
        raise found
    return found


async def test_the_floor_knows_of_a_wish_to_end_the_run_before_any_call_leaves(tmp_path: Path) -> None:
    """So that a known outcome never waits in memory for a floor that cannot be raised any more."""
    assert "terminate/v1\n" in await floor_before_the_call(tmp_path)


async def test_a_floor_that_hears_of_the_wish_with_the_result_would_be_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("semel.engine.barrier.foreseen", lambda _record: ())
    with pytest.raises(FileNotFoundError):
        await floor_before_the_call(tmp_path)


async def test_a7_an_agent_stops_behind_the_turn_that_its_own_condition_names(tmp_path: Path) -> None:
    def paid(turn: TurnView) -> bool:
        return any(one.tool == "pay" and not one.is_error for one in turn.calls)

    model = script_file(
        tmp_path / "m.json",
        {"text": "Looking.", "calls": [call("look")]},
        {"text": "Paying.", "calls": [call("pay")]},
        {"text": "never asked"},
    )
    tools = [counting("pay"), counting("look", Effect.READ)]
    agent, at = Agent("a", model=model, tools=tools, stop_after_turn=paid), ground()
    async with Runtime(agents=[agent], ground=at) as runtime:
        result = await (await runtime.session("s", agent=agent).send("go")).result()
    assert isinstance(result, Completed)
    assert result.output == "Paying."
    steps = [event["record"]["step_id"] for event in events_of(at.store) if event["type"] == "step_started"]
    assert steps == [1, 2]


async def test_a_budget_warns_the_model_of_a_whole_run_once(tmp_path: Path) -> None:
    model = script_file(tmp_path / "m.json", *[{"calls": [call("look", n=n)]} for n in range(9)])
    agent = Agent("a", model=model, tools=[counting("look", Effect.READ)], limits=Limits(steps=5))
    at = ground()
    async with Runtime(agents=[agent], ground=at) as runtime:
        result = await (await runtime.session("s", agent=agent).send("go")).result()
    assert isinstance(result, Failed)
    assert result.reason == "max_steps"
    (fired,) = [event["record"] for event in events_of(at.store) if event["type"] == "budget_fired"]
    assert (fired["budget"], fired["used"], fired["limit"]) == ("max_steps", 4, 5)
    assert "4 of the 5 steps of this run are used" in json.dumps(fired["notice"])
