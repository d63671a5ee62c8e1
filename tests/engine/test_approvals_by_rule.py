"""A rule asks, a person answers, and the call leaves as it was approved; messages to a running run go past the same hooks."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from semel import Agent, Completed, Paused, PreUser, Refuse, Rule, Runtime, tool
from semel.adapters.memory.store import Medium, MemoryStore
from semel.adapters.system import SystemIds
from semel.core.features import KNOWN
from semel.engine.resume import Ground
from semel.errors import HookRefused, KeyReuse, UsageError
from semel.faces.policies import POLICY_VARIABLE
from semel.faces.views import view_of
from tests.core.said import said_in
from tests.engine.fakes import call, counting, events_of, ground, loop_turns, script_file
from tests.engine.slow import StandingClock

pytestmark = pytest.mark.anyio


def clerk(tmp_path: Path, paid: list[int], **declared: Any) -> Agent[str]:
    @tool(name="pay", **declared)
    def pay(cents: int) -> str:
        paid.append(cents)
        return f"paid {cents}"

    calls = [call("pay", cents=6000), call("pay", cents=7)]
    return Agent("a", model=script_file(tmp_path / "m.json", {"calls": calls}, {"text": "done"}), tools=[pay])


def records(at: Any, kind: str) -> list[dict[str, Any]]:
    return [event["record"] for event in events_of(at.store) if event["type"] == kind]


async def asked(runtime: Runtime, agent: Agent[str], at: Any) -> str:
    result = await (await runtime.session("s", agent=agent).send("go")).result()
    assert isinstance(result, Paused)
    (record,) = records(at, "approval_requested")
    return str(record["call_key"])


@pytest.mark.parametrize(("arguments", "sums"), [(None, [7, 6000]), ('{"cents":5500}', [7, 5500])])
async def test_a_batch_goes_on_behind_the_last_answer_with_the_arguments_that_were_approved(
    tmp_path: Path, arguments: str | None, sums: list[int]
) -> None:
    paid: list[int] = []
    at, agent = ground(), clerk(tmp_path, paid, ask="cents > 5000")
    async with Runtime(agents=[agent], ground=at) as runtime:
        key = await asked(runtime, agent, at)
        assert not paid
        handle = await runtime.approve(key, by="ann", arguments=arguments)
        assert handle is not None
        assert isinstance(await handle.result(), Completed)
    assert sorted(paid) == sums
    (answer,) = records(at, "approval_resolved")
    assert answer["by"] == "ann"
    assert answer.get("args") == arguments


async def test_a_person_cannot_put_in_place_what_the_operator_denies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    operator = tmp_path / "operator.toml"
    operator.write_text('[[policy]]\ndecision = "deny"\ntool = "pay"\nwhen = "cents > 9000"\n')
    monkeypatch.setenv(POLICY_VARIABLE, str(operator))
    paid: list[int] = []
    at, agent = ground(), clerk(tmp_path, paid, ask="cents > 5000")
    async with Runtime(agents=[agent], ground=at) as runtime:
        key = await asked(runtime, agent, at)
        with pytest.raises(UsageError, match="not allowed"):
            await runtime.approve(key, arguments='{"cents":9999}')
        handle = await runtime.approve(key, arguments='{"cents":8000}')
        assert handle is not None
        await handle.result()
    assert sorted(paid) == [7, 8000]


async def test_arguments_that_a_rule_cannot_judge_are_refused_when_a_person_gives_them(tmp_path: Path) -> None:
    paid: list[int] = []
    at, agent = ground(), clerk(tmp_path, paid, ask=lambda a: a.cents > 5000)
    async with Runtime(agents=[agent], ground=at) as runtime:
        key = await asked(runtime, agent, at)
        with pytest.raises(UsageError):
            await runtime.approve(key, arguments='{"cents":null}')
        handle = await runtime.approve(key)
        assert handle is not None
        assert isinstance(await handle.result(), Completed)
    assert sorted(paid) == [7, 6000]


@pytest.mark.parametrize("here", [True, False])
async def test_what_the_operator_denies_is_refused_also_where_the_agent_is_not_at_hand(
    here: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator = tmp_path / "operator.toml"
    operator.write_text('[[policy]]\ndecision = "deny"\ntool = "pay"\nwhen = "cents > 9000"\n')
    monkeypatch.setenv(POLICY_VARIABLE, str(operator))
    medium, paid = Medium(), list[int]()
    agent = clerk(tmp_path, paid, ask="cents > 5000")
    async with Runtime(agents=[agent], ground=ground(medium)) as runtime:
        key = await asked(runtime, agent, ground(medium))
    async with Runtime(agents=[agent] if here else [], ground=ground(medium)) as runtime:
        with pytest.raises(UsageError, match="not allowed"):
            await runtime.approve(key, arguments='{"cents":9999}')
    assert not records(ground(medium), "approval_resolved")


async def test_silence_is_a_no_when_the_time_of_the_rule_is_over_and_the_run_goes_on_by_itself(tmp_path: Path) -> None:
    clock, paid = StandingClock(), list[int]()
    at = Ground(store=MemoryStore(clock, known=KNOWN), clock=clock, ids=SystemIds())
    agent = clerk(tmp_path, paid, ask="cents > 5000", ask_expires=60)
    async with Runtime(agents=[agent], ground=at) as runtime:
        await asked(runtime, agent, at)
        clock.advance(59)
        await loop_turns()
        assert not records(at, "approval_resolved")
        clock.advance(1)
        while view_of(at.store, "s").state.run is not None:
            await loop_turns()
    assert paid == [7]
    (answer,) = records(at, "approval_resolved")
    assert answer["decision"] == "expired"


async def test_messages_of_every_delivery_go_past_the_pre_user_hooks_once(tmp_path: Path) -> None:
    begun, gate, given = asyncio.Event(), asyncio.Event(), list[str]()

    def hide(told: PreUser) -> str | Refuse | None:
        given.append(told.text)
        if "secret" in told.text:
            return Refuse("Leave secrets out.")
        return told.text.replace("4711", "****")

    async def wait(_arguments: object, _call: object) -> str:
        begun.set()
        await gate.wait()
        return "looked"

    model = script_file(tmp_path / "m.json", {"calls": [call("look")]}, {"text": "a"}, {"text": "b"}, {"text": "c"})
    agent = Agent("a", model=model, tools=[counting("look", behaviour=wait)], pre_user=hide)
    at = ground()
    async with Runtime(agents=[agent], ground=at) as runtime:
        session = runtime.session("s", agent=agent)
        run = await session.send("card 4711", key="k1")
        await begun.wait()
        await session.steer("steer 4711", key="k2")
        await session.steer("steer 4711", key="k2")
        await session.follow_up("follow 4711", key="k3")
        await session.send("queued 4711", key="k4", delivery="queue")
        with pytest.raises(HookRefused, match=r"Leave secrets out\."):
            await session.steer("secret", key="k5")
        with pytest.raises(KeyReuse):
            await session.steer("steer ****", key="k2")
        gate.set()
        await run.result()
        while view_of(at.store, "s").state.queue or view_of(at.store, "s").state.run is not None:
            await asyncio.sleep(0.01)
    assert given == ["card 4711", "steer 4711", "follow 4711", "queued 4711", "secret"]
    texts = [message.text for message in said_in(at.store, "s") if type(message).__name__ == "UserMessage"]
    assert texts == ["card ****", "steer ****", "follow ****", "queued ****"]


async def test_a_rule_that_asks_about_everything_and_a_person_who_declines(tmp_path: Path) -> None:
    paid: list[int] = []
    at, agent = ground(), clerk(tmp_path, paid)
    agent = Agent("a", model=agent.model, tools=agent.tools, policy=[Rule("ask", "pay", why="Every payment.")])
    async with Runtime(agents=[agent], ground=at) as runtime:
        result = await (await runtime.session("s", agent=agent).send("go")).result()
        assert isinstance(result, Paused)
        first, second = (record["call_key"] for record in records(at, "approval_requested"))
        await runtime.deny(first, note="Too much.")
        assert not paid
        handle = await runtime.approve(second)
        assert handle is not None
        assert isinstance(await handle.result(), Completed)
    assert paid == [7]
    told = [message.text for message in said_in(at.store, "s") if type(message).__name__ == "ToolMessage"]
    assert told == ["Not run: a person declined this call. Too much.", "paid 7"]
