"""Our adapters against a model server that nobody here wrote, in five wire formats: npm's aimock."""

from collections.abc import Iterator

import httpx2
import node_peers
import pytest
from models_support import HandClock, ask, outcome

from semel import Agent, Completed, Runtime, tool
from semel.adapters.models.catalog import build_model
from semel.core.values import AssistantMessage, Opaque, Stop, Text, ToolCall, ToolMessage
from semel.ports.model import FailureClass


@pytest.fixture(scope="module")
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


BASES = {
    "openai_chat": "/v1",
    "openai_responses": "/v1",
    "anthropic_messages": "/v1",
    "gemini": "/v1beta",
    "bedrock_converse": "",
}
# What the peer gets wrong, expected here so that its repair would be noticed: the reason that it gives for Gemini's calls, and
# counts of zero everywhere but in chat completions.
STOPS = {"gemini": (Stop.OTHER, "FUNCTION_CALL")}
COUNTS_TOKENS = {"openai_chat"}


@pytest.mark.anyio
@pytest.mark.timeout(240)
async def test_two_turns_with_parallel_tool_calls_in_five_formats(peer):
    results = (ToolMessage(tool_call_id="call_paris", text="18C"), ToolMessage(tool_call_id="call_zurich", text="12C"))
    for family, base in BASES.items():
        model = build_model(f"{family}:m@{peer}{base}", clock=HandClock(), environ={})
        try:
            shown, answer = await outcome(model, ask("Weather in two cities?"))
            assert "".join(shown) == "I look both up. "
            assert len(shown) > 1
            assert (answer.stop, answer.raw_stop) == STOPS.get(family, (Stop.TOOL_USE, answer.raw_stop))
            assert [block for block in answer.blocks if not isinstance(block, Opaque)] == [
                Text(text="I look both up. "),
                ToolCall(id="call_paris", name="get_weather", arguments='{"city":"Paris"}'),
                ToolCall(id="call_zurich", name="get_weather", arguments='{"city":"Zürich"}'),
            ]
            assert bool(answer.usage.input and answer.usage.output) is (family in COUNTS_TOKENS)
            _, final = await outcome(model, ask("Weather in two cities?", AssistantMessage(blocks=answer.blocks), *results))
            said = [block for block in final.blocks if not isinstance(block, Opaque)]
            assert (final.stop, said) == (Stop.END_TURN, [Text(text="18C in Paris, 12C in Zürich 🌧.")])
            _, refused = await outcome(model, ask("Something it has no answer to"))
            assert refused.failure in (FailureClass.INVALID_REQUEST, FailureClass.OVERLOADED), family
        finally:
            await model.close()
    async with httpx2.AsyncClient(trust_env=False) as client:
        journal = (await client.get(f"{peer}/__aimock/journal")).json()
    print(f"{len(journal)} requests at the peer")
    assert len(journal) == 3 * len(BASES)  # this test is the first of the module


@pytest.mark.anyio
@pytest.mark.timeout(240)
@pytest.mark.parametrize("family", BASES)
async def test_a_whole_run_with_two_parallel_tool_calls_against_the_real_peer(family, peer, tmp_path):
    asked: list[str] = []

    @tool(effect="read")
    async def get_weather(city: str) -> str:
        """Look up the weather."""
        asked.append(city)
        return {"Paris": "18C", "Zürich": "12C"}[city]

    agent = Agent(
        "weather", model=f"{family}:m@{peer}{BASES[family]}", instructions="You look up the weather.", tools=[get_weather]
    )
    async with Runtime(tmp_path, agents=[agent]) as runtime:
        run = await runtime.session("s", agent=agent).send("Weather in two cities?")
        pieces = [piece async for piece in run.text()]
        result = await run.result()
    assert isinstance(result, Completed)
    assert result.output == "18C in Paris, 12C in Zürich 🌧."
    assert sorted(asked) == ["Paris", "Zürich"]
    assert "".join(pieces) == "I look both up. 18C in Paris, 12C in Zürich 🌧."
    assert bool(result.usage.input and result.usage.output) is (family in COUNTS_TOKENS)


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
