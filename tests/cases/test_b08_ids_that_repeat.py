"""B08: a provider that restarts its call ids in every answer. Identity is the place of a call, not the provider's id."""

import pytest

from semel import Agent, Completed, Runtime
from semel.adapters.memory.store import Medium
from semel.core.limits import Limits
from semel.core.values import AssistantMessage, ToolCall, ToolMessage
from tests.cases.serve import messages, paired, recorded, replies, stream
from tests.core.cast import driver
from tests.core.machine import good, say
from tests.engine.fakes import counting, ground


@pytest.mark.anyio
async def test_b08_two_turns_with_the_same_call_id_run_both_and_send_unique_stable_ids() -> None:
    shell = counting("run_shell_command")
    bodies = (recorded("B08-turn1.chat.sse"), recorded("B08-turn2.chat.sse"), stream(text="done"), stream(text="more"))
    medium = Medium()
    async with replies(*bodies) as server:
        agent = Agent("a", model=f"openai_chat:m@{server.url}", tools=[shell])
        async with Runtime(agents=[agent], ground=ground(medium)) as runtime:
            assert isinstance(await (await runtime.session("s", agent=agent).send("go")).result(), Completed)
        async with Runtime(agents=[agent], ground=ground(medium)) as runtime:  # a restart keeps the ids
            assert isinstance(await (await runtime.session("s", agent=agent).send("more")).result(), Completed)
        before, after = messages(server, 2), messages(server, 3)
    assert len(set(shell.keys)) == 2
    ids = [call["id"] for message in before for call in message.get("tool_calls") or []]
    assert ids == ["run_shell_command:0", "call_2_0"]
    assert paired(before)
    assert after[: len(before)] == before


def same_id(arguments: str) -> list[ToolCall]:
    return [ToolCall(id="run_shell_command:0", name="pay", arguments=arguments)]


@pytest.mark.parametrize("times", [1, 2])
def test_b08_a_death_in_turn_2_leaves_its_own_call_open_though_turn_1_has_a_result_of_that_id(times: int) -> None:
    d = driver()
    d.send()
    d.answer(same_id('{"n":1}'))
    d.back({0: good("first")})
    before = d.sent[-1]
    d.answer(same_id('{"n":2}'))
    second = d.key_of(0)
    for _ in range(times):
        d.die()
        d.resume()
        d.seal()
    assert [call.call_key for call in d.state.unknown] == [second]
    assert list(d.dispatched.values()) == [1, 1]
    d.send("k2", "and now?")
    after = d.sent[-1]
    assert after[: len(before)] == before, "the ids of what was sent before stay"
    told = {message.tool_call_id: message.text for message in after if isinstance(message, ToolMessage)}
    ids = [call.id for message in after if isinstance(message, AssistantMessage) for call in message.calls]
    assert len(set(ids)) == 2
    assert ids == list(told)
    assert told[ids[0]] == "first"
    assert "unknown" in told[ids[1]]


def test_b08_the_same_call_with_the_same_arguments_runs_each_time_until_the_limit_ends_the_run_by_name() -> None:
    """Nothing is merged in silence: each of them runs, and a model that is stuck costs no more than the limit."""
    d = driver(limits=Limits(repeated_calls=20))
    d.send()
    for at in range(20):
        assert d.state.run is not None, at
        d.answer(same_id("{}"))
        if at % 7 == 3:
            d.back({0: good("again")})
            d.die()  # the count is in the log
            d.resume()
        else:
            d.back({0: good("again")})
    assert len(d.dispatched) == 20
    ended = d.state.ended[d.state.newest or ""]
    assert (ended.reason, ended.error and ended.error.code) == ("repeated_calls", "repeated_calls")
    d.send("k2", "and now?")
    ids = [call.id for message in d.sent[-1] if isinstance(message, AssistantMessage) for call in message.calls]
    assert len(set(ids)) == len(ids) == 20
    d.answer(same_id("{}"))  # another run counts anew
    d.back()
    assert d.state.run is not None


@pytest.mark.parametrize("other", ['{"n":1}', None], ids=["other arguments", "a word between"])
def test_b08_answers_that_differ_are_no_repeats(other: str | None) -> None:
    d = driver(limits=Limits(repeated_calls=3, steps=100))
    d.send()
    for at in range(40):
        if other is None and at % 2:
            d.message(f"s{at}", "go on", "steer")
            d.answer(say("I go on"))
            continue
        d.answer(same_id(other if other is not None and at % 2 else "{}"))
        d.back()
    assert d.state.run is not None
