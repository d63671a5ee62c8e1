"""B17: a call of a tool that is not offered is refused by name, beside the others; asking for nothing else ends the run."""

import pytest
from msgspec.structs import replace

from semel import Agent, Completed, Failed, Paused, Rule, Runtime
from semel.adapters.memory.store import Medium
from semel.errors import BadAgent
from tests.cases.serve import messages, paired, recorded, replies, stream
from tests.engine.fakes import counting, events_of, ground

pytestmark = pytest.mark.anyio


async def test_b17_unknown_and_empty_names_are_refused_and_the_known_tool_of_the_batch_runs() -> None:
    read = counting("read_file", effect="read")
    near = counting("mcp__fs__search_files", effect="read")
    async with replies(recorded("B17-unknown-tool.chat.sse"), stream(text="done")) as server:
        agent = Agent("a", model=f"openai_chat:m@{server.url}", tools=[read, near])
        async with Runtime(agents=[agent], ground=ground()) as runtime:
            assert isinstance(await (await runtime.session("s", agent=agent).send("go")).result(), Completed)
        sent = messages(server, 1)
    assert len(read.keys) == 1
    assert near.keys == [], "nothing is run because its name is near"
    assert paired(sent)
    answers = [str(message["content"]) for message in sent if message["role"] == "tool"]
    assert [("Not run" in answer) for answer in answers] == [True, True, False]
    assert all("read_file" in answer and "mcp__fs__search_files" in answer for answer in answers[:2]), "they say what there is"


async def test_b17_a_model_that_asks_for_unknown_tools_alone_ends_by_name_and_not_with_an_empty_answer() -> None:
    body = stream(("search_files", {"pattern": "x"}))
    async with replies(*[body] * 60) as server:
        agent = Agent("a", model=f"openai_chat:m@{server.url}", tools=[counting("read_file")])
        async with Runtime(agents=[agent], ground=ground()) as runtime:
            result = await (await runtime.session("s", agent=agent).send("go")).result()
    assert isinstance(result, Failed)
    assert result.error is not None
    assert result.reason == "repeated_calls"
    assert len(server.requests) < 50


async def test_b17_an_approval_of_one_tool_does_not_let_another_one_of_its_name_go() -> None:
    medium, first, other = Medium(), counting("deploy"), counting("deploy")
    other.spec = replace(other.spec, parameters='{"type":"object","properties":{"to":{"type":"string"}}}')
    async with replies(stream(("deploy", {})), stream(text="done")) as server:

        def made(tool: object) -> Agent[str]:
            return Agent("a", model=f"openai_chat:m@{server.url}", tools=[tool], policy=[Rule("ask", "deploy")])  # type: ignore[list-item]  # a tool

        agent = made(first)
        async with Runtime(agents=[agent], ground=ground(medium)) as runtime:
            paused = await (await runtime.session("s", agent=agent).send("go")).result()
        assert isinstance(paused, Paused)
        async with Runtime(agents=[made(other)], recover="manual", ground=ground(medium)) as runtime:
            await runtime.approve(str(paused.waits[0].call_key))
            with pytest.raises(BadAgent, match="deploy"):
                await runtime.resume("s")
    assert first.keys == other.keys == []
    assert "approval_resolved" in [event["type"] for event in events_of(ground(medium).store)]
