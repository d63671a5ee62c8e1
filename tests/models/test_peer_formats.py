"""One script in five wire formats: our adapters read the same answers from each, with every fault (wire 1 to 5)."""

import asyncio
import json
import subprocess
import sys
from contextlib import asynccontextmanager

import pytest
from conversations import prompt
from models_support import HandClock, VirtualClock, in_virtual_time, outcome
from played import scripted
from wire_support import WIRES

from semel.adapters.models.catalog import ModelOptions, build_model
from semel.adapters.models.deadline import Limits
from semel.core.values import AssistantMessage, Opaque, Stop, Text, ToolCall, ToolMessage, Usage, UserMessage
from semel.ports.model import Answer, FailureClass, ModelFailed
from semel.testing.formats import FORMATS
from semel.testing.model_server import ModelServer

pytestmark = pytest.mark.anyio
every_family = pytest.mark.parametrize("family", sorted(WIRES))
SCRIPT = {
    "answers": [
        {
            "thinking": "They want both.",
            "text": "I look both up. ",
            "calls": [
                {"name": "get_weather", "args": {"city": "Zürich 🌧"}, "id": "call_a"},
                {"name": "noop", "args": {}, "id": "call_b"},
            ],
            "usage": {"input": 40, "output": 30, "cache_read": 64, "cache_write": 16, "reasoning": 12},
            "chunk": 3,
        },
        {"text": "It rains.", "expect": ["18C", "call_b"]},
        {"text": "cut sh", "stop": "max_tokens"},
        {"text": "no", "stop": "content_filter"},
    ]
}
REFUSALS_OF = {"anthropic_messages": Stop.REFUSAL}
NO_CACHE_WRITES = {"gemini"}
NO_REASONING_COUNT = {"bedrock_converse"}


@asynccontextmanager
async def model_at(server: ModelServer, family: str, clock=None, options: ModelOptions | None = None):
    model = build_model(f"{family}:m@{server.url}", clock=clock or HandClock(), environ={}, options=options)
    try:
        yield model
    finally:
        await model.close()


def usage_seen(family: str) -> Usage:
    return Usage(
        input=40,
        output=30,
        cache_read=64,
        cache_write=None if family in NO_CACHE_WRITES else 16,
        reasoning=None if family in NO_REASONING_COUNT else 12,
    )


@every_family
async def test_a_run_of_two_turns_with_parallel_calls_and_thinking(family):
    async with ModelServer(SCRIPT, formats=[family]) as server, model_at(server, family) as model:
        shown, answer = await outcome(model, prompt([UserMessage(text="Weather?")]))
        assert isinstance(answer, Answer), answer
        assert "".join(shown) == "I look both up. "
        assert [block for block in answer.blocks if not isinstance(block, Opaque)] == [
            Text(text="I look both up. "),
            ToolCall(id="call_a", name="get_weather", arguments='{"city":"Zürich 🌧"}'),
            ToolCall(id="call_b", name="noop", arguments="{}"),
        ]
        assert (answer.stop, answer.usage) == (Stop.TOOL_USE, usage_seen(family))
        results = [ToolMessage(tool_call_id="call_a", text="18C"), ToolMessage(tool_call_id="call_b", text="fine")]
        second = prompt([UserMessage(text="Weather?"), AssistantMessage(blocks=answer.blocks), *results])
        _, final = await outcome(model, second)
        asked = server.requests[1].body
    assert (final.stop, final.blocks[0]) == (Stop.END_TURN, Text(text="It rains."))
    assert b"They want both." in asked  # what was thought goes back with the calls that it led to
    assert len(server.requests) == 2


@every_family
async def test_stops_and_the_ends_of_a_script(family):
    def after(count: int):
        turns = [m for n in range(count) for m in (AssistantMessage(blocks=(Text(text=f"a{n}"),)), UserMessage(text=f"q{n}"))]
        return prompt([UserMessage(text="hi"), *turns])

    async with ModelServer(SCRIPT) as server, model_at(server, family) as model:
        _, lacking = await outcome(model, after(1))
        assert (lacking.failure, lacking.provider_code) == (FailureClass.INVALID_REQUEST, "script_expectation")
        _, cut = await outcome(model, after(2))
        assert (cut.stop, cut.truncated) == (Stop.MAX_TOKENS, True)
        _, filtered = await outcome(model, after(3))
        assert filtered.stop is REFUSALS_OF.get(family, Stop.CONTENT_FILTER)
        _, beyond = await outcome(model, after(4))
        assert (beyond.failure, beyond.provider_code) == (FailureClass.INVALID_REQUEST, "script_exhausted")


WHOLE = {"text": "It works in the end, it does.", "chunk": 2}
FAULTS = [
    ({"kind": "status", "status": 429, "headers": {"retry-after": "7"}}, FailureClass.RATE_LIMIT),
    ({"kind": "status", "status": 503}, FailureClass.OVERLOADED),
    ({"kind": "status", "status": 404}, FailureClass.INVALID_REQUEST),
    ({"kind": "cut"}, FailureClass.INTERRUPTED),
    ({"kind": "cut", "how": "no_last_chunk"}, FailureClass.INTERRUPTED),
    ({"kind": "cut", "at": 1}, FailureClass.INTERRUPTED),
    ({"kind": "stream_error"}, FailureClass.SERVER_ERROR),
    ({"kind": "garble"}, FailureClass.INTERRUPTED),
]


@every_family
async def test_every_fault_has_its_class_and_then_the_answer_comes(family):
    script = {"answers": [{**WHOLE, "fault": fault} for fault, _ in FAULTS]}
    async with ModelServer(script) as server:
        for index, (fault, failure) in enumerate(FAULTS):
            turns = [m for n in range(index) for m in (AssistantMessage(blocks=(Text(text=f"a{n}"),)), UserMessage(text=f"q{n}"))]
            given = prompt([UserMessage(text="hi"), *turns])
            async with model_at(server, family) as model:
                _, failed = await outcome(model, given)
            assert isinstance(failed, ModelFailed), fault
            assert failed.failure is failure, (fault, failed)
            async with model_at(server, family) as model:  # with a clock of its own: no refusal holds it up
                _, answer = await outcome(model, given)
            assert answer.blocks[0] == Text(text=WHOLE["text"])
        assert len(server.requests) == 2 * len(FAULTS)


@every_family
async def test_a_trickle_of_single_bytes_and_empty_events_are_the_same_answer(family):
    for fault in ({"kind": "trickle", "bytes": 1}, {"kind": "empty", "count": 5}):
        script = {"answers": [{"text": "Grüße 🌧", "chunk": 2, "fault": fault}]}
        async with ModelServer(script) as server, model_at(server, family) as model:
            shown, end = await outcome(model, prompt([UserMessage(text="hi")]))
            assert ("".join(shown), end.blocks[0]) == ("Grüße 🌧", Text(text="Grüße 🌧"))


@every_family
@pytest.mark.parametrize(
    ("fault", "limit"),
    [
        ({"kind": "stall", "at": 300}, "idle_ms"),
        ({"kind": "ping_only", "at": 10_000, "every_ms": 1000}, "progress_ms"),
        ({"kind": "ping_only", "at": 0, "every_ms": 1000}, "first_content_ms"),
    ],
)
async def test_a_silent_server_and_one_that_only_pings_are_given_up(family, fault, limit):
    options = ModelOptions(limits=Limits(idle_ms=60_000, progress_ms=90_000, first_content_ms=80_000))
    clock = VirtualClock()
    answer = {**WHOLE, "text": WHOLE["text"] * 400, "fault": fault}
    connector = scripted(clock, family, answer)
    model = build_model(f"{family}:m@http://127.0.0.1:9/v1", clock=clock, environ={}, options=options, connector=connector)
    _, end = await in_virtual_time(clock, outcome(model, prompt([UserMessage(text="hi")])))
    assert (end.failure, end.retryable) == (FailureClass.TIMEOUT, True)
    assert limit in str(end)
    assert len(connector.requests) == 1


@every_family
async def test_the_tokens_of_a_request_are_counted_where_there_is_a_path_for_it(family):
    async with ModelServer(SCRIPT) as server, model_at(server, family) as model:
        if FORMATS[family].count_path is None:
            assert not model.counts
        else:
            given = prompt([UserMessage(text="Weather?")])
            count = await model.count_tokens(given)
            assert count == len(server.requests[0].body) // 4 > 10
            body = json.loads(server.requests[0].body)
            assert "stream" not in body
            assert "max_tokens" not in body
            assert "generationConfig" not in body.get("generateContentRequest", {})


def test_the_command_line_serves_the_family_that_it_is_told_to(tmp_path):
    script = tmp_path / "s.json"
    script.write_text(json.dumps(SCRIPT))
    for family in sorted(WIRES):
        command = [sys.executable, "-m", "semel.testing.model_server", str(script), "--format", family]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                url = process.stdout.readline().strip()
                assert url.endswith(FORMATS[family].base)

                async def ask(url=url, family=family):
                    model = build_model(f"{family}:m@{url}", clock=HandClock(), environ={})
                    try:
                        return await outcome(model, prompt([UserMessage(text="Weather?")]))
                    finally:
                        await model.close()

                assert isinstance(asyncio.run(ask())[1], Answer)
            finally:
                process.terminate()
