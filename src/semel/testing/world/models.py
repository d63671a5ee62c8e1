"""Models that stall, are cut, refuse, ask to wait, break their contract; around any model. And one that makes up its answers."""

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from random import Random
from typing import Any

from msgspec import json
from msgspec.structs import replace

from semel.core.values import Block, Bundle, Prompt, Stop, Text, ToolCall, Usage
from semel.ports.model import Answer, Delta, Exchange, FailureClass, ModelFailed, ModelPort, Request
from semel.testing.world.fate import Fate
from semel.testing.world.witness import Witness

_AGAIN = (FailureClass.SERVER_ERROR, FailureClass.OVERLOADED, FailureClass.UNREACHABLE, FailureClass.MALFORMED_OUTPUT)
_REFUSED = (FailureClass.PERMISSION, FailureClass.INVALID_REQUEST, FailureClass.CONTEXT_EXCEEDED, FailureClass.CONTENT_FILTER)
_PROMPTS_KEPT = 50


class HostileModel(ModelPort):
    """A model of the user's or the world's own, with the faults that the seed chooses around it."""

    def __init__(self, inner: ModelPort, fate: Fate, witness: Witness, crash: Callable[[str], None]) -> None:
        """`crash` ends the process and raises."""
        self._inner, self._fate, self._witness, self._crash = inner, fate, witness, crash
        self._dice = fate.dice("model")
        self._prompts: dict[str, Prompt] = {}

    @property
    def bundle(self) -> Bundle:
        """The model's own."""
        return self._inner.bundle

    def render(self, prompt: Prompt) -> Request:
        """The model's own."""
        request = self._inner.render(prompt)
        self._prompts[request.sha256] = prompt
        while len(self._prompts) > _PROMPTS_KEPT:
            del self._prompts[next(iter(self._prompts))]
        return request

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Answer, None]:
        """The model's own answer, or what the seed makes of it."""
        self._witness.asking(self._inner, request, self._prompts.get(request.sha256))
        self._fate.tell("model", f"is asked {request.sha256[:8]}")
        if self._fate.strikes("crash_at_model"):
            self._crash("a request had left")
        await asyncio.sleep(self._dice.choice((0.0, 0.01, 1.0)) * self._dice.random())
        self._refuse()
        if self._fate.strikes("model_stalls"):
            await asyncio.sleep(self._dice.uniform(10, 400))
            raise ModelFailed(FailureClass.TIMEOUT, "it fell silent")
        cut = self._fate.strikes("model_cut")
        async with aclosing(self._inner.stream(request)) as chunks:
            async for chunk in chunks:
                if cut:
                    yield Delta(text="I th")
                    raise ModelFailed(FailureClass.INTERRUPTED, "the connection was cut")
                yield self._truncated(chunk) if isinstance(chunk, Answer) else chunk

    async def close(self) -> None:
        """The model's own."""
        await self._inner.close()

    def _refuse(self) -> None:
        if self._fate.strikes("model_error"):
            raise ModelFailed(self._dice.choice(_AGAIN), "try again")
        if self._fate.strikes("model_retry_after"):
            wait_ms = self._dice.choice((100, 5_000, 60_000, 10_000_000))
            raise ModelFailed(FailureClass.RATE_LIMIT, "not so fast", retry_after_ms=wait_ms)
        if self._fate.strikes("model_refuses"):
            raise ModelFailed(self._dice.choice(_REFUSED), "no")
        if self._fate.strikes("model_refuses_key"):
            raise ModelFailed(FailureClass.AUTH, "no such key")
        if self._fate.strikes("model_breaks"):
            raise RuntimeError("a bug in a model object")

    def _truncated(self, answer: Answer) -> Answer:
        return replace(answer, stop=Stop.MAX_TOKENS) if self._fate.strikes("model_truncates") else answer


class Improviser(ModelPort):
    """A model that makes up its answers: fewer calls the longer a run lasts, now and then wrong ones."""

    def __init__(self, fate: Fate) -> None:
        """The seed decides the answers; the same request may have another one."""
        self._fate, self._dice = fate, fate.dice("answers")

    @property
    def bundle(self) -> Bundle:
        """A model without endpoint and key."""
        return Bundle(family="scripted", model="improviser", endpoint="", renderer=1)

    def render(self, prompt: Prompt) -> Request:
        """The prompt as JSON."""
        body = json.encode({"instructions": prompt.instructions, "tools": prompt.tools, "messages": list(prompt.messages)})
        return Request(body=body, sha256=hashlib.sha256(body).hexdigest())

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Answer, None]:
        """Some text, some calls."""
        asked = json.decode(request.body)
        text = f"thought {self._dice.randrange(1000)}"
        yield Delta(text=text[:4])
        await asyncio.sleep(self._dice.random() * 0.1)
        tools = [tool for tool in asked["tools"] for _ in range(2 if tool.get("reconciles") else 1)]
        calls = self._calls(asked["messages"], tools)
        blocks: tuple[Block, ...] = (Text(text=text), *calls)
        yield Answer(
            blocks=blocks,
            stop=Stop.TOOL_USE if calls else Stop.END_TURN,
            usage=Usage(input=len(request.body) // 4, output=len(text)),
            exchange=Exchange(response_body_len=len(text), http_status=200),
        )

    async def close(self) -> None:
        """Nothing is open."""

    def _calls(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> tuple[ToolCall, ...]:
        depth = 0
        for message in reversed(messages):
            if message["type"] == "user":
                break
            depth += message["type"] == "assistant"
        if not tools or self._dice.random() >= (0.9, 0.6, 0.35, 0.15, 0.0)[min(depth, 4)]:
            return ()
        count = self._dice.randint(2, 6) if self._fate.strikes("model_parallel") else 1
        return tuple(self._call(at, len(messages), tools) for at in range(count))

    def _call(self, at: int, depth: int, tools: list[dict[str, Any]]) -> ToolCall:
        tool = self._dice.choice(tools)
        name, arguments = tool["name"], json.encode(made_up(json.decode(tool["parameters"]), self._dice)).decode()
        if self._fate.strikes("model_unknown_tool"):
            name = "no_such_tool"
        if self._fate.strikes("model_bad_arguments"):
            arguments = self._dice.choice(
                ('{"n": "seven"}', '{"n": 1', "[]", '{"n": 1, "n": 2}', "{}", '{"n": 1e999}', "nonsense")
            )
        ident = "again" if self._fate.strikes("model_repeats_ids") else f"c{depth}-{at}"
        return ToolCall(id=ident, name=name, arguments=arguments)


def made_up(schema: dict[str, Any], dice: Random) -> object:
    """A value that fits a plain JSON Schema: objects, lists, enumerations, text, numbers. For anything else it is a guess."""
    if "enum" in schema:
        return dice.choice(schema["enum"])
    if "anyOf" in schema:
        return made_up(dice.choice(schema["anyOf"]), dice)
    match schema.get("type"):
        case "object":
            return {name: made_up(inner, dice) for name, inner in schema.get("properties", {}).items()}
        case "array":
            return [made_up(schema.get("items", {}), dice) for _ in range(dice.randint(0, 2))]
        case "integer":
            return dice.randint(schema.get("minimum", 0), schema.get("maximum", 99))
        case "number":
            return dice.randint(0, 99) / 4
        case "boolean":
            return dice.random() < 0.5
        case "null":
            return None
        case _:
            return f"word {dice.randrange(100)}"
