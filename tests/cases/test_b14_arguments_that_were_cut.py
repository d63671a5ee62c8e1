"""B14: arguments that were cut at the output limit are not run, whatever they look like and whatever the finish reason says."""

import json

import pytest

from semel import Agent, Completed, Failed, Runtime
from semel.core.values import JSON
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


def chunks(*values: JSON) -> bytes:
    return b"".join(b"data: " + json.dumps(value).encode() + b"\n\n" for value in values)


def response(event: str, status: str | None, call_status: str, reason: str | None) -> bytes:
    """A stream of the Responses API whose answer holds one call with whole arguments."""
    call = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "pay", "arguments": "{}", "status": call_status}
    details = None if reason is None else {"reason": reason}
    told = {"output": [call], "incomplete_details": details, **({} if status is None else {"status": status})}
    return chunks({"type": f"response.{event}", "response": told})


def chat(*finishes: str) -> bytes:
    """A chat stream of one call with whole arguments, whose chunks give these reasons to end, one after the other."""
    call = {"index": 0, "id": "c", "function": {"name": "pay", "arguments": "{}"}}
    ends: list[JSON] = [{"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]} for finish in finishes]
    return chunks({"choices": [{"index": 0, "delta": {"tool_calls": [call]}}]}, *ends) + b"data: [DONE]\n\n"


SAID = {"type": "message", "id": "m", "role": "assistant", "content": [{"type": "output_text", "text": "done"}]}
DONE = {
    "openai_responses": chunks({"type": "response.completed", "response": {"status": "completed", "output": [SAID]}}),
    "openai_chat": stream(text="done"),
}


@pytest.mark.parametrize(
    ("family", "first", "runs"),
    [
        ("openai_responses", response("incomplete", "incomplete", "completed", None), 0),
        ("openai_responses", response("incomplete", "incomplete", "incomplete", "steered"), 0),
        ("openai_responses", response("incomplete", "incomplete", "completed", "max_messages"), 0),
        ("openai_responses", response("incomplete", "completed", "completed", None), 0),
        ("openai_responses", response("incomplete", None, "completed", "something new"), 0),
        ("openai_responses", response("completed", "completed", "incomplete", None), 0),
        ("openai_responses", response("completed", "completed", "completed", None), 1),
        ("openai_chat", chat("length", "stop"), 0),
        ("openai_chat", chat("length", "tool_calls"), 0),
        ("openai_chat", chat("stop", "length"), 0),
        ("openai_chat", chat("stop", "tool_calls"), 1),
    ],
)
async def test_b14_a_call_of_an_answer_that_its_server_calls_incomplete_is_not_run(family: str, first: bytes, runs: int) -> None:
    """Whichever part of the answer says so, and whatever another part says."""
    tool = counting("pay")
    async with replies(first, DONE[family]) as server:
        agent = Agent("a", model=f"{family}:m@{server.url}", tools=[tool])
        async with Runtime(agents=[agent], ground=ground()) as runtime:
            assert isinstance(await (await runtime.session("s", agent=agent).send("go")).result(), Completed)
        again = server.requests[1].body
    assert len(tool.keys) == runs
    assert (b"Not run" in again) is (runs == 0)


@pytest.mark.parametrize(
    ("family", "first"),
    [
        ("openai_responses", response("incomplete", "incomplete", "completed", "content_filter")),
        ("openai_chat", chat("content_filter", "stop")),
    ],
)
async def test_b14_a_call_of_an_answer_that_was_filtered_is_not_run(family: str, first: bytes) -> None:
    tool = counting("pay")
    async with replies(first) as server:
        agent = Agent("a", model=f"{family}:m@{server.url}", tools=[tool])
        async with Runtime(agents=[agent], ground=ground()) as runtime:
            result = await (await runtime.session("s", agent=agent).send("go")).result()
    assert isinstance(result, Failed)
    assert result.error is not None
    assert (result.error.code, tool.keys) == ("content_filter", [])


async def test_b14_a_model_that_is_cut_again_and_again_ends_the_run_by_name() -> None:
    cut = recorded("B14-valid-but-cut.chat.sse")
    async with replies(*[cut] * 5) as server:
        agent = Agent("a", model=f"openai_chat:m@{server.url}", tools=[counting("write_file")])
        async with Runtime(agents=[agent], ground=ground()) as runtime:
            result = await (await runtime.session("s", agent=agent).send("go")).result()
    assert isinstance(result, Failed)
    assert result.reason == "truncated"
    assert len(server.requests) == 3
