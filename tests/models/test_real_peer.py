"""The adapter against a chat completions server that nobody here wrote: npm's aimock."""

from collections.abc import Iterator

import httpx2
import node_peers
import pytest
from models_support import HandClock, ask, outcome

from semel import Agent, Completed, Runtime, tool
from semel.adapters.models.catalog import build_model
from semel.core.values import AssistantMessage, Stop, Text, ToolCall, ToolMessage
from semel.ports.model import FailureClass


@pytest.fixture
def peer() -> Iterator[str]:
    """The origin of a running aimock. A machine that cannot have one says so in the summary."""
    try:
        running = node_peers.aimock(node_peers.HERE / "aimock")
        origin = running.__enter__()
    except node_peers.PeerUnavailable as reason:
        pytest.skip(f"the real peer aimock is not available: {reason}")
    try:
        yield origin
    finally:
        running.__exit__(None, None, None)


@pytest.mark.anyio
@pytest.mark.timeout(240)
async def test_a_turn_with_two_parallel_tool_calls_over_a_real_peers_chat_endpoint(peer):
    model = build_model(f"openai_chat:m@{peer}/v1", clock=HandClock(), environ={})
    first = model.render(ask("Weather in two cities?"))
    shown, answer = await outcome(model, first)
    assert "".join(shown) == "I look both up. "
    assert len(shown) > 1
    assert answer.stop is Stop.TOOL_USE
    assert answer.blocks == (
        Text(text="I look both up. "),
        ToolCall(id="call_paris", name="get_weather", arguments='{"city":"Paris"}'),
        ToolCall(id="call_zurich", name="get_weather", arguments='{"city":"Zürich"}'),
    )
    assert answer.usage.input > 0
    assert answer.usage.output > 0
    results = (ToolMessage(tool_call_id="call_paris", text="18C"), ToolMessage(tool_call_id="call_zurich", text="12C"))
    second = model.render(ask("Weather in two cities?", AssistantMessage(blocks=answer.blocks), *results))
    _, final = await outcome(model, second)
    assert (final.stop, final.blocks) == (Stop.END_TURN, (Text(text="18C in Paris, 12C in Zürich 🌧."),))
    _, refused = await outcome(model, ask("Something it has no answer to"))
    assert refused.failure in (FailureClass.INVALID_REQUEST, FailureClass.OVERLOADED)
    await model.close()
    async with httpx2.AsyncClient(trust_env=False) as client:
        journal = (await client.get(f"{peer}/__aimock/journal")).json()
    assert len(journal) == 3


@pytest.mark.anyio
@pytest.mark.timeout(240)
async def test_a_whole_run_with_two_parallel_tool_calls_against_the_real_peer(peer, tmp_path):
    asked: list[str] = []

    @tool(effect="read")
    async def get_weather(city: str) -> str:
        """Look up the weather."""
        asked.append(city)
        return {"Paris": "18C", "Zürich": "12C"}[city]

    agent = Agent("weather", model=f"openai_chat:m@{peer}/v1", instructions="You look up the weather.", tools=[get_weather])
    async with Runtime(tmp_path, agents=[agent]) as runtime:
        run = await runtime.session("s", agent=agent).send("Weather in two cities?")
        pieces = [piece async for piece in run.text()]
        result = await run.result()
    assert isinstance(result, Completed)
    assert result.output == "18C in Paris, 12C in Zürich 🌧."
    assert sorted(asked) == ["Paris", "Zürich"]
    assert "".join(pieces) == "I look both up. 18C in Paris, 12C in Zürich 🌧."
    assert result.usage.input
    assert result.usage.output


def test_a_machine_without_the_peer_says_so_in_the_summary(pytester_run):
    """Negative control: the reason is printed, not swallowed."""
    assert "not run on this machine" in pytester_run
    assert "test_planted.py::test_it: no peer here" in pytester_run


@pytest.fixture
def pytester_run(tmp_path) -> str:
    import os
    import subprocess
    import sys
    from pathlib import Path

    (tmp_path / "conftest.py").write_text((Path(__file__).parent / "conftest.py").read_text())
    (tmp_path / "test_planted.py").write_text("import pytest\n\ndef test_it():\n    pytest.skip('no peer here')\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)],
        capture_output=True, text=True, cwd=tmp_path, check=False, env={**os.environ, "PYTHONPATH": ":".join(sys.path)},
    )  # fmt: skip
    return done.stdout
