"""The four official clients read our scripted server, streaming, with tools, and see what the script says."""

import pytest
from test_peer_formats import SCRIPT
from wire_support import WIRES

from semel.testing.formats import FORMATS
from semel.testing.model_server import serve_in_thread
from tests.judges import official

CALLS = [("call_a", "get_weather", {"city": "Zürich 🌧"}), ("call_b", "noop", {})]
STOPS = {
    "anthropic_messages": "tool_use",
    "openai_chat": "tool_calls",
    "openai_responses": "completed",
    "gemini": "STOP",
    "bedrock_converse": "tool_use",
}
# Input, cached and output as the wire counts them: with or without the cached part, with or without thinking.
USAGE = {
    "anthropic_messages": (40, 64, 30),
    "openai_chat": (120, 64, 30),
    "openai_responses": (120, 64, 30),
    "gemini": (104, 64, 18),
    "bedrock_converse": (40, 64, 30),
}


@pytest.mark.parametrize("family", sorted(WIRES))
def test_an_official_client_reads_a_streamed_answer_with_two_calls(family):
    with serve_in_thread(SCRIPT) as server:
        read = official.READERS[family](server.origin)
        assert len(server.requests) == 1
        assert FORMATS[family].path.fullmatch(server.requests[0].path.split("?")[0])
    assert (read["text"], read["calls"], read["stop"]) == ("I look both up. ", CALLS, STOPS[family])
    assert read["usage"] == USAGE[family]
    assert read.get("thinking", ["They want both."]) == ["They want both."]


def test_an_official_client_complains_about_a_peer_that_sends_nonsense():
    """Negative control: frames with a wrong checksum do not pass unseen."""
    from botocore.eventstream import ChecksumMismatch

    with (
        serve_in_thread({"answers": [{"text": "hi there", "fault": {"kind": "garble"}}]}) as server,
        pytest.raises(ChecksumMismatch),
    ):
        official.read_converse(server.origin)


def test_official_clients_count_tokens_at_our_peers():
    with serve_in_thread(SCRIPT) as server, official.anthropic_client(server.origin) as client:
        counted = client.messages.count_tokens(model="m", messages=[{"role": "user", "content": "hi"}])
        assert counted.input_tokens == len(server.requests[0].body) // 4
