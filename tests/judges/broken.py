"""For each family, a conversation's body with one thing missing or added that its provider refuses, and its types find."""

from typing import Any


def _first(items: list[Any], **wanted: object) -> dict[str, Any]:
    return next(item for item in items if all(item.get(name) == value for name, value in wanted.items()))


def _tool_results(body: dict[str, Any], role: str) -> list[dict[str, Any]]:
    """The content of the message that answers calls."""
    return next(m["content"] for m in body["messages"] if m["role"] == role and "tool" in str(m["content"][0]))


BREAK = {
    "anthropic_messages": lambda body: _tool_results(body, "user")[0].pop("tool_use_id"),
    "openai_chat": lambda body: _first(body["messages"], role="tool").pop("tool_call_id"),
    "openai_responses": lambda body: _first(body["input"], type="function_call").pop("call_id"),
    "gemini": lambda body: body["contents"][2]["parts"][0].update(function_answer={}),
    "bedrock_converse": lambda body: _tool_results(body, "user")[0]["toolResult"].pop("toolUseId"),
}
