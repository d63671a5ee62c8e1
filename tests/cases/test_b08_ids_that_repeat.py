"""B08: a provider that restarts its call ids in every answer. Identity is the place of a call, not the provider's id."""

import pytest

from semel import Agent, Completed, Runtime
from semel.adapters.memory.store import Medium
from tests.cases.serve import messages, paired, recorded, replies, stream
from tests.engine.fakes import counting, ground

pytestmark = pytest.mark.anyio


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
