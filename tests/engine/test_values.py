"""What a caller, a person or a model object hands over is clean and well typed before it is recorded, or is refused by name.

A record that does not decode again would close its session for ever, so nothing like that is ever written.
"""

import datetime
import enum
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from semel import Agent, Interrupted, Runtime
from semel.adapters.memory.store import Medium
from semel.core.state import Session
from semel.core.values import JSON, Bundle, Effect, Prompt, Stop, Text, Usage
from semel.errors import AppendRefused, BadSettings
from semel.faces.preview import preview_of
from semel.faces.views import view_of
from semel.ports.model import Answer, Exchange, Request
from semel.ports.tool import Call
from tests.engine.fakes import call, counting, ground, script_file

pytestmark = pytest.mark.anyio


def read(medium: Medium) -> Session:
    """The session as its log says."""
    return view_of(ground(medium).store, "s").state


async def lost(_arguments: object, _call: object) -> object:
    raise ConnectionResetError("gone")


def payer(tmp_path: Path) -> Agent[str]:
    """An agent whose payment is lost."""
    model = script_file(tmp_path / "m.json", {"calls": [call("pay")]}, {"text": "done"})
    return Agent("a", model=model, tools=[counting("pay", behaviour=lost)])


async def resolved(tmp_path: Path, medium: Medium, **verdict: Any) -> None:
    """Give a verdict on the lost payment."""
    agent = payer(tmp_path)
    async with Runtime(agents=[agent], ground=ground(medium)) as runtime:
        result = await (await runtime.session("s", agent=agent).send("go")).result()
        assert isinstance(result, Interrupted)
        await runtime.resolve(result.unknown[0].call_key, **verdict)


@pytest.mark.parametrize(
    "verdict",
    [
        {"verdict": "did-not-happen"},
        {"verdict": "happened", "by": 7},
        {"verdict": "happened", "note": b"x"},
        {"verdict": "happened", "output": {"paid": True}},
    ],
    ids=str,
)
async def test_a_verdict_of_another_word_or_type_is_refused_and_nothing_is_written(verdict: Any, tmp_path: Path) -> None:
    medium = Medium()
    with pytest.raises(BadSettings, match="verdict cannot be recorded"):
        await resolved(tmp_path, medium, **verdict)
    assert len(read(medium).unknown) == 1


async def test_b19_the_words_of_a_verdict_are_cleaned_before_they_are_recorded(tmp_path: Path) -> None:
    medium = Medium()
    await resolved(tmp_path, medium, verdict="happened", output="a\0b\ud83d", note="x\0y", by="me\0")
    (one,) = read(medium).resolved.values()
    assert (one.verdict, one.output) == ("happened", "a\ufffdb\ufffd")
    assert b"\\u0000" not in bytes(medium.logs["s"].data)


NO_JSON: list[JSON] = [
    {"n": float("nan")},
    {"deep": [float("inf")]},
    {1: "a"},
    {"what": len},
]
AS_JSON: list[JSON] = [
    {"t": (1, 2)},
    {"x": 1.0},
    {"n": 2**70},
    {"e": enum.Enum("Answer", {"YES": "yes"}).YES},
    {"when": datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)},
    {"all": {1}},
    "a\0b",
]


async def sent(tmp_path: Path, medium: Medium, context: JSON) -> list[JSON]:
    """The contexts that the tools of two steps were given; each tool changes the one that it got."""
    seen: list[JSON] = []

    async def look(_arguments: object, told: Call[object]) -> str:
        seen.append(told.context)
        if isinstance(told.context, dict):
            told.context["changed"] = True
        return "looked"

    turns = {"calls": [call("look")]}, {"calls": [call("look")]}, {"text": "done"}
    agent = Agent("a", model=script_file(tmp_path / "m.json", *turns), tools=[counting("look", Effect.READ, behaviour=look)])
    async with Runtime(agents=[agent], ground=ground(medium)) as runtime:
        await (await runtime.session("s", agent=agent, context=context).send("go")).result()
    return seen


@pytest.mark.parametrize("context", NO_JSON, ids=str)
async def test_a_context_that_is_no_json_is_refused_by_name_and_nothing_is_written(context: JSON, tmp_path: Path) -> None:
    medium = Medium()
    with pytest.raises(BadSettings, match="the context is not JSON"):
        await sent(tmp_path, medium, context)
    assert not medium.logs


@pytest.mark.parametrize("context", AS_JSON, ids=repr)
async def test_the_tools_of_the_live_run_see_the_context_that_a_resumed_run_would(context: JSON, tmp_path: Path) -> None:
    medium = Medium()
    seen = await sent(tmp_path, medium, context)
    (ended,) = read(medium).ended.values()
    if isinstance(seen[0], dict):
        del seen[0]["changed"]
    assert [repr(seen[0]), type(seen[0])] == [repr(ended.context), type(ended.context)]


async def test_a_tool_that_changes_its_context_does_not_change_what_the_next_one_sees(tmp_path: Path) -> None:
    first, second = await sent(tmp_path, Medium(), {"n": 1})
    assert first == second == {"n": 1, "changed": True}


@pytest.mark.parametrize("key", [17, "", "k" * 257, "two\nlines"], ids=repr)
async def test_a_key_that_no_log_should_hold_is_refused_and_nothing_is_written(key: Any, tmp_path: Path) -> None:
    medium, agent = Medium(), payer(tmp_path)
    async with Runtime(agents=[agent], ground=ground(medium)) as runtime:
        with pytest.raises(BadSettings, match="a key is printable text"):
            await runtime.session("s", agent=agent).send("go", key=key)
    assert not medium.logs


@pytest.mark.parametrize("text", ["", " \n", 7], ids=repr)
async def test_a_message_without_words_is_refused_and_nothing_is_written(text: Any, tmp_path: Path) -> None:
    medium, agent = Medium(), payer(tmp_path)
    async with Runtime(agents=[agent], ground=ground(medium)) as runtime:
        with pytest.raises(BadSettings, match="a message needs words"):
            await runtime.session("s", agent=agent).send(text)
    assert not medium.logs


async def test_a_session_that_has_used_the_key_of_a_preview_can_be_previewed(tmp_path: Path) -> None:
    on, agent = ground(), Agent("a", model=script_file(tmp_path / "m.json", {"text": "done"}))
    async with Runtime(agents=[agent], ground=on) as runtime:
        await (await runtime.session("s", agent=agent).send("go", key="preview")).result()
    assert preview_of(on.store, "s", on.clock)


class FractionalModel:
    """A model object that reports half a token."""

    bundle = Bundle(family="scripted", model="m", endpoint="", renderer=1)

    def render(self, prompt: Prompt) -> Request:
        return Request(body=b"{}", sha256="0" * 64)

    async def stream(self, request: Request) -> AsyncIterator[Answer]:
        usage = Usage(input=1.5)  # type: ignore[arg-type]  # that is the point
        yield Answer(blocks=(Text(text="x"),), stop=Stop.END_TURN, usage=usage, exchange=Exchange())

    async def close(self) -> None:
        pass


async def test_an_answer_with_a_value_that_no_log_can_hold_is_refused_and_the_session_still_reads(tmp_path: Path) -> None:
    medium, agent = Medium(), Agent("a", model=FractionalModel())  # type: ignore[arg-type]  # a generator that is not typed as one
    async with Runtime(agents=[agent], ground=ground(medium)) as runtime:
        run = await runtime.session("s", agent=agent).send("go")
        with pytest.raises(AppendRefused, match="no log can hold"):
            await run.result()
    assert read(medium).run is not None
