"""All 54 outcomes of the recorded streams, in every family, however they are cut into chunks (wire 0.1, wire 8)."""

import json

import pytest
from models_support import CASES, FIXTURES
from wire_support import EXPECTED, SIZES, WIRES, family_of, row_of

from semel.adapters.models.anthropic_messages.decode import MessagesAnswer
from semel.adapters.models.anthropic_messages.options import MessagesOptions
from semel.adapters.models.bedrock_converse.decode import ConverseDecoder
from semel.adapters.models.bedrock_converse.frames import FrameParser
from semel.adapters.models.bedrock_converse.options import ConverseOptions
from semel.adapters.models.bedrock_converse.options import Dialect as ConverseDialect
from semel.adapters.models.decoding import EventDecoder
from semel.adapters.models.openai_chat.options import ChatOptions
from semel.adapters.models.openai_chat.options import Dialect as ChatDialect
from semel.core.values import ToolCall

LENIENT = {
    "openai_chat": ChatOptions(dialect=ChatDialect(done_required=False)),
    "bedrock_converse": ConverseOptions(dialect=ConverseDialect(metadata_required=False)),
}
# What expected.json says of opaque state in words, as the test of the blocks that hold it.
OPAQUE = {
    "thinking": lambda b: json.loads(b.data)["signature"] and b.format == "anthropic.thinking",
    "redacted_thinking": lambda b: json.loads(b.data)["data"] and b.format == "anthropic.redacted_thinking",
    "reasoning_content": lambda b: b.format == "reasoning_content",
    "reasoning_details": lambda b: b.format == "reasoning_details",
    "phase:final_answer": lambda b: json.loads(b.data)["phase"] == "final_answer",
    "phase:commentary": lambda b: json.loads(b.data).get("phase") == "commentary",
    "reasoning.encrypted_content from output_item.done, not .added": lambda b: (
        "not-real" not in b.data and len(json.loads(b.data)["encrypted_content"]) == 56
    ),
    "empty text part with thoughtSignature": lambda b: json.loads(b.data).keys() == {"text", "thoughtSignature"},
    "reasoningText+signature": lambda b: json.loads(b.data)["reasoningContent"]["reasoningText"].keys() == {"text", "signature"},
    "redactedContent": lambda b: json.loads(b.data)["reasoningContent"]["redactedContent"],
}
SELF_CHECKED = {"responses.call"}  # beside a call, whatever expected.json lists


def stream(name: str) -> bytes:
    """One of the recorded streams, or of the cases, whose names have no folder."""
    return ((FIXTURES if "/" in name else CASES) / name).read_bytes()


def agrees(row: dict, expected: dict) -> bool:
    for name, value in expected.items():
        got = row.get(name)
        if name == "note":
            continue
        if name == "opaque":
            blocks = [block for block in got if block.format not in SELF_CHECKED]
            same = len(blocks) == len(value) and all(OPAQUE[words](block) for words, block in zip(value, blocks, strict=True))
        elif name == "calls" and isinstance(value, int):
            same = len(got) == value
        elif name == "class":
            same = got == value.partition(" ")[0]
        elif name == "usage":
            same = all(got.get(part) == count for part, count in value.items())
        else:
            same = got == value
        if not same:
            return False
    return True


def test_all_54_rows_at_every_chunk_size():
    checked = 0
    for name, expected in EXPECTED.items():
        family = family_of(name)
        for size in SIZES:
            row = row_of(family, stream(name), size)
            if expected["outcome"] == "policy":
                assert row == {"outcome": "interrupted"}, name
                lenient = row_of(family, stream(name), size, LENIENT[family])
                assert agrees(lenient, {"outcome": "completed", "stop": "end_turn", "text": "Héllo\u2028🌧"}), name
            else:
                assert agrees(row, expected), (name, size, row)
            checked += 1
    print(f"{checked // 3} rows of expected.json at 3 chunk sizes")
    assert checked == 54 * 3


def test_every_recorded_stream_is_of_a_row_or_divergent():
    found = {path.relative_to(FIXTURES).as_posix() for name in WIRES for path in (FIXTURES / name).rglob("*.response.*")}
    assert found <= set(EXPECTED)
    assert len(found) == 48


ALL = sorted(
    list(EXPECTED)
    + [path.relative_to(FIXTURES).as_posix() for path in (FIXTURES / "openai_chat" / "divergent").iterdir()]
    + [path.name for path in CASES.glob("*.sse")]
)


def test_an_answer_is_the_same_wherever_its_stream_is_cut_into_chunks():
    for name in ALL:
        data, family = stream(name), family_of(name)
        assert len({repr(row_of(family, data, size)) for size in (1, 2, 3, 7, 64, None)}) == 1, name


def test_no_prefix_of_a_stream_is_an_answer():
    """The terminal rule: whatever byte a connection breaks at, nothing is taken for complete before its last event has ended."""
    checked = 0
    for name, expected in EXPECTED.items():
        if expected["outcome"] != "completed" or "divergent" in name:
            continue
        data, family = stream(name), family_of(name)
        needed = len(data) if family == "bedrock_converse" else len(data.rstrip(b"\r\n")) + 1
        for size in range(0, needed, 3):
            assert row_of(family, data[:size], None) == {"outcome": "interrupted"}, (name, size)
            checked += 1
        assert row_of(family, data[:needed] + b"\n\n" * (family != "bedrock_converse"), None)["outcome"] == "completed", name
    print(f"{checked} prefixes, none of them an answer")
    assert checked == 13168


class TrustingMessages(MessagesAnswer):
    """Planted fault: the end of the body ends the answer."""

    def decoded(self):
        self._whole = True
        return super().decoded()


class TrustingConverse(ConverseDecoder):
    """Planted fault: the end of the body ends the answer."""

    def result(self):
        self._stop_reason, self.done = self._stop_reason or "tool_use", True
        self._parser = FrameParser()
        return super().result()


@pytest.mark.parametrize(
    ("decoder", "name"),
    [
        (EventDecoder(TrustingMessages(MessagesOptions())), "anthropic_messages/truncated.response.sse"),
        (TrustingConverse(ConverseOptions()), "bedrock_converse/truncated.response.bin"),
    ],
    ids=["messages", "converse"],
)
def test_a_decoder_without_the_terminal_rule_is_caught(decoder, name):
    """Negative control: it takes the call of the truncated stream for complete."""
    list(decoder.feed(stream(name)))
    calls = [block for block in decoder.result().blocks if isinstance(block, ToolCall)]
    assert calls[0].name == "get_weather"
    assert row_of(family_of(name), stream(name), None) == {"outcome": "interrupted"}
