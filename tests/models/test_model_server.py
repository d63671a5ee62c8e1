"""The scripted model over HTTP: read by the official client, witnessed in its journal, held and cut where the script says."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import openai
import pytest
from models_support import FIXTURES, HandClock, after, ask, outcome

from semel.adapters.models.catalog import build_model
from semel.core.values import Stop, Text, ToolCall, Usage
from semel.ports.model import Answer, FailureClass, ModelFailed
from semel.testing.model_server import ModelServer, serve_in_thread

SCRIPT = {
    "answers": [
        {
            "text": "I look both up. ",
            "calls": [
                {"name": "get_weather", "args": {"city": "Zürich 🌧"}},
                {"name": "get_time", "raw": '{"tz": "JST" }', "id": "mine"},
            ],
            "usage": {"input": 40, "output": 30, "cache_read": 64, "cache_write": 16, "reasoning": 12},
            "chunk": 3,
        },
        {"text": "It rains.", "expect": ["18C", "tool"]},
        {"text": "I cannot.", "stop": "refusal"},
        {"text": "cut sh", "stop": "max_tokens"},
    ]
}


def model_at(url: str):
    return build_model(f"openai_chat:m@{url}", clock=HandClock(), environ={})


def test_the_official_client_reads_the_servers_streams_with_tools(tmp_path):
    journal = tmp_path / "journal"
    with serve_in_thread(SCRIPT, journal=journal) as server:
        client = openai.OpenAI(base_url=server.url, api_key="unused", max_retries=0)
        messages = [{"role": "user", "content": "Weather and time?"}]
        with client.chat.completions.stream(model="m", messages=messages, stream_options={"include_usage": True}) as stream:
            deltas = "".join(event.delta for event in stream if event.type == "content.delta")
            final = stream.get_final_completion()
        client.close()
    choice = final.choices[0]
    assert deltas == choice.message.content == "I look both up. "
    assert choice.finish_reason == "tool_calls"
    assert [(call.id, call.function.name, call.function.arguments) for call in choice.message.tool_calls] == [
        ("call_0_0", "get_weather", '{"city":"Zürich 🌧"}'),
        ("mine", "get_time", '{"tz": "JST" }'),
    ]
    assert (final.usage.prompt_tokens, final.usage.completion_tokens, final.usage.prompt_tokens_details.cached_tokens) == (
        120,
        30,
        64,
    )
    assert json.loads(journal.read_text())["n"] == 1


@pytest.mark.anyio
async def test_our_adapter_and_the_scripted_model_in_process_read_the_same_from_one_script(tmp_path):
    path = tmp_path / "script.json"
    path.write_text(json.dumps(SCRIPT))
    script = build_model(f"scripted:{path}", clock=HandClock(), environ={})
    async with ModelServer(SCRIPT) as server:
        over_http = model_at(server.url)
        prompt = ask("Weather and time?")
        (shown, answer), (shown_here, answer_here) = await outcome(over_http, prompt), await outcome(script, prompt)
        await over_http.close()
    assert answer.blocks == (
        Text(text="I look both up. "),
        ToolCall(id="call_0_0", name="get_weather", arguments='{"city":"Zürich 🌧"}'),
        ToolCall(id="mine", name="get_time", arguments='{"tz": "JST" }'),
    )
    assert answer.usage == Usage(input=40, output=30, cache_read=64, cache_write=16, reasoning=12)
    assert "".join(shown) == "".join(shown_here) == answer.blocks[0].text
    assert (answer_here.blocks, answer_here.stop, answer_here.usage) == (answer.blocks, answer.stop, answer.usage)


@pytest.mark.anyio
async def test_stops_and_expectations_and_the_end_of_the_script(tmp_path):
    async with ModelServer(SCRIPT) as server:
        model = model_at(server.url)
        _, lacking = await outcome(model, after(1))
        assert (lacking.failure, lacking.provider_code) == (FailureClass.INVALID_REQUEST, "script_expectation")
        _, refused = await outcome(model, after(2))
        assert (refused.stop, refused.blocks) == (Stop.REFUSAL, (Text(text="I cannot."),))
        _, cut = await outcome(model, after(3))
        assert (cut.stop, cut.truncated) == (Stop.MAX_TOKENS, True)
        _, beyond = await outcome(model, after(4))
        assert (beyond.failure, beyond.provider_code) == (FailureClass.INVALID_REQUEST, "script_exhausted")
        assert "4 answers" in str(beyond)
        await model.close()


@pytest.mark.anyio
async def test_a_request_is_in_the_journal_before_a_byte_of_its_answer_leaves(tmp_path):
    journal = tmp_path / "journal"
    async with ModelServer({"answers": [{"fault": {"kind": "stall"}}]}, journal=journal) as server:
        model = model_at(server.url)
        request = model.render(ask())
        task = asyncio.ensure_future(outcome(model, request))
        while not server.requests:
            await asyncio.sleep(0)
        line = json.loads(journal.read_text())
        assert line == {"n": 1, "sha256": request.sha256, "body": request.body.decode()}
        task.cancel()
        await asyncio.wait({task})
        await model.close()
    async with ModelServer(SCRIPT, journal=journal) as server:
        model = model_at(server.url)
        await outcome(model, ask())
        await model.close()
    assert [json.loads(line)["n"] for line in journal.read_text().splitlines()] == [1, 2]


FAULTS = [
    ({"kind": "status", "status": 503}, FailureClass.OVERLOADED),
    ({"kind": "cut"}, FailureClass.INTERRUPTED),
    ({"kind": "cut", "how": "no_last_chunk"}, FailureClass.INTERRUPTED),
    ({"kind": "stream_error"}, FailureClass.SERVER_ERROR),
    ({"kind": "stream_error", "at": 0, "error": {"message": "m", "code": "rate_limit_exceeded"}}, FailureClass.RATE_LIMIT),
]


@pytest.mark.anyio
@pytest.mark.parametrize("where", ["over HTTP", "in process"])
async def test_a_fault_strikes_as_often_as_the_script_says_and_then_the_answer_comes(where, tmp_path):
    script = {"answers": [{"text": "It works in the end.", "fault": {**fault, "times": 2}} for fault, _ in FAULTS]}
    async with ModelServer(script) as server:
        path = tmp_path / "s.json"
        path.write_text(json.dumps(script))
        scripted = build_model(f"scripted:{path}", clock=HandClock(), environ={})
        for index, (_, failure) in enumerate(FAULTS):
            ends = []
            for _ in range(3):
                model = model_at(server.url) if where == "over HTTP" else scripted
                ends.append((await outcome(model, after(index)))[1])
                await model.close()
            assert [end.failure for end in ends[:2]] == [failure, failure]
            assert isinstance(ends[2], Answer)


@pytest.mark.anyio
async def test_a_trickle_of_single_bytes_is_the_same_answer():
    async with ModelServer({"answers": [{"text": "Grüße 🌧", "fault": {"kind": "trickle", "bytes": 1, "times": None}}]}) as server:
        model = model_at(server.url)
        shown, end = await outcome(model, ask())
        assert ("".join(shown), end.blocks) == ("Grüße 🌧", (Text(text="Grüße 🌧"),))
        await model.close()


@pytest.mark.anyio
async def test_the_model_in_process_waits_holds_and_refuses_as_the_server_does(tmp_path):
    from models_support import VirtualClock, in_virtual_time

    reached, release, path = tmp_path / "reached", tmp_path / "release", tmp_path / "s.json"
    hold = {"kind": "hold", "reached": str(reached), "release": str(release)}
    refusal = {"kind": "status", "status": 500, "body": "x"}
    path.write_text(
        json.dumps(
            {"answers": [{"text": "a", "delay_ms": 2500}, {"text": "held", "fault": hold}, {"text": "b", "fault": refusal}]}
        )
    )
    clock = VirtualClock()
    model = build_model(f"scripted:{path}", clock=clock, environ={})
    await in_virtual_time(clock, outcome(model, after(0)))
    assert clock.monotonic() == 2.5
    held = asyncio.ensure_future(in_virtual_time(clock, outcome(model, after(1))))
    while not reached.exists():
        await asyncio.sleep(0)
    assert not held.done()
    release.touch()
    assert (await held)[1].blocks == (Text(text="held"),)
    _, refused = await outcome(model, after(2))
    assert (refused.failure, refused.exchange.http_status) == (FailureClass.SERVER_ERROR, 500)
    _, beyond = await outcome(model, after(3))
    assert beyond.provider_code == "script_exhausted"
    await model.close()


@pytest.mark.anyio
async def test_a_hold_ends_when_its_file_appears(tmp_path):
    release = tmp_path / "release"
    hold = {"kind": "hold", "release": str(release), "times": None}
    async with ModelServer({"answers": [{"text": "held", "delay_ms": 1, "fault": hold}]}) as server:
        model = model_at(server.url)
        task = asyncio.ensure_future(outcome(model, ask()))
        await server.reached.wait()
        assert not task.done()
        release.touch()
        assert (await task)[1].blocks == (Text(text="held"),)
        await model.close()


@pytest.mark.anyio
async def test_a_server_that_only_pings_sends_comments_until_its_client_goes():
    import httpx2

    async with ModelServer({"answers": [{"text": "x", "fault": {"kind": "ping_only", "every_ms": 1}}]}) as server:
        received = b""
        async with httpx2.AsyncClient(trust_env=False) as client:
            body = model_at(server.url).render(ask()).body
            async with client.stream("POST", server.url + "/chat/completions", content=body) as response:
                async for chunk in response.aiter_raw():
                    received += chunk
                    if received.count(b"ping") >= 3:
                        break
        assert received.startswith(b": ping\n\n: ping\n\n")
        while server.connections:
            await asyncio.sleep(0)


@pytest.mark.anyio
async def test_pings_alone_are_given_up_in_the_end(tmp_path):
    from models_support import VirtualClock, in_virtual_time

    path = tmp_path / "s.json"
    path.write_text(
        json.dumps({"answers": [{"text": "x", "fault": {"kind": "ping_only"}}, {"text": "x", "fault": {"kind": "stall"}}]})
    )
    clock = VirtualClock()
    model = build_model(f"scripted:{path}", clock=clock, environ={})
    for index in range(2):
        _, end = await in_virtual_time(clock, outcome(model, after(index)))
        assert (end.failure, end.retryable) == (FailureClass.TIMEOUT, True)
    assert clock.monotonic() == 300 + 120


CLIENT = """
import asyncio, sys
sys.path.insert(0, sys.argv[2])
from models_support import HandClock, ask, outcome
from semel.adapters.models.catalog import build_model
model = build_model("openai_chat:m@" + sys.argv[1], clock=HandClock(), environ={})
print(asyncio.run(outcome(model, ask())), flush=True)
"""


def test_a_client_can_be_killed_while_the_model_answers_and_its_next_request_is_the_same(tmp_path):
    """The server as its own process, the client killed by SIGKILL at the hold, asked again without one."""
    journal, reached, script = tmp_path / "journal", tmp_path / "reached", tmp_path / "script.json"
    hold = {"kind": "hold", "at": 460, "reached": str(reached), "release": str(tmp_path / "never")}
    script.write_text(json.dumps({"answers": [{"text": "Paying the invoice now.", "fault": hold}]}))
    server = subprocess.Popen(
        [sys.executable, "-m", "semel.testing.model_server", str(script), "--journal", str(journal)],
        stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": ":".join(filter(None, sys.path))},
    )  # fmt: skip
    try:
        url = server.stdout.readline().strip()
        assert url.startswith("http://127.0.0.1:")
        client = [sys.executable, "-W", "ignore", "-c", CLIENT, url, str(Path(__file__).parent)]
        env = {**os.environ, "PYTHONPATH": ":".join(filter(None, sys.path))}
        first = subprocess.Popen(client, env=env, stdout=subprocess.DEVNULL)
        wait_for(reached.exists)
        first.send_signal(signal.SIGKILL)
        assert first.wait() == -signal.SIGKILL
        second = subprocess.run(client, env=env, capture_output=True, text=True, check=True)
        assert "Paying the invoice now." in second.stdout
    finally:
        server.terminate()
        assert server.wait() == 0
        server.stdout.close()
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    assert len(lines) == 2
    assert lines[0]["body"] == lines[1]["body"]
    assert lines[0]["sha256"] == lines[1]["sha256"]


def test_a_script_that_cannot_be_served_is_one_line_and_exit_2(tmp_path):
    (tmp_path / "bad.json").write_text("{")
    for name, told in (("bad.json", "cannot be read"), ("none.json", "cannot be opened")):
        done = subprocess.run(
            [sys.executable, "-m", "semel.testing.model_server", str(tmp_path / name)],
            capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": ":".join(filter(None, sys.path))},
        )  # fmt: skip
        assert (done.returncode, done.stderr.count("\n"), told in done.stderr) == (2, 1, True), done.stderr


def wait_for(condition) -> None:
    tick = threading.Event()
    while not condition():
        tick.wait(0.005)


def test_a_port_that_is_taken_is_an_error_of_the_caller():
    with serve_in_thread(SCRIPT) as server:
        port = int(server.url.rsplit(":", 1)[1].split("/")[0])
        with pytest.raises(OSError, match="address already in use"), serve_in_thread(SCRIPT, port=port):
            raise AssertionError("two servers on one port")


@pytest.mark.anyio
@pytest.mark.parametrize("name", ["text", "tools", "thinking_deepseek", "thinking_openrouter"])
async def test_recorded_streams_served_over_http_decode_as_from_bytes(name):
    from models_support import decode

    from semel.adapters.models.script_steps import End, Head, Send

    data = (FIXTURES / "openai_chat" / f"{name}.response.sse").read_bytes()
    steps = [Head(status=200, headers={"content-type": "text/event-stream; charset=utf-8"}), Send(body=data), End()]
    async with ModelServer(lambda _body: steps) as server:
        model = model_at(server.url)
        _, end = await outcome(model, ask())
        assert not isinstance(end, ModelFailed)
        assert end.blocks == decode(data)[1].blocks
        await model.close()


@pytest.mark.anyio
async def test_what_is_no_chat_completion_gets_an_error_object():
    import httpx2

    async with ModelServer(SCRIPT) as server, httpx2.AsyncClient(trust_env=False) as client:
        assert (await client.get(server.url + "/models")).status_code == 404
        refused = await client.post(server.url + "/chat/completions", content=b"{")
        assert (refused.status_code, refused.json()["error"]["type"]) == (400, "invalid_request_error")
