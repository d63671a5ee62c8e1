"""The recorded requests of every family, made anew from the conversation that they hold (wire 8)."""

import base64
import json

import pytest
from models_support import FIXTURES, WEATHER
from wire_support import decoded, rendered

from semel.adapters.models.catalog import ModelOptions, resolve
from semel.adapters.models.controls import Reasoning
from semel.core.values import AssistantMessage, Prompt, Text, ToolCall, ToolMessage, UserMessage

QUESTION = UserMessage(text="Weather in Paris and Zürich?")
INSTRUCTIONS = "You are a terse test agent."
HIGH = Reasoning(effort="high", show=True)
HERE = "http://127.0.0.1:9"


def prompt(*more, tools=(WEATHER,)) -> Prompt:
    return Prompt(instructions=INSTRUCTIONS, tools=tools, messages=(QUESTION, *more))


def answer(name: str) -> AssistantMessage:
    """What a recorded stream came to."""
    family = name.partition("/")[0]
    return AssistantMessage(blocks=decoded(family, (FIXTURES / name).read_bytes())[1].blocks)


def results(first: str, second: str = "") -> tuple[ToolMessage, ...]:
    failed = (ToolMessage(tool_call_id=second, text="upstream timed out", is_error=True),) if second else ()
    return (ToolMessage(tool_call_id=first, text="18C"), *failed)


def messages(tokens: int, **asked):
    return resolve(
        f"anthropic_messages:claude-opus-5-5@{HERE}", ModelOptions(max_output_tokens=tokens, dialect={"cache": "system"}, **asked)
    )


def responses(**asked):
    options = ModelOptions(
        max_output_tokens=1024,
        parallel_calls=True,
        body={"prompt_cache_key": "run-42"},
        dialect={"strict_tools": True},
        **asked,
    )
    return resolve(f"openai_responses:gpt-5.6@{HERE}", options)


def gemini(tokens: int, **asked):
    return resolve(f"gemini:g@{HERE}", ModelOptions(max_output_tokens=tokens, **asked))


def converse(tokens: int, **asked):
    return resolve(f"bedrock_converse:b@{HERE}", ModelOptions(max_output_tokens=tokens, dialect={"cache": "system"}, **asked))


CALLS = AssistantMessage(
    blocks=(
        Text(text="Checking both."),
        ToolCall(id="toolu_01A", name="get_weather", arguments='{"city":"Paris"}'),
        ToolCall(id="toolu_01B", name="get_weather", arguments='{"city":"Zürich"}'),
    )
)
CONVERSE_CALLS = AssistantMessage(
    blocks=(
        Text(text="Checking both."),
        ToolCall(id="tooluse_A1", name="get_weather", arguments='{"city":"Paris"}'),
        ToolCall(id="tooluse_B2", name="get_weather", arguments='{"city":"Zürich"}'),
    )
)
MESSAGES_TOOLS = messages(1024, tool_choice="auto", parallel_calls=True)
MESSAGES_THINKING = messages(4096, reasoning=HIGH)
CONVERSE_THINKING = converse(4096, tool_choice="auto", reasoning=Reasoning(budget_tokens=2048))
REQUESTS = {
    "anthropic_messages/text": (messages(1024), prompt(tools=())),
    "anthropic_messages/tools": (MESSAGES_TOOLS, prompt()),
    "anthropic_messages/tools.followup": (MESSAGES_TOOLS, prompt(CALLS, *results("toolu_01A", "toolu_01B"))),
    "anthropic_messages/thinking": (MESSAGES_THINKING, prompt()),
    "anthropic_messages/thinking.followup": (
        MESSAGES_THINKING,
        prompt(answer("anthropic_messages/thinking.response.sse"), *results("toolu_01C")),
    ),
    "openai_responses/text": (responses(), prompt(tools=())),
    "openai_responses/tools": (responses(tool_choice="auto"), prompt()),
    "openai_responses/tools.followup": (
        responses(tool_choice="auto"),
        prompt(answer("openai_responses/tools.response.sse"), *results("call_A", "call_B")),
    ),
    "openai_responses/thinking": (responses(reasoning=HIGH), prompt()),
    "openai_responses/thinking.followup": (
        responses(reasoning=HIGH),
        prompt(answer("openai_responses/thinking.response.sse"), *results("call_A")),
    ),
    "gemini/text": (gemini(1024), prompt(tools=())),
    "gemini/tools": (gemini(1024, tool_choice="auto"), prompt()),
    "gemini/tools.followup": (
        gemini(1024, tool_choice="auto"),
        prompt(answer("gemini/tools.response.sse"), *results("fc-a", "fc-b")),
    ),
    "gemini/thinking": (gemini(4096, reasoning=HIGH), prompt(tools=())),
    "gemini/thinking.followup": (
        gemini(4096, reasoning=HIGH),
        prompt(answer("gemini/thinking.response.sse"), UserMessage(text="And tomorrow?"), tools=()),
    ),
    "bedrock_converse/text": (converse(1024), prompt(tools=())),
    "bedrock_converse/tools": (converse(1024, tool_choice="auto"), prompt()),
    "bedrock_converse/tools.followup": (
        converse(1024, tool_choice="auto"),
        prompt(CONVERSE_CALLS, *results("tooluse_A1", "tooluse_B2")),
    ),
    "bedrock_converse/thinking": (CONVERSE_THINKING, prompt()),
    "bedrock_converse/thinking.followup": (
        CONVERSE_THINKING,
        prompt(answer("bedrock_converse/thinking.response.bin"), *results("tooluse_C3")),
    ),
}
# Where the wire has two forms for one thing, the recorded requests show the other one.
OTHER_FORM = {
    b'"content":[{"type":"text","text":"18C"}]': b'"content":"18C"',
    b'"output":[{"type":"input_text","text":"error: upstream timed out"}]': b'"output":"error: upstream timed out"',
    b'"content":[{"text":"18C"}],"status":"success"': b'"content":[{"text":"18C"}]',
}


def recorded(name: str) -> bytes:
    body = (FIXTURES / f"{name}.request.json").read_bytes().strip()
    for theirs, ours in OTHER_FORM.items():
        body = body.replace(theirs, ours)
    return body


@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_equals_the_recorded_one_byte_for_byte(name):
    assert rendered(*REQUESTS[name]) == recorded(name)


def test_all_recorded_requests_of_these_families_are_made():
    families = {name.partition("/")[0] for name in REQUESTS}
    found = {
        f"{family}/{path.name.removesuffix('.request.json')}"
        for family in families
        for path in (FIXTURES / family).glob("*.request.json")
    }
    plain = sum((FIXTURES / f"{name}.request.json").read_bytes().strip() == rendered(*REQUESTS[name]) for name in REQUESTS)
    print(f"{len(found)} recorded requests, {plain} without exchanging a form")
    assert found == set(REQUESTS)
    assert (len(found), plain) == (20, 17)


def through(signature: str) -> str:
    """The signature of a call after it was received and sent back."""
    call = {"functionCall": {"name": "get_weather", "args": {}}, "thoughtSignature": signature}
    chunk = {"candidates": [{"content": {"parts": [call]}, "finishReason": "STOP"}]}
    received = AssistantMessage(blocks=decoded("gemini", b"data: " + json.dumps(chunk).encode() + b"\n\n")[1].blocks)
    body = json.loads(rendered(gemini(9), prompt(received, *results(""))))
    return body["contents"][1]["parts"][0]["thoughtSignature"]


@pytest.mark.parametrize("signature", ["+//+", "-__-", "YQ=="])
def test_a_signature_comes_back_as_the_text_that_it_was(signature):
    assert through(signature) == signature


def test_a_signature_that_is_read_and_written_again_is_caught():
    """Negative control: what goes through bytes comes back in another alphabet."""
    assert base64.urlsafe_b64encode(base64.b64decode("+//+")).decode() != through("+//+")
