"""The Python API beyond a plain run: typed output, deps and context, done, run_sync, limits that cannot hold."""

import asyncio
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pydantic
import pytest

from semel import Agent, Call, Completed, Done, Failed, Limits, Runtime, run_sync, tool
from semel.errors import BadAgent, BadSettings, RunNotCompleted
from tests.engine.fakes import call, counting, ground, script_file


@dataclass
class Resolution:
    order: int
    refunded: bool


class Model(pydantic.BaseModel):
    order: int
    refunded: bool


class Record(msgspec.Struct):
    order: int
    refunded: bool


GOOD = {"order": 17, "refunded": True}


@pytest.mark.anyio
@pytest.mark.parametrize("kind", [Resolution, Model, Record])
async def test_a_typed_output_comes_back_as_its_type(kind: type, tmp_path: Path) -> None:
    agent = Agent("a", model=script_file(tmp_path / "m.json", {"calls": [call("submit_output", **GOOD)]}), output=kind)
    async with Runtime(agents=[agent], ground=ground()) as runtime:
        result = await (await runtime.session("s", agent=agent).send("go")).result()
    assert result.output == kind(**GOOD)


@pytest.mark.anyio
async def test_a_plain_answer_is_reminded_and_a_bad_submit_is_told_and_the_next_good_one_counts(tmp_path: Path) -> None:
    model = script_file(
        tmp_path / "m.json",
        {"text": "all good"},
        {"calls": [call("submit_output", order="x")], "expect": "submit_output"},
        {"calls": [call("submit_output", **GOOD)], "expect": "Not run"},
    )
    agent = Agent("a", model=model, output=Resolution)
    async with Runtime(agents=[agent], ground=ground()) as runtime:
        result = await (await runtime.session("s", agent=agent).send("go")).result()
    assert result.output == Resolution(**GOOD)


@pytest.mark.anyio
async def test_three_misses_of_the_output_end_the_run_by_name(tmp_path: Path) -> None:
    agent = Agent("a", model=script_file(tmp_path / "m.json", *[{"text": "no"}] * 5), output=Resolution)
    async with Runtime(agents=[agent], ground=ground()) as runtime:
        result = await (await runtime.session("s", agent=agent).send("go")).result()
    assert isinstance(result, Failed)
    assert result.reason == "output_invalid"
    with pytest.raises(RunNotCompleted, match="no valid output in 3 tries"):
        _ = result.output


@pytest.mark.anyio
async def test_a_tool_sees_deps_context_and_key_and_instructions_see_the_context(tmp_path: Path) -> None:
    seen: list[object] = []

    @tool(effect="read")
    async def look(order: int, *, call: Call[list[object]]) -> str:
        """Look an order up."""
        call.deps.append((order, call.context, call.session, len(call.key)))
        return "found"

    model = script_file(tmp_path / "m.json", {"calls": [call("look", order=17)]}, {"text": "done"})
    agent = Agent("a", model=model, tools=[look], instructions=lambda context: f"for {context['tenant']}")
    async with Runtime(agents=[agent], ground=ground(), deps=seen) as runtime:
        run = await runtime.session("s", agent=agent, context={"tenant": "acme"}).send("go")
        events = [event async for event in run.events(after=0)]
    assert seen == [(17, {"tenant": "acme"}, "s", 32)]
    entries = [entry["content"] for entry in events[0]["record"]["entries"]]
    assert {"type": "instructions", "text": "for acme"} in entries


@pytest.mark.anyio
async def test_a_batch_whose_every_result_is_done_ends_the_run(tmp_path: Path) -> None:
    async def done(_arguments: object, _call: object) -> object:
        return Done(value="final words")

    model = script_file(tmp_path / "m.json", {"calls": [call("close"), call("close")]})
    agent = Agent("a", model=model, tools=[counting("close", behaviour=done)])
    async with Runtime(agents=[agent], ground=ground()) as runtime:
        result = await (await runtime.session("s", agent=agent).send("go")).result()
    assert isinstance(result, Completed)
    assert result.output == "final words"


@pytest.mark.anyio
async def test_text_arrives_while_the_run_works(tmp_path: Path) -> None:
    agent = Agent("a", model=script_file(tmp_path / "m.json", {"text": "hello world", "chunk": 3}))
    async with Runtime(agents=[agent], ground=ground()) as runtime:
        run = await runtime.session("s", agent=agent).send("go")
        pieces = [piece async for piece in run.text()]
    assert "".join(pieces) == "hello world"
    assert len(pieces) == 4


@pytest.mark.anyio
async def test_run_sync_works_inside_a_running_loop_too(tmp_path: Path) -> None:
    agent = Agent("a", model=script_file(tmp_path / "m.json", {"text": "hello"}))
    assert run_sync(agent, "hi", state=tmp_path / "state").output == "hello"
    assert await asyncio.to_thread(run_sync, agent, "hi", state=tmp_path / "state2")


def test_run_sync_leaves_a_log_and_a_status_behind(tmp_path: Path) -> None:
    agent = Agent("a", model=script_file(tmp_path / "m.json", {"text": "hello"}))
    result = run_sync(agent, "hi", session="mine", state=tmp_path / "state")
    assert result.output == "hello"
    names = sorted(path.name for path in (tmp_path / "state" / "sessions" / "mine").iterdir())
    assert names == ["lease", "status.json", "wal.log"]


def test_a_cost_limit_on_a_model_without_a_price_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    agent = Agent("a", model="openai_chat:m@http://127.0.0.1:9/v1", limits=Limits(cost="1.00 USD"))
    with pytest.raises(BadSettings, match="no price is known"):
        run_sync(agent, "hi", state=tmp_path / "state")
    assert not (tmp_path / "state").exists()


def test_an_output_type_that_is_no_object_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadAgent, match="no object"):
        run_sync(Agent("a", model=script_file(tmp_path / "m.json", {"text": "x"}), output=int), "hi", state=tmp_path / "state")


def test_a_tool_may_not_take_the_reserved_name(tmp_path: Path) -> None:
    agent = Agent("a", model=script_file(tmp_path / "m.json", {"text": "x"}), tools=[counting("submit_output")])
    with pytest.raises(BadAgent, match="reserved"):
        run_sync(agent, "hi", state=tmp_path / "state")
