"""Each row of the catalog against a sample of what its server answers: read under the row's dialect, and sent back (wire 1 to 5).

The samples are made after what documents and reports say; nothing is copied from a real response.
"""

import json

import pytest
from conversations import prompt, result, user, with_ids
from models_support import FIXTURES
from wire_support import decoded, rendered

from semel.adapters.models.catalog import ModelOptions, resolve
from semel.adapters.models.families import FAMILIES
from semel.adapters.models.rows import rows
from semel.core.values import AssistantMessage, Opaque, ToolCall

ENVIRON = {"AWS_REGION": "eu-west-1"}
ROWS = rows({})
SAMPLES = {
    "anthropic": ("anthropic_messages/thinking.response.sse", ["anthropic.thinking", "anthropic.redacted_thinking"]),
    "openai": ("openai_responses/thinking.response.sse", ["responses.item", "responses.call"]),
    "openai-chat": ("openai_chat/tools.response.sse", []),
    "openrouter": ("openai_chat/thinking_openrouter.response.sse", ["reasoning_details"]),
    "deepseek": ("openai_chat/thinking_deepseek.response.sse", ["reasoning_content"]),
    "moonshot": ("openai_chat/divergent/kimi_ids.sse", ["reasoning_content"]),
    "xai": ("servers/xai.sse", ["responses.item", "responses.call"]),
    "meta": ("servers/meta.sse", ["responses.item", "responses.call"]),
    "gemini": ("gemini/tools.response.sse", ["gemini.call", "gemini.call"]),
    "bedrock": ("bedrock_converse/thinking.response.bin", ["bedrock.reasoning", "bedrock.reasoning"]),
    "vllm": ("openai_chat/divergent/vllm_reasoning_field.sse", ["reasoning"]),
    "llamacpp": ("servers/llamacpp.sse", ["reasoning_content"]),
    "ollama": ("openai_chat/divergent/ollama_whole_calls_same_chunk.sse", []),
}
WITHOUT_CALLS = {"vllm"}
WITHOUT_USAGE = {"ollama"}


def answer_of(provider: str):
    bundle = resolve(ROWS[provider].example, ModelOptions(), ENVIRON)
    data = (FIXTURES / SAMPLES[provider][0]).read_bytes()
    return bundle, decoded(bundle.family, data, 7, FAMILIES[bundle.family].decode(bundle.options))[1]


def test_every_row_has_a_sample():
    assert set(SAMPLES) == set(ROWS)
    assert len(ROWS) == 13


@pytest.mark.parametrize("provider", SAMPLES)
def test_a_servers_answer_is_read_and_sent_back_under_the_dialect_of_its_row(provider):
    bundle, answer = answer_of(provider)
    assert [block.format for block in answer.blocks if isinstance(block, Opaque)] == SAMPLES[provider][1]
    calls = [block for block in answer.blocks if isinstance(block, ToolCall)]
    assert bool(calls) is (provider not in WITHOUT_CALLS)
    assert bool(answer.usage.input and answer.usage.output) is (provider not in WITHOUT_USAGE)
    message = AssistantMessage(blocks=tuple(with_ids(answer.blocks)))
    body = rendered(bundle, prompt((user("go"), message, *(result(call.id, "18C") for call in message.calls), user("on"))))
    for block in answer.blocks:
        if isinstance(block, Opaque) and block.format not in ("responses.call", "gemini.call"):
            assert json.loads(block.data) in values_in(json.loads(body)), block


def values_in(value) -> list:
    """Every value within a value."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [value, *(found for item in inner for found in values_in(item))]


def test_any_other_compatible_server_is_read_under_the_plain_dialect():
    data = (FIXTURES / "openai_chat/divergent/usage_on_finish_chunk.sse").read_bytes()
    assert decoded("openai_chat", data)[1].usage.output == 3


def test_openrouter_says_what_an_answer_cost():
    from semel.core.values import Money

    bundle = resolve("openrouter:x/y", ModelOptions())
    chunk = {"choices": [{"delta": {"content": "x"}, "finish_reason": "stop"}], "usage": {"prompt_tokens": 1, "cost": 0.0012}}
    data = b"data: " + json.dumps(chunk).encode() + b"\n\ndata: [DONE]\n\n"
    usage = decoded("openai_chat", data, None, FAMILIES["openai_chat"].decode(bundle.options))[1].usage
    assert usage.cost == Money(micros=1200, currency="USD")


REASONING = {
    "openrouter": ({"effort": "high", "show": False}, {"reasoning": {"effort": "high", "exclude": True}}),
    "deepseek": ({"effort": "low"}, {"thinking": {"type": "enabled"}, "reasoning_effort": "low"}),
    "vllm": ({"effort": "low"}, {"reasoning_effort": "low"}),
    "openai": ({"effort": "low", "show": True}, {"reasoning": {"effort": "low", "summary": "auto"}}),
    "gemini": ({"effort": "none"}, {"generationConfig": {"thinkingConfig": {"thinkingBudget": 0}}}),
    "anthropic": ({"effort": "none"}, {"thinking": {"type": "disabled"}}),
}


@pytest.mark.parametrize("provider", REASONING)
def test_an_effort_is_said_in_the_words_of_the_server(provider):
    from semel.adapters.models.catalog import parse_options

    asked, members = REASONING[provider]
    bundle = resolve(ROWS[provider].example, parse_options({"reasoning": asked}), ENVIRON)
    body = json.loads(rendered(bundle, prompt((user("go"),))))
    assert {name: body[name] for name in members} == members


def test_deepseek_is_told_not_to_think_with_one_member():
    from semel.adapters.models.catalog import parse_options

    bundle = resolve(ROWS["deepseek"].example, parse_options({"reasoning": {"effort": "none"}}))
    body = json.loads(rendered(bundle, prompt((user("go"),))))
    assert body["thinking"] == {"type": "disabled"}
    assert "reasoning_effort" not in body
