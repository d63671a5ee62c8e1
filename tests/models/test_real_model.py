"""A real model behind a real server, llama.cpp's own: text, the length stop and token counts, in the three formats it speaks."""

from collections.abc import Iterator

import pytest
from models_support import HandClock, ask, outcome

from semel import Agent, Completed, Runtime
from semel.adapters.models.catalog import ModelOptions, build_model
from semel.core.values import Stop
from semel.ports.model import Answer
from semel.testing.ground import memory_ground
from tests.peers.llama import llama_server
from tests.peers.node_peers import PeerUnavailable
from tests.support.notrun import not_run

pytestmark = [pytest.mark.prove, pytest.mark.anyio, pytest.mark.timeout(600)]
LENGTH, TRIES_MAX = 24, 10
STOPS = {
    "openai_chat": (Stop.MAX_TOKENS, "length"),
    "anthropic_messages": (Stop.MAX_TOKENS, "max_tokens"),
    "openai_responses": (Stop.END_TURN, "completed"),  # it calls an answer complete that it cut itself
}
FAMILIES = sorted(STOPS)
LEAVES_OUT_ITS_START = {"anthropic_messages"}  # and with it the count of the input, where nothing was in its cache


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where the server listens; a machine that cannot have it says so in the summary."""
    try:
        running = llama_server(tmp_path_factory.mktemp("llama"))
        found = running.__enter__()
    except PeerUnavailable as reason:
        not_run(f"the model server of xllamacpp is not available: {reason}")
    try:
        yield found
    finally:
        running.__exit__(None, None, None)


@pytest.mark.parametrize("family", FAMILIES)
async def test_text_comes_in_pieces_and_the_length_stop_is_told(origin: str, family: str) -> None:
    options = ModelOptions(max_output_tokens=LENGTH)
    model = build_model(f"{family}:tiny@{origin}/v1", clock=HandClock(), environ={}, options=options)
    for _ in range(TRIES_MAX):
        shown, answer = await outcome(model, ask("Say something."))
        assert isinstance(answer, Answer)
        text = "".join(block.text for block in answer.blocks if hasattr(block, "text"))
        print(f"{family}: {len(shown)} pieces, {answer.usage.output} tokens, stop {answer.raw_stop}: {text[:40]!r}")
        assert "".join(shown) == text
        if answer.usage.output == LENGTH:
            break
        assert answer.stop is Stop.END_TURN, "weights of chance end an answer early now and then, and then it says so"
    await model.close()
    assert len(shown) > 3
    assert (answer.stop, answer.raw_stop) == STOPS[family]
    assert answer.usage.output == LENGTH
    assert answer.usage.total > LENGTH or family in LEAVES_OUT_ITS_START


async def test_tokens_are_counted_and_a_longer_question_has_more(origin: str) -> None:
    model = build_model(f"anthropic_messages:tiny@{origin}/v1", clock=HandClock(), environ={})
    short, long = await model.count_tokens(ask("Hi.")), await model.count_tokens(ask("Hi." * 50))  # type: ignore[attr-defined]  # a TokenCounter
    await model.close()
    print(f"{short} and {long} tokens")
    assert long - short == 3 * 49  # the model's tokens are bytes


@pytest.mark.parametrize("family", FAMILIES)
async def test_a_run_of_two_turns_is_served_from_the_servers_cache(origin: str, family: str) -> None:
    agent = Agent("a", model=f"{family}:tiny@{origin}/v1", model_options={"max_output_tokens": LENGTH})
    async with Runtime(agents=[agent], ground=memory_ground()) as runtime:
        session = runtime.session("s", agent=agent)
        first = await (await session.send("A question that is long enough to be worth keeping.")).result()
        second = await (await session.send("And another.")).result()
    print(f"{family}: {first.usage}, then {second.usage}")
    assert isinstance(first, Completed)
    assert isinstance(second, Completed)
    assert second.cache[0].broken == ()
