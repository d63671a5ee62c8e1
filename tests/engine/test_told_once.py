"""A waiting is one until all of it is answered: a person is told of it once, whatever part of it was answered meanwhile."""

import asyncio
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from semel import Agent, Completed, Held, Interrupted, Paused, Rule, Runtime
from semel.core import parked as waiting
from semel.core.state import Session
from semel.core.values import derived_id
from semel.engine.resume import Ground
from semel.faces.views import view_of
from tests.engine.fakes import call, counting, events_of, script_file
from tests.engine.test_parked import Pager, paged

pytestmark = pytest.mark.anyio

TWO = {"calls": [call("pay", n=1), call("pay", n=2)]}


def shop(tmp_path: Path, back: Callable[[], Any], *, asks: bool = False) -> Agent[str]:
    """An agent that calls a tool twice at once, in each of two steps."""

    both = asyncio.Barrier(2)

    async def pay(_arguments: object, _call: object) -> Any:
        await both.wait()
        return back()

    model = script_file(tmp_path / "m.json", TWO, TWO, {"text": "done"})
    return Agent("a", model=model, tools=[counting("pay", behaviour=pay)], policy=[Rule("ask", "pay")] if asks else ())


def lose() -> Any:
    raise TimeoutError


async def waits(runtime: Runtime, agent: Agent[str]) -> tuple[str, str]:
    """The keys of the two calls for which the run waits."""
    result = await (await runtime.session("s", agent=agent).send("go", key="k")).result()
    if isinstance(result, Interrupted):
        first, second = (one.call_key for one in result.unknown)
    else:
        assert isinstance(result, Paused)
        first, second = (str(one.call_key) for one in result.waits)
    return first, second


KINDS: dict[str, tuple[Callable[[], Any], str]] = {
    "approval": (lambda: "paid", "approve"),
    "held": (Held, "deliver"),
    "unknown": (lose, "resolve"),
}


async def answer(runtime: Runtime, verb: str, key: str) -> None:
    more = {"deliver": ("arrived",), "resolve": ("happened",)}.get(verb, ())
    await getattr(runtime, verb)(key, *more)


async def answer_one(tmp_path: Path, kind: str, pager: Pager) -> tuple[Ground, tuple[str, str]]:
    """A session waits for two answers and gets one; then another process looks at it."""
    back, verb = KINDS[kind]
    agent = shop(tmp_path, back, asks=kind == "approval")
    async with Runtime(agents=[agent], ground=paged(tmp_path, pager)) as runtime:
        keys = await waits(runtime, agent)
        await answer(runtime, verb, keys[0])
    on = paged(tmp_path, pager)
    async with Runtime(agents=[agent], ground=on) as runtime:
        await runtime._recovery  # type: ignore[misc]  # it was begun
    return on, keys


@pytest.mark.parametrize("kind", KINDS)
async def test_a_person_is_told_once_of_two_calls_of_which_one_was_answered(kind: str, tmp_path: Path) -> None:
    pager = Pager()
    on, _ = await answer_one(tmp_path, kind, pager)
    (told,) = pager.told
    assert [one.kind for one in told.calls] == [kind, kind]
    made_it_wait = {"approval": "approval_requested", "held": "tool_call_provider_held", "unknown": "run_finished"}[kind]
    assert told.seq == [event["seq"] for event in events_of(on.store) if event["type"] == made_it_wait][-1]


@pytest.mark.parametrize("kind", ["approval", "held"])
async def test_a_second_waiting_of_the_same_run_is_told_by_itself(kind: str, tmp_path: Path) -> None:
    pager, (back, verb) = Pager(), KINDS[kind]
    agent = shop(tmp_path, back, asks=kind == "approval")
    async with Runtime(agents=[agent], ground=paged(tmp_path, pager)) as runtime:
        for _ in range(2):
            for key in await waits(runtime, agent):
                await answer(runtime, verb, key)
        assert isinstance(await (await runtime.session("s", agent=agent).send("go", key="k")).end(), Completed)
    assert len(pager.told) == 2
    first, second = pager.told
    assert first.run_id == second.run_id
    assert first.key != second.key
    assert first.seq < second.seq


@pytest.mark.parametrize("kind", KINDS)
async def test_what_an_earlier_build_has_told_is_not_told_again(kind: str, tmp_path: Path) -> None:
    """Its mark was named by the calls that were open at that moment."""
    pager, (back, _) = Pager(), KINDS[kind]
    agent, on = shop(tmp_path, back, asks=kind == "approval"), paged(tmp_path, Pager())
    async with Runtime(agents=[agent], ground=on) as runtime:
        keys = await waits(runtime, agent)
    state = view_of(on.store, "s").state
    marks = tmp_path / "told"
    for mark in marks.iterdir():
        mark.unlink()
    former = derived_id("parked", state.lineage, str(state.newest), *keys)
    (marks / hashlib.sha256(former.encode()).hexdigest()).touch()
    async with Runtime(agents=[agent], ground=paged(tmp_path, pager)) as runtime:
        await runtime._recovery  # type: ignore[misc]  # it was begun
    assert not pager.told


@pytest.mark.parametrize("kind", KINDS)
async def test_a_waiting_that_was_named_by_what_is_open_of_it_would_be_told_twice(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Negative control."""

    def open_ones(state: Session) -> tuple[tuple[str, ...], int]:
        return tuple(key for key, _, _, _ in waiting.wants_a_look(state)), state.head

    monkeypatch.setattr("semel.engine.teller.began_with", open_ones)
    pager = Pager()
    await answer_one(tmp_path, kind, pager)
    assert len(pager.told) == 2
