"""The output of a run: what a typed agent submits is what its caller gets, and nothing else ends its run."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pydantic
import pytest

from semel import Agent, Completed, Done, Runtime
from semel.core.values import JSON, Stop
from semel.errors import BadAgent
from tests.engine.fakes import CountingTool, call, counting, ground, script_file

pytestmark = pytest.mark.anyio


class Node(msgspec.Struct):
    value: int
    children: list["Node"] = []


class Model(pydantic.BaseModel):
    value: int
    children: list["Model"] = []


@dataclass
class Note:
    note: str = "none"


class Even(pydantic.BaseModel):
    order: int

    @pydantic.field_validator("order")
    @classmethod
    def is_even(cls, order: int) -> int:
        if order % 2:
            raise ValueError("must be even")
        return order


async def result_of(tmp_path: Path, *answers: JSON, output: Any = None, tools: tuple[CountingTool, ...] = ()) -> Any:
    """How a run of these answers ends."""
    agent = Agent("a", model=script_file(tmp_path / "m.json", *answers), output=output, tools=tools)
    async with Runtime(agents=[agent], ground=ground()) as runtime:
        return await (await runtime.session("s", agent=agent).send("go")).result()


def submit(**fields: JSON) -> JSON:
    return {"calls": [call("submit_output", **fields)]}


def done_with(value: object) -> CountingTool:
    """A tool whose every call wants to end the run."""

    async def act(_arguments: object, _call: object) -> Any:
        return Done(value=value)

    return counting("close", behaviour=act)


@pytest.mark.parametrize("kind", [Node, Model])
async def test_an_output_type_may_hold_itself(kind: type, tmp_path: Path) -> None:
    result = await result_of(tmp_path, submit(value=1, children=[{"value": 2}]), output=kind)
    assert result.output.children[0].value == 2


async def test_a_submit_without_arguments_is_an_output_of_defaults(tmp_path: Path) -> None:
    result = await result_of(tmp_path, {"calls": [{"name": "submit_output", "raw": ""}]}, output=Note)
    assert result.output == Note()


async def test_an_output_with_half_a_surrogate_pair_comes_back_readable(tmp_path: Path) -> None:
    raw = '{"note":"a\\ud83d b"}'
    result = await result_of(tmp_path, {"calls": [{"name": "submit_output", "raw": raw}]}, output=Note)
    assert result.output == Note(note="a\ufffd b")


async def test_the_wish_of_a_tool_to_end_the_run_does_not_stand_in_for_a_typed_output(tmp_path: Path) -> None:
    close = done_with("final words")
    result = await result_of(tmp_path, {"calls": [call("close")]}, submit(note="the note"), output=Note, tools=(close,))
    assert result.output == Note(note="the note")
    assert len(close.keys) == 1


async def test_an_output_that_a_validator_of_its_type_refuses_is_recorded_and_refused_when_it_is_asked_for(
    tmp_path: Path,
) -> None:
    with pytest.raises(BadAgent, match="the recorded output does not fit Even"):
        await result_of(tmp_path, submit(order=3), output=Even)


async def test_a_wish_to_end_the_run_whose_value_cannot_be_shown_is_a_failed_call_and_the_run_goes_on(tmp_path: Path) -> None:
    close = done_with(float("nan"))
    answers = {"calls": [call("close")]}, {"text": "sorry", "expect": "cannot be shown"}
    result = await result_of(tmp_path, *answers, tools=(close,))
    assert result.output == "sorry"


async def test_a_final_answer_that_was_cut_at_its_limit_completes_the_run_and_says_so(tmp_path: Path) -> None:
    result = await result_of(tmp_path, {"text": "the sum to pay is 1", "stop": "max_tokens"})
    assert isinstance(result, Completed)
    assert result.stop is Stop.MAX_TOKENS
