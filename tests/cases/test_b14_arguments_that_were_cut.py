"""B14: arguments that were cut at the output limit are not run, whatever they look like and whatever the finish reason says."""

import json

import pytest

from semel import Agent, Completed, Failed, Runtime
from tests.cases.serve import messages, paired, recorded, replies, stream
from tests.engine.fakes import counting, ground

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("name", ["B14-finish-lies.chat.sse", "B14-valid-but-cut.chat.sse"])
async def test_b14_a_cut_call_is_not_run_and_the_model_is_told_why(name: str) -> None:
    tools = [counting(tool) for tool in ("run_commands", "write_file", "edit_file")]
    async with replies(recorded(name), stream(text="done")) as server:
        agent = Agent("a", model=f"openai_chat:m@{server.url}", tools=tools)
        async with Runtime(agents=[agent], ground=ground()) as runtime:
            assert isinstance(await (await runtime.session("s", agent=agent).send("go")).result(), Completed)
        sent = messages(server, 1)
    assert all(tool.keys == [] for tool in tools)
    assert paired(sent)
    answers = [str(message["content"]) for message in sent if message["role"] == "tool"]
    assert all("Not run" in answer for answer in answers)
    for message in sent:
        for call in message.get("tool_calls") or []:
            json.loads(call["function"]["arguments"])  # what is sent back is JSON again


async def test_b14_a_model_that_is_cut_again_and_again_ends_the_run_by_name() -> None:
    cut = recorded("B14-valid-but-cut.chat.sse")
    async with replies(*[cut] * 5) as server:
        agent = Agent("a", model=f"openai_chat:m@{server.url}", tools=[counting("write_file")])
        async with Runtime(agents=[agent], ground=ground()) as runtime:
            result = await (await runtime.session("s", agent=agent).send("go")).result()
    assert isinstance(result, Failed)
    assert result.reason == "truncated"
    assert len(server.requests) == 3
