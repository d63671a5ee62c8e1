"""Our decoders and the official clients' make the same of every completed recorded stream, where the clients can read it."""

import json

import pytest
from conversations import value_of_block
from models_support import FIXTURES
from wire_support import EXPECTED, decoded, family_of

from semel.adapters.models.script_steps import End, Head, Send
from semel.core.values import Opaque, Text, ToolCall
from semel.testing.formats import FORMATS
from semel.testing.model_server import serve_in_thread
from tests.judges import official

COMPLETED = [name for name, row in EXPECTED.items() if row["outcome"] == "completed"]
# What OpenAI's accumulator cannot do (wire 2): it is expected here, so that its repair would be noticed.
BEYOND_THE_CLIENT = {
    "openai_chat/divergent/missing_index.sse": "dies",
    "openai_chat/divergent/index_always_zero.sse": "glues",
    "openai_chat/divergent/arguments_object.sse": "dies",
    "openai_chat/divergent/duplicate_ids.sse": "agrees",
}


def replay(name: str) -> official.Read:
    """What the official client makes of a recorded stream, served over real HTTP."""
    family = family_of(name)
    steps = [
        Head(status=200, headers={"content-type": FORMATS[family].format.content_type}),
        Send(body=(FIXTURES / name).read_bytes()),
        End(),
    ]
    with serve_in_thread(lambda _body: steps) as server:
        return official.READERS[family](server.origin)


def ours(name: str) -> dict:
    answer = decoded(family_of(name), (FIXTURES / name).read_bytes(), 7)[1]
    return {
        "text": "".join(block.text for block in answer.blocks if isinstance(block, Text)),
        "calls": [(b.id, b.name, json.loads(b.arguments)) for b in answer.blocks if isinstance(b, ToolCall)],
        "opaque": [value_of_block(b) for b in answer.blocks if isinstance(b, Opaque)],
        "usage": answer.usage,
    }


def test_every_completed_stream_is_read_alike():
    agreed = 0
    for name in COMPLETED:
        if BEYOND_THE_CLIENT.get(name, "agrees") != "agrees" or "blocked" in name:
            continue
        theirs, mine = replay(name), ours(name)
        assert theirs["text"] == mine["text"], name
        assert theirs["calls"] == mine["calls"], name
        if "opaque" in theirs:
            assert theirs["opaque"] == [
                item.get("encrypted_content") for item in mine["opaque"] if item.get("type") == "reasoning"
            ]
        if theirs["usage"] is not None and family_of(name) in ("anthropic_messages", "bedrock_converse"):
            usage = mine["usage"]
            assert theirs["usage"] == (usage.input, usage.cache_read, usage.output), name
        if theirs["usage"] is not None and family_of(name) in ("openai_chat", "openai_responses"):
            usage = mine["usage"]
            assert theirs["usage"][0] == usage.input + (usage.cache_read or 0) + (usage.cache_write or 0), name
        agreed += 1
    print(f"{agreed} of {len(COMPLETED)} completed streams are read alike")
    assert agreed == 23


@pytest.mark.parametrize("name", [name for name, what in BEYOND_THE_CLIENT.items() if what == "dies"])
def test_the_official_accumulator_dies_on_what_some_servers_send(name):
    with pytest.raises((TypeError, AttributeError, ValueError, UserWarning)):
        replay(name)
    assert ours(name)["calls"]


def test_the_official_accumulator_glues_calls_that_share_an_index():
    """Negative control: the comparison finds a decoder that glues."""
    name = "openai_chat/divergent/index_always_zero.sse"
    try:
        glued = replay(name)["calls"]
    except ValueError:
        glued = None
    assert glued != ours(name)["calls"]
    assert len(ours(name)["calls"]) == 2


def test_the_official_client_sends_a_signature_back_in_another_alphabet():
    """What wire 0.2 warns of, and why opaque state is kept as text here."""
    from google.genai import types

    part = types.Part.model_validate({"text": "", "thoughtSignature": "+//+"})
    assert json.loads(part.model_dump_json(by_alias=True, exclude_none=True))["thoughtSignature"] == "-__-"
