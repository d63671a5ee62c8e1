"""Over real HTTP: state that a provider refuses is repaired once; what a provider tells of a failure is in the record (R25)."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from semel import Agent, Completed, Failed, Limits, Runtime, tool
from semel.adapters.models.script_steps import End, Head, Send, Step
from semel.core.details import BYTES_MOST, bounded_details
from semel.core.guards import check_wire
from semel.core.records import Config
from semel.core.values import Bundle
from semel.errors import BadAgent
from semel.testing.formats import FORMATS
from semel.testing.ground import memory_ground
from semel.testing.model_server import ModelServer
from tests.cases.serve import recorded
from tests.engine.fakes import events_of

pytestmark = pytest.mark.anyio
FIXTURES = Path(__file__).parents[1] / "models" / "fixtures"
QUOTA = (FIXTURES / "gemini" / "error429.body.json").read_bytes()
BLOB = {"error": {"message": "The encrypted content could not be verified.", "code": "invalid_encrypted_content"}}
THOUGHT = {"error": {"code": 400, "message": "Corrupted thought signature.", "status": "INVALID_ARGUMENT"}}
SIGNATURE = {"message": "messages.1.content.0: Invalid `signature` in `thinking` block"}
GATEWAY = {"error": {"message": "Provider returned error", "code": 400, "metadata": {"raw": json.dumps(SIGNATURE)}}}
MISSED = {"error": {"message": "The `reasoning_content` in the thinking mode must be passed back to the API.", "code": None}}
UNSIGNED = {"candidates": [{"index": 0, "finishReason": "MISSING_THOUGHT_SIGNATURE"}]}


class Case(NamedTuple):
    """A recorded answer that holds provider state, how a later request shows it, and how that is refused."""

    family: str
    answer: str
    mark: bytes
    refusal: bytes
    status: int = 400
    headers: dict[str, str] | None = None
    options: dict[str, Any] | None = None


CASES = {
    "anthropic": Case(
        "anthropic_messages",
        "thinking.response.sse",
        b'"type":"thinking"',
        recorded("B22-400.json"),
    ),
    "responses": Case("openai_responses", "thinking.response.sse", b'"encrypted_content":"', json.dumps(BLOB).encode()),
    "gemini": Case("gemini", "tools.response.sse", b'"thoughtSignature":"', json.dumps(THOUGHT).encode()),
    "gemini, inside a 200": Case(
        "gemini", "tools.response.sse", b'"thoughtSignature":"', f"data: {json.dumps(UNSIGNED)}\n\n".encode(), 200
    ),
    "bedrock": Case(
        "bedrock_converse",
        "thinking.response.bin",
        b'"reasoningContent":',
        json.dumps(SIGNATURE).encode(),
        headers={"x-amzn-errortype": "ValidationException"},
    ),
    "deepseek": Case(
        "openai_chat",
        "thinking_deepseek.response.sse",
        b'"reasoning_content":',
        json.dumps(MISSED).encode(),
        options={"dialect": {"reasoning": "thinking"}},
    ),
    "openrouter": Case(
        "openai_chat",
        "thinking_openrouter.response.sse",
        b'"reasoning_details":',
        json.dumps(GATEWAY).encode(),
        options={"dialect": {"reasoning": "object", "include_usage": False, "cost_currency": "USD"}},
    ),
}


def reply(body: bytes, family: str, status: int = 200, headers: dict[str, str] | None = None) -> Iterable[Step]:
    kind = FORMATS[family].format.content_type if status == 200 else "application/json"
    return [Head(status=status, headers={"content-type": kind, **(headers or {})}), Send(body=body), End()]


@tool(effect="read")
def get_weather(city: str, unit: str = "celsius") -> str:
    """The weather."""
    return f"rain in {city}, {unit}"


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("times", [1, 2])
async def test_b22_refused_state_is_dropped_by_a_record_and_a_second_refusal_fails_by_name(name: str, times: int) -> None:
    case = CASES[name]
    family, recorded, bodies = case.family, FIXTURES / case.family, list[bytes]()

    def serve(body: bytes) -> Iterable[Step]:
        bodies.append(body)
        if len(bodies) == 1:
            return reply((recorded / case.answer).read_bytes(), family)
        if len(bodies) <= 1 + times:
            return reply(case.refusal, family, case.status, case.headers)
        return reply((recorded / f"text.response{Path(case.answer).suffix}").read_bytes(), family)

    ground = memory_ground()
    async with ModelServer(serve, formats=[family]) as server:
        agent = Agent("a", model=f"{family}:m@{server.url}", tools=[get_weather], model_options=case.options or {})
        async with Runtime(agents=[agent], ground=ground) as runtime:
            result = await (await runtime.session("s", agent=agent).send("weather?")).result()
    assert [case.mark in body for body in bodies] == [False, True, False]
    assert bodies[2].count(b"rain in") == bodies[1].count(b"rain in") > 0  # what was said and done stays
    events = [event["type"] for event in events_of(ground.store)]
    assert events.count("opaque_state_voided") == 1
    if times == 1:
        assert isinstance(result, Completed)
    else:
        assert isinstance(result, Failed)
        assert result.error is not None
        assert result.error.code == "opaque_state_rejected"


def test_b22_every_family_has_its_refusal_here() -> None:
    assert len(CASES) == 7
    assert {case.family for case in CASES.values()} == set(FORMATS)


async def test_r25_the_providers_account_of_a_quota_is_in_the_record_the_status_and_the_outcome() -> None:
    ground = memory_ground()
    async with ModelServer(lambda _body: reply(QUOTA, "gemini", 429), formats=["gemini"]) as server:
        agent = Agent("a", model=f"gemini:m@{server.url}", limits=Limits(model_retries=0))
        async with Runtime(agents=[agent], ground=ground) as runtime:
            session = runtime.session("s", agent=agent)
            result = await (await session.send("hi")).result()
            status = session.state()
    told = json.loads(QUOTA)["error"]["details"]
    assert isinstance(result, Failed)
    assert result.error is not None
    assert result.error.provider_details == told
    assert status is not None
    shown = json.loads(msgspec.json.encode(status))["error"]
    assert (list(shown)[:4], shown["class"], shown["code"]) == (["class", "code", "message", "provider"], "model", "rate_limit")
    assert shown["details"] == told
    (end,) = [frame for frame in ground.store.read("s").frames if b'"type":"run_finished"' in frame.payload]
    assert end.requires == ("google-rpc-error-details/v1",)


def test_r25_details_are_small_and_hold_no_control_characters_whatever_a_provider_sends() -> None:
    deep: Any = "x"
    for _ in range(50):
        deep = [deep]
    odd = [{"a\x1b[2J": "b\x00c\x9b"}, {"n": 10**30, "f": float("nan"), "ok": 1.5, "yes": True, "no": None}, deep, "y" * 9000]
    kept = bounded_details(odd)
    text = json.dumps(kept, ensure_ascii=False)
    assert text.isprintable()
    assert len(kept) == 4
    assert kept[1] == {"n": "…", "f": "…", "ok": 1.5, "yes": True, "no": None}
    many = bounded_details([{"violation": "z" * 400}] * 100)
    assert 0 < len(many) < 100
    assert len(msgspec.json.encode(many)) <= BYTES_MOST + len(many) + 2


def test_p36_a_run_of_the_chatgpt_profile_is_read_and_not_spoken_and_one_without_it_goes_on() -> None:
    config = Config(
        bundle=Bundle(family="openai_responses", model="m", endpoint="https://h/v1", renderer=1), limits=Limits().frozen()
    )
    check_wire(config)
    with pytest.raises(BadAgent, match="ChatGPT wire profile"):
        check_wire(msgspec.structs.replace(config, chatgpt_wire={"originator": "codex"}))
