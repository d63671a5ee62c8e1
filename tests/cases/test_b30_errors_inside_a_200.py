"""B30: an error inside a 200, or a web page, has its class and is retried by it; it is never an answer, not even an empty one."""

import json

import pytest
from t26_kinds import sent, whole
from test_http_exchange import from_raw, http, raw_server
from virtual_runs import BACKOFF_SECONDS, Hurried, carried
from wire_support import decoded, failure_of

from semel import Agent, Completed, Runtime
from semel.adapters.models.catalog import build_model
from semel.adapters.models.decoding import Undecodable
from semel.ports.model import FailureClass
from semel.testing.ground import memory_ground
from semel.testing.model_server import ModelServer
from tests.cases.serve import STREAMS, recorded
from tests.engine.fakes import counting

pytestmark = pytest.mark.anyio
F = FailureClass
STREAM, DOCUMENT = "content-type: text/event-stream", "content-type: application/json"
# By name: the whole response, its class, and whether a run asks again.
CHAT = {
    "error-chunk": (http(recorded("B30-error-chunk.chat.sse"), STREAM), F.SERVER_ERROR, True),
    "error-code-only": (http(recorded("B30-error-code-only.chat.sse"), STREAM), F.RATE_LIMIT, True),
    "null-choices": (http(recorded("B30-null-choices.chat.json"), DOCUMENT), F.RATE_LIMIT, True),
    "null-no-error": (http(recorded("B30-null-no-error.chat.json"), DOCUMENT), F.MALFORMED_OUTPUT, True),
    "nested": (http(recorded("B30-nested.chat.json"), DOCUMENT), F.MALFORMED_OUTPUT, True),
    "html": (recorded("B30-html.http"), F.MALFORMED_OUTPUT, True),
    "html-as-sse": (recorded("B30-html-as-sse.http"), F.MALFORMED_OUTPUT, True),
    "413": (recorded("B30-413.http"), F.REQUEST_TOO_LARGE, False),
    "json-null": (recorded("B30-json-null.http"), F.MALFORMED_OUTPUT, True),
}
MESSAGES = ("error-first", "error-after-text")


def test_b30_the_inputs_are_those_of_the_case():
    named = {part for name in json.loads(recorded("B30-expect.json")) for part in name.split("/")}
    assert {*CHAT, *MESSAGES} == named
    assert len(list(STREAMS.glob("B30-*"))) == len(CHAT) + len(MESSAGES) + 1 == 12


@pytest.mark.parametrize("name", CHAT)
async def test_b30_an_error_inside_a_200_has_its_class_and_is_never_an_empty_answer(name: str):
    response, failure, retryable = CHAT[name]
    deltas, end = await from_raw(response)
    assert (end.failure, end.retryable, deltas) == (failure, retryable, [])
    if "html" in name:
        for part in ("127.0.0.1:", "200", "text/", "Just a moment"):
            assert part in str(end)


@pytest.mark.parametrize("name", CHAT)
async def test_b30_a_run_asks_again_by_class_and_keeps_one_answer(name: str):
    response, failure, retryable = CHAT[name]
    clock, good = Hurried(), http(whole("openai_chat"), STREAM)
    async with raw_server(response, good) as url:
        model = build_model(f"openai_chat:m@{url}", clock=clock, environ={})
        done = await carried(model, clock)
        await model.close()
    assert (done.end, len(done.answers)) == (("completed", 1) if retryable else (str(failure), 0))
    assert clock.waits == (BACKOFF_SECONDS[:1] if retryable else [])


@pytest.mark.parametrize("name", MESSAGES)
async def test_b30_an_overload_behind_some_output_discards_it_and_runs_nothing_of_it(name: str):
    stream = recorded(f"B30-{name}.anthropic.sse")
    with pytest.raises(Undecodable) as caught:
        decoded("anthropic_messages", stream, 7)
    assert failure_of("anthropic_messages", caught.value) is F.OVERLOADED
    rm, asked, clock = counting("rm"), 0, Hurried()

    def reply(_body: bytes):
        nonlocal asked
        asked += 1
        return sent("anthropic_messages", stream if asked == 1 else whole("anthropic_messages"))

    ground = memory_ground()
    async with ModelServer(reply) as server:
        model = build_model(f"anthropic_messages:m@{server.url}", clock=clock, environ={})
        agent = Agent("a", model=model, tools=[rm])
        async with Runtime(agents=[agent], ground=type(ground)(store=ground.store, clock=clock, ids=ground.ids)) as runtime:
            run = await runtime.session("s", agent=agent).send("go")
            events = [event async for event in run.events(after=0, live=True)]
            result = await run.result()
        await model.close()
    assert isinstance(result, Completed)
    assert "Partial" not in result.output
    assert (asked, rm.keys, clock.waits) == (2, [], BACKOFF_SECONDS[:1])
    told = [event["live"] for event in events if "live" in event]
    assert told[: told.index("discarded")] == ["text"] * (name == "error-after-text")
