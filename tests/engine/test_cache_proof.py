"""What a resume saved is in its outcome, its status and its explanation, and so is what broke the prefix (P4 in money)."""

from dataclasses import dataclass
from typing import Any

import pytest

from semel import Agent, Completed, Runtime
from semel.core.explain import explain
from semel.core.state import CacheProof
from semel.core.status import status_of
from semel.core.targets import cache_words
from semel.faces.views import view_of
from semel.testing.ground import memory_ground
from semel.testing.model_server import ModelServer
from tests.core.said import runs_told
from tests.engine.fakes import call, counting
from tests.support.frames import frames_of

pytestmark = pytest.mark.anyio
CACHED = {"input": 100, "output": 5, "cache_read": 1200, "cache_write": 40}


@dataclass
class Count:
    value: int


def told(ground: Any) -> str:
    return " ".join(sentence.text for sentence in explain(view_of(ground.store, "s").state, carried=False))


@pytest.mark.parametrize("family", ["anthropic_messages", "bedrock_converse", "openai_chat", "openai_responses"])
async def test_a_resume_tells_what_it_saved_and_each_step_what_was_read_and_written(family: str) -> None:
    hold = {"kind": "hold", "times": 1}
    script = {"answers": [{"calls": [call("look")], "usage": CACHED}, {"text": "Done.", "usage": CACHED, "fault": hold}]}
    ground = memory_ground()
    async with ModelServer(script, formats=[family]) as server:
        agent = Agent("a", model=f"{family}:m@{server.url}", tools=[counting("look")])
        async with Runtime(agents=[agent], ground=ground, recover="manual", drain_seconds=0) as runtime:
            await runtime.session("s", agent=agent).send("go")
            await server.reached.wait()
        server.release.set()
        async with Runtime(agents=[agent], ground=ground, recover="manual") as runtime:
            run = await runtime.session("s", agent=agent).resume()
            assert run is not None
            result = await run.result()
    assert isinstance(result, Completed)
    assert result.cache == (CacheProof(step_id=2, read=1200),)
    assert "prefix identical, 1,200 tokens read from cache." in told(ground)
    view = view_of(ground.store, "s")
    status = status_of(view.state, "")
    assert status is not None
    assert status.cache == result.cache
    steps = runs_told(frames_of(ground.store, "s"), view.state)[0].steps
    assert [step.usage and (step.usage.cache_read, step.usage.cache_write) for step in steps] == [(1200, 40)] * 2


async def test_a_run_that_nothing_interrupted_has_nothing_to_tell() -> None:
    ground = memory_ground()
    async with ModelServer({"answers": [{"text": "Done.", "usage": CACHED}]}) as server:
        agent = Agent("a", model=f"openai_chat:m@{server.url}")
        async with Runtime(agents=[agent], ground=ground) as runtime:
            result = await (await runtime.session("s", agent=agent).send("go")).result()
    assert result.cache == ()
    assert "prefix" not in told(ground)


@pytest.mark.parametrize(
    ("changes", "broken"),
    [
        ({}, ()),
        ({"instructions": "be quick"}, ("instructions",)),
        ({"tools": [counting("other")]}, ("tools",)),
        ({"instructions": "be quick", "output": Count}, ("instructions", "tools")),
        ({"model": "openai_chat:other@{url}"}, ("model",)),
        ({"model_options": {"max_output_tokens": 50}}, ("options",)),
        ({"model_options": {"dialect": {"system_role": "developer"}}}, ("options",)),
        ({"model_options": {"price": {"currency": "USD", "input": "1", "output": "2"}}}, ()),
        ({"model_options": {"dialect": {"done_required": False}}}, ()),
    ],
)
async def test_a_later_run_tells_what_broke_the_prefix(changes: dict[str, Any], broken: tuple[str, ...]) -> None:
    ground = memory_ground()
    second = {"calls": [call("submit_output", value=1)]} if "output" in changes else {"text": "Two."}
    script = {"answers": [{"text": "One.", "usage": CACHED}, {**second, "usage": CACHED}]}
    async with ModelServer(script) as server:
        given = {"model": "openai_chat:m@{url}", "instructions": "be good"}
        first = Agent("a", **{**given, "model": given["model"].format(url=server.url)})
        given = {**given, **changes}
        other = Agent("a", **{**given, "model": given["model"].format(url=server.url)})
        async with Runtime(agents=[first], ground=ground) as runtime:
            await (await runtime.session("s", agent=first).send("go")).result()
            result = await (await runtime.session("s", agent=other).send("again")).result()
        one, two = (received.body for received in server.requests)
    assert result.cache == (CacheProof(step_id=1, read=1200, broken=broken),)
    assert ("prefix broken by" in told(ground)) is bool(broken)
    start, _, end = one.partition(b'],"')
    assert (two.startswith(start) and two.endswith(b'],"' + end)) is (not broken)  # what is said of the bytes is what they are


def test_what_nobody_reported_is_said_to_be_that() -> None:
    assert cache_words(CacheProof(step_id=1)) == "prefix identical, cache reads were not reported"
    refused = CacheProof(step_id=1, read=0, broken=("provider_state",))
    assert cache_words(refused) == "prefix broken by provider state that was refused and is left out, 0 tokens read from cache"
