"""The providers' own clients as judges: their types walk a request to the leaves, and their decoders read a stream.

They are test dependencies only; nothing of theirs runs in semel. Types that a client validates lazily are walked, or a missing
id would pass (parts.md).
"""

import base64
import json
from collections.abc import Callable
from contextlib import contextmanager
from functools import lru_cache
from importlib import import_module
from typing import Any

JSON = Any
# What other servers add to the requests of OpenAI's API; its own types do not know it.
CHAT_EXTENSIONS = frozenset({"thinking", "reasoning", "provider"})
MESSAGE_EXTENSIONS = frozenset({"reasoning_content", "reasoning", "reasoning_details"})
CALL_EXTENSIONS = frozenset({"extra_content"})


def leaves(value: object) -> int:
    """Walk to the leaves; lazily validated iterables raise only when they are."""
    if isinstance(value, dict):
        return sum(leaves(item) for item in value.values())
    if isinstance(value, (str, bytes, int, float, bool)) or value is None:
        return 1
    return sum(leaves(item) for item in value)  # type: ignore[attr-defined]  # whatever the client made of a list


_TYPES = {
    "chat": "openai.types.chat.completion_create_params:CompletionCreateParamsStreaming",
    "responses": "openai.types.responses.response_create_params:ResponseCreateParamsStreaming",
    "responses counted": "openai.types.responses.input_token_count_params:InputTokenCountParams",
    "messages": "anthropic.types.message_create_params:MessageCreateParamsStreaming",
    "messages counted": "anthropic.types.message_count_tokens_params:MessageCountTokensParams",
}


@lru_cache
def _adapter(name: str):
    from pydantic import TypeAdapter

    module, _, kind = _TYPES[name].partition(":")
    return TypeAdapter(getattr(import_module(module), kind))


def chat(body: dict[str, JSON]) -> int:
    """Chat completions, without what other servers add."""
    own = {name: value for name, value in body.items() if name not in CHAT_EXTENSIONS}
    own["messages"] = [_own_message(message) for message in body["messages"]]
    return leaves(_adapter("chat").validate_python(own, extra="forbid"))


def _own_message(message: dict[str, JSON]) -> dict[str, JSON]:
    own = {name: value for name, value in message.items() if name not in MESSAGE_EXTENSIONS}
    if "tool_calls" in own:
        own["tool_calls"] = [
            {name: value for name, value in call.items() if name not in CALL_EXTENSIONS} for call in own["tool_calls"]
        ]
    return own


def responses(body: dict[str, JSON], kind: str = "responses") -> int:
    """The Responses API. Items of xAI may lack the id that OpenAI's types demand (wire 3)."""
    items = [{"id": "rs", **item} if item.get("type") == "reasoning" else item for item in body["input"]]
    return leaves(_adapter(kind).validate_python({**body, "input": items}, extra="forbid"))


def messages(body: dict[str, JSON], kind: str = "messages") -> int:
    """The Messages API."""
    return leaves(_adapter(kind).validate_python(body, extra="forbid"))


def gemini(body: dict[str, JSON]) -> int:
    """generateContent: each member by the client's type of it, no other member."""
    from google.genai import types
    from pydantic import TypeAdapter

    members: dict[str, object] = {
        "systemInstruction": types.Content,
        "contents": list[types.Content],
        "tools": list[types.Tool],
        "toolConfig": types.ToolConfig,
        "generationConfig": types.GenerationConfig,
        "safetySettings": list[types.SafetySetting],
    }
    unknown = body.keys() - members.keys()
    if unknown:
        raise ValueError(f"no member {unknown}")
    for name, value in body.items():
        TypeAdapter(members[name]).validate_python(value)
    if not body["contents"] or not all(content["parts"] for content in body["contents"]):
        raise ValueError("a content without parts")
    return leaves(body)


def _counted_by_gemini(body: dict[str, JSON]) -> int:
    """countTokens: a request with the name of its model."""
    (asked,) = body.values()
    name = body["generateContentRequest"]["model"]
    if not name.startswith("models/"):
        raise ValueError(f"no model {name}")
    return gemini({member: value for member, value in asked.items() if member != "model"})


@lru_cache
def _shape(operation: str):
    import botocore.session

    return botocore.session.get_session().get_service_model("bedrock-runtime").operation_model(operation).input_shape


def converse(body: dict[str, JSON], operation: str = "ConverseStream") -> int:
    """ConverseStream, by botocore's own validator; what travels as base64 is bytes to it."""
    from botocore.validate import ParamValidator

    report = ParamValidator().validate({"modelId": "m", **_with_bytes(body)}, _shape(operation))
    if report.has_errors():
        raise ValueError(report.generate_report())
    return leaves(body)


def _with_bytes(value: JSON) -> JSON:
    if isinstance(value, dict):
        return {name: base64.b64decode(item) if name == "redactedContent" else _with_bytes(item) for name, item in value.items()}
    return [_with_bytes(item) for item in value] if isinstance(value, list) else value


JUDGES: dict[str, Callable[[dict[str, JSON]], int]] = {
    "openai_chat": chat,
    "scripted": chat,
    "openai_responses": responses,
    "anthropic_messages": messages,
    "gemini": gemini,
    "bedrock_converse": converse,
}


COUNT_JUDGES: dict[str, Callable[[dict[str, JSON]], int]] = {
    "openai_responses": lambda body: responses(body, "responses counted"),
    "anthropic_messages": lambda body: messages(body, "messages counted"),
    "gemini": _counted_by_gemini,
    "bedrock_converse": lambda body: converse(body, "CountTokens"),
}
"""For requests that only count tokens."""


def judge(family: str, body: bytes, *, counts: bool = False) -> int:
    """The number of leaves that were walked. Raises ValueError for what the official types do not take."""
    return (COUNT_JUDGES if counts else JUDGES)[family](json.loads(body))


SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}


class Read(dict):
    """What an official client made of a stream: text, calls, stop, thinking, usage, by name."""


@contextmanager
def anthropic_client(origin: str):
    import anthropic

    with anthropic.Anthropic(base_url=origin, api_key="unused", max_retries=0) as client:
        yield client


def read_messages(origin: str) -> Read:
    """Anthropic's client, streaming, with a tool."""
    with (
        anthropic_client(origin) as client,
        client.messages.stream(
            model="m",
            max_tokens=100,
            messages=[{"role": "user", "content": "hi"}],
            tools=[{"name": "get_weather", "input_schema": SCHEMA}],
        ) as stream,
    ):
        shown = "".join(stream.text_stream)
        final = stream.get_final_message()
    return Read(
        text=shown,
        calls=[(block.id, block.name, block.input) for block in final.content if block.type == "tool_use"],
        stop=final.stop_reason,
        thinking=[block.thinking for block in final.content if block.type == "thinking"],
        usage=(final.usage.input_tokens, final.usage.cache_read_input_tokens, final.usage.output_tokens),
    )


def read_chat(origin: str) -> Read:
    """OpenAI's client over chat completions."""
    import openai

    with openai.OpenAI(base_url=f"{origin}/v1", api_key="unused", max_retries=0) as client:
        tool = {"type": "function", "function": {"name": "get_weather", "parameters": SCHEMA}}
        asked = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "tools": [tool]}
        with client.chat.completions.stream(**asked, stream_options={"include_usage": True}) as stream:
            shown = "".join(event.delta for event in stream if event.type == "content.delta")
            final = stream.get_final_completion()
    choice, usage = final.choices[0], final.usage
    calls = choice.message.tool_calls or []
    cached = usage.prompt_tokens_details.cached_tokens if usage and usage.prompt_tokens_details else None
    return Read(
        text=shown,
        calls=[(call.id, call.function.name, json.loads(call.function.arguments)) for call in calls],
        stop=choice.finish_reason,
        usage=(usage.prompt_tokens, cached, usage.completion_tokens) if usage else None,
    )


def read_responses(origin: str) -> Read:
    """OpenAI's client over the Responses API."""
    import openai

    with openai.OpenAI(base_url=f"{origin}/v1", api_key="unused", max_retries=0) as client:
        tool = {"type": "function", "name": "get_weather", "parameters": SCHEMA, "strict": False}
        with client.responses.stream(model="m", input=[{"role": "user", "content": "hi"}], tools=[tool]) as stream:
            shown, final = "", None
            for event in stream:
                shown += event.delta if event.type in ("response.output_text.delta", "response.refusal.delta") else ""
                final = event.response if event.type in ("response.completed", "response.incomplete") else final
    usage = final.usage
    return Read(
        text=shown,
        calls=[(item.call_id, item.name, json.loads(item.arguments)) for item in final.output if item.type == "function_call"],
        stop=final.status,
        thinking=[part.text for item in final.output if item.type == "reasoning" for part in item.summary],
        opaque=[item.encrypted_content for item in final.output if item.type == "reasoning"],
        usage=(usage.input_tokens, usage.input_tokens_details.cached_tokens, usage.output_tokens),
    )


def read_gemini(origin: str) -> Read:
    """Google's client."""
    from google import genai
    from google.genai import types

    client = genai.Client(api_key="unused", http_options=types.HttpOptions(base_url=origin, api_version="v1beta"))
    declared = types.FunctionDeclaration(name="get_weather", parameters_json_schema=SCHEMA)
    config = types.GenerateContentConfig(
        tools=[types.Tool(function_declarations=[declared])],
        automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True),
    )
    try:
        chunks = list(client.models.generate_content_stream(model="m", contents="hi", config=config))
    finally:
        client.close()
    candidates = [chunk.candidates[0] for chunk in chunks if chunk.candidates]
    parts = [part for candidate in candidates if candidate.content for part in candidate.content.parts or []]
    usage = chunks[-1].usage_metadata
    calls = [part.function_call for part in parts if part.function_call]
    return Read(
        text="".join(part.text for part in parts if part.text and not part.thought),
        calls=[(call.id or "", call.name, call.args) for call in calls],
        stop=next((candidate.finish_reason.value for candidate in candidates if candidate.finish_reason), None),
        thinking=["".join(part.text for part in parts if part.text and part.thought)],
        usage=(usage.prompt_token_count, usage.cached_content_token_count, usage.candidates_token_count),
    )


def read_converse(origin: str) -> Read:
    """Amazon's client. It keeps events apart, so they are put together here, in the plainest way."""
    import boto3
    from botocore.config import Config

    client = boto3.client(
        "bedrock-runtime",
        region_name="us-east-1",
        endpoint_url=origin,
        aws_access_key_id="unused",
        aws_secret_access_key="unused",
        config=Config(retries={"total_max_attempts": 1}, proxies={}),
    )
    tool = {"toolSpec": {"name": "get_weather", "inputSchema": {"json": SCHEMA}}}
    asked = {"messages": [{"role": "user", "content": [{"text": "hi"}]}], "toolConfig": {"tools": [tool]}}
    read = Read(text="", calls=[], stop=None, thinking=[""], usage=None)
    blocks: dict[int, list[str]] = {}
    named: dict[int, tuple[str, str]] = {}
    try:
        for event in client.converse_stream(modelId="m:0", **asked)["stream"]:
            kind, payload = next(iter(event.items()))
            if kind == "contentBlockStart":
                call = payload["start"]["toolUse"]
                named[payload["contentBlockIndex"]] = (call["toolUseId"], call["name"])
            elif kind == "contentBlockDelta":
                delta = payload["delta"]
                read["text"] += delta.get("text", "")
                read["thinking"][0] += delta.get("reasoningContent", {}).get("text", "")
                blocks.setdefault(payload["contentBlockIndex"], []).append(delta.get("toolUse", {}).get("input", ""))
            elif kind == "messageStop":
                read["stop"] = payload["stopReason"]
            elif kind == "metadata":
                usage = payload["usage"]
                read["usage"] = (usage["inputTokens"], usage.get("cacheReadInputTokens"), usage["outputTokens"])
    finally:
        client.close()
    read["calls"] = [(*name, json.loads("".join(blocks.get(index, [])) or "{}")) for index, name in named.items()]
    return read


READERS: dict[str, Callable[[str], Read]] = {
    "anthropic_messages": read_messages,
    "openai_chat": read_chat,
    "openai_responses": read_responses,
    "gemini": read_gemini,
    "bedrock_converse": read_converse,
}
