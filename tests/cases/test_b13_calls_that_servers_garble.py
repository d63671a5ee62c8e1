"""B13: calls whose pieces a server numbers, repeats or leaves out in its own way are neither lost nor glued nor doubled."""

import json

import pytest
from models_support import decode
from t26_kinds import sent, whole
from virtual_runs import Hurried, carried
from wire_support import SIZES, decoded

from semel.adapters.models.catalog import build_model
from semel.core.values import Stop, ToolCall
from semel.testing.formats import FORMATS
from semel.testing.model_server import ModelServer
from tests.cases.serve import STREAMS, paired, recorded
from tests.engine.fakes import counting

CALLS = {
    "empty-args": [("call_b13e", "task_list", "{}")],
    "null-args": [("call_b13n", "task_list", "{}")],
    "index-reuse": [("call_a", "read_file", '{"path":"a"}'), ("call_b", "read_file", '{"path":"b"}')],
    "index-missing": [("function-call-1", "get_weather", '{"city":"Paris"}'), ("function-call-2", "get_time", '{"tz":"JST"}')],
    "interleaved": [("call_i0", "w", '{"n":0}'), ("call_i1", "w", '{"n":1}')],
    "resent-full": [("call_f", "w", '{"a":1}')],
}
NO_PARAMETERS = [("toolu_01B13np000000000000001", "take_screenshot", "{}")]


def test_b13_the_inputs_are_those_of_the_case():
    assert {*CALLS, "noparam"} == set(json.loads(recorded("B13-expect.json")))
    assert len(list(STREAMS.glob("B13-*.sse"))) == len(CALLS) + 1 == 7


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", CALLS)
def test_b13_calls_are_neither_lost_nor_glued(name, size):
    _, answer = decode(recorded(f"B13-{name}.chat.sse"), size)
    assert [(b.id, b.name, b.arguments) for b in answer.blocks if isinstance(b, ToolCall)] == CALLS[name]
    assert answer.stop is Stop.TOOL_USE


def test_b13_a_call_without_a_delta_is_a_call_with_no_arguments():
    answer = decoded("anthropic_messages", recorded("B13-noparam.anthropic.sse"), 7)[1]
    assert [(b.id, b.name, b.arguments) for b in answer.blocks] == NO_PARAMETERS
    assert answer.stop is Stop.TOOL_USE


@pytest.mark.anyio
@pytest.mark.parametrize("name", [*CALLS, "noparam"])
async def test_b13_a_run_makes_each_call_once_with_its_own_arguments_and_answers_it(name):
    family = "anthropic_messages" if name == "noparam" else "openai_chat"
    wanted = CALLS.get(name, NO_PARAMETERS)
    stream = recorded(f"B13-{name}.{'anthropic' if name == 'noparam' else 'chat'}.sse")
    ran: list[tuple[str, object]] = []

    def tool(called: str):
        async def run(arguments, _call):
            ran.append((called, arguments))
            return "ok"

        return counting(called, behaviour=run)

    def reply(body: bytes):
        return sent(family, whole(family) if FORMATS[family].format.read(body).answers else stream)

    clock = Hurried()
    async with ModelServer(reply) as server:
        model = build_model(f"{family}:m@{server.url}", clock=clock, environ={})
        done = await carried(model, clock, [tool(called) for called in sorted({called for _, called, _ in wanted})])
        await model.close()
        bodies = [json.loads(received.body) for received in server.requests]
    assert done.end == "completed"
    assert ran == [(called, json.loads(arguments)) for _, called, arguments in wanted]
    assert len(bodies) == 2
    if family == "openai_chat":
        assert paired(bodies[1]["messages"])
        assert [m["tool_call_id"] for m in bodies[1]["messages"] if m["role"] == "tool"] == [call_id for call_id, _, _ in wanted]
