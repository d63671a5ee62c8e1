"""Streams of chat completions -> answers, however a server numbers, repeats or cuts things (wire 0.1, wire 2, B14, B19)."""

import json
import sys
import tracemalloc
from collections.abc import Callable

import pytest
import wire_support
from hypothesis import given, settings
from hypothesis import strategies as st
from models_support import CASES, CHAT, decode, decode_chunks

from semel.adapters.models import arguments, sse
from semel.adapters.models.arguments import is_json_object
from semel.adapters.models.decoding import JSON_BODY_BYTES_MAX, Undecodable
from semel.adapters.models.openai_chat import calls
from semel.adapters.models.openai_chat.decode import chat_decoder
from semel.adapters.models.openai_chat.options import ChatOptions, Dialect
from semel.adapters.models.openai_errors import OPENAI_ERRORS
from semel.adapters.models.pricing import Price
from semel.core.values import Money, Opaque, Stop, Text, ToolCall, Usage
from semel.ports.model import FailureClass

SIZES = (1, 7, None)


def stream(name: str) -> bytes:
    return (CHAT / name).read_bytes()


def row_of(data: bytes, size: int | None) -> dict:
    row = wire_support.row_of("openai_chat", data, size)
    return {**row, "opaque": [block.format for block in row.get("opaque", ())]}


def test_the_divergent_streams_without_a_row_mean_what_the_plain_one_means():
    plain = row_of(stream("text.response.sse"), None)
    for name in ("azure_empty_first_choices", "crlf", "double_done", "no_space_after_data"):
        assert row_of(stream(f"divergent/{name}.sse"), 7) == plain, name
    small = {"input": 5, "output": 3}
    assert row_of(stream("divergent/usage_on_finish_chunk.sse"), 7)["usage"] == small
    assert row_of(stream("divergent/usage_every_chunk.sse"), 7)["usage"] == {"input": 5, "output": 2}
    kimi = row_of(stream("divergent/kimi_ids.sse"), 7)
    assert (kimi["calls"], kimi["usage"], kimi["opaque"]) == (
        [["functions.get_weather:0", "get_weather", {"city": "Paris"}]],
        small,
        ["reasoning_content"],
    )
    vllm = row_of(stream("divergent/vllm_reasoning_field.sse"), 7)
    assert (vllm["text"], vllm["opaque"], vllm["usage"]) == ("ok", ["reasoning"], small)
    ollama = row_of(stream("divergent/ollama_whole_calls_same_chunk.sse"), 7)
    assert [call[2]["city"] for call in ollama["calls"]] == ["Paris", "Zürich"]


def test_b14_cut_arguments_stay_the_raw_text_and_the_limit_is_told():
    _, lies = decode((CASES / "B14-finish-lies.chat.sse").read_bytes())
    assert lies.blocks[0].arguments == '{"path":"a.py","content":"import os\\nprint('
    assert lies.stop is Stop.TOOL_USE
    _, cut = decode((CASES / "B14-valid-but-cut.chat.sse").read_bytes())
    assert (cut.stop, cut.raw_stop) == (Stop.MAX_TOKENS, "length")


@pytest.mark.parametrize("size", SIZES)
def test_b19_a_surrogate_pair_split_over_two_deltas_is_one_character(size):
    data = (CASES / "B19-split-pair.chat.sse").read_bytes()
    shown, answer = decode(data, size)
    assert answer.blocks == (Text(text="hi 😀!"),)
    assert shown == "hi 😀!"


def chunk(delta: dict | None = None, finish: str | None = None, **more) -> bytes:
    return event({"choices": [{"index": 0, "delta": delta, "finish_reason": finish, **more}]})


def event(value) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"


def calls_in(*deltas: dict, finish: str = "tool_calls") -> list[tuple[str, str, str]]:
    _, answer = decode(b"".join(chunk({"tool_calls": [delta]}) for delta in deltas) + chunk({}, finish) + DONE)
    return [(b.id, b.name, b.arguments) for b in answer.blocks if isinstance(b, ToolCall)]


def piece(arguments=None, name=None, **more) -> dict:
    return {**more, "function": {"name": name, "arguments": arguments}}


def test_calls_without_ids_and_without_indices_are_told_apart_by_being_whole():
    assert calls_in(piece('{"n":1}', "w"), piece('{"n":2}', "w")) == [("", "w", '{"n":1}'), ("", "w", '{"n":2}')]
    assert calls_in(piece('{"n"', "w"), piece(":1}", "w")) == [("", "w", '{"n":1}')]
    assert calls_in(piece("{}", "a"), piece("{}", "b")) == [("", "a", "{}"), ("", "b", "{}")]


def test_a_new_name_on_a_used_index_is_a_new_call():
    assert calls_in(piece("{}", "a", index=0, id="x"), piece("{}", "b", index=0)) == [("x", "a", "{}"), ("", "b", "{}")]


def test_one_id_on_two_indices_is_two_calls_since_ids_are_given_anew_at_receipt():
    assert len(calls_in(piece("{}", "a", index=0, id="x"), piece("{}", "a", index=1, id="x"))) == 2


def test_members_of_a_call_that_nobody_knows_are_kept_beside_it():
    _, answer = decode(
        chunk(
            {"tool_calls": [{"index": 0, "id": "c", **piece("{}", "w"), "extra_content": {"google": {"thought_signature": "s"}}}]}
        )
        + chunk({}, "tool_calls")
        + DONE
    )
    assert answer.blocks[1] == Opaque(format="tool_call_extra", data='{"extra_content":{"google":{"thought_signature":"s"}}}')


def test_odd_calls_do_not_stop_the_decoder():
    assert calls_in({}) == [("", "", "{}")]
    assert calls_in({"id": 7, "function": None, "index": "0"}) == [("7", "", "{}")]
    assert calls_in(piece([1, 2], "w")) == [("", "w", "[1,2]")]
    _, answer = decode(chunk({"tool_calls": [None, "x"]}) + chunk({}, "stop") + DONE)
    assert answer.stop is Stop.END_TURN


@pytest.mark.parametrize(
    ("finish", "stop"),
    [
        ("stop", Stop.END_TURN),
        ("length", Stop.MAX_TOKENS),
        ("max_tokens", Stop.MAX_TOKENS),
        ("content_filter", Stop.CONTENT_FILTER),
        ("function_call", Stop.END_TURN),
        ("whatever", Stop.OTHER),
    ],
)
def test_finish_reasons_of_a_text_answer(finish, stop):
    _, answer = decode(chunk({"content": "x"}) + chunk(None, finish) + DONE)
    assert (answer.stop, answer.raw_stop) == (stop, finish)


def test_a_refusal_is_text_with_its_own_stop():
    shown, answer = decode(chunk({"content": None, "refusal": "I can"}) + chunk({"refusal": "not."}) + chunk({}, "stop") + DONE)
    assert (shown, answer.stop, answer.blocks) == ("I cannot.", Stop.REFUSAL, (Text(text="I cannot."),))


FAILURES: list[tuple[str, Callable[[], bytes], FailureClass]] = [
    ("finish error", lambda: chunk({"content": "x"}, "error") + DONE, FailureClass.SERVER_ERROR),
    ("finish overload", lambda: chunk({}, "insufficient_system_resource") + DONE, FailureClass.OVERLOADED),
    ("error in choice", lambda: chunk({}, None, error={"message": "m", "code": 503}), FailureClass.OVERLOADED),
    ("error event", lambda: b"event: error\n" + event({"message": "m", "code": "rate_limit_exceeded"}), FailureClass.RATE_LIMIT),
    ("error text", lambda: event({"error": "model crashed"}), FailureClass.SERVER_ERROR),
    ("context", lambda: event({"error": {"message": "maximum context length is 9"}}), FailureClass.CONTEXT_EXCEEDED),
    ("old vllm", lambda: event({"object": "error", "message": "m", "code": 400}), FailureClass.INVALID_REQUEST),
    ("not JSON", lambda: chunk({"content": "x"}) + b"data: {oops\n\n", FailureClass.INTERRUPTED),
    ("not UTF-8", lambda: b'data: {"choices":[],"x":"\xff"}\n\n', FailureClass.INTERRUPTED),
    ("done without finish", lambda: chunk({"content": "x"}) + DONE, FailureClass.INTERRUPTED),
    ("nothing", lambda: b"", FailureClass.INTERRUPTED),
    ("comments only", lambda: b": wait\n\n: wait\n\n", FailureClass.INTERRUPTED),
    ("too deep", lambda: b"data: " + b"[" * 200_000 + b"\n\n", FailureClass.INTERRUPTED),
    ("an event too large", lambda: b"data: " + b"x" * (sse.EVENT_BYTES_MAX + 1), FailureClass.MALFORMED_OUTPUT),
    ("a document too large", lambda: b"{" + b" " * JSON_BODY_BYTES_MAX, FailureClass.MALFORMED_OUTPUT),
    ("white space", lambda: b"\r\n \n", FailureClass.INTERRUPTED),
    ("huge number", lambda: b'data: {"choices":[],"x":' + b"9" * 5_000 + b"}\n\n", FailureClass.INTERRUPTED),
]


@pytest.mark.parametrize(("name", "make", "failure"), FAILURES, ids=[row[0] for row in FAILURES])
def test_what_is_no_answer_has_a_class(name, make, failure):
    for size in SIZES:
        if size is not None and "too " in name:
            continue  # millions of small chunks prove nothing more
        with pytest.raises(Undecodable) as caught:
            decode(make(), size)
        found = OPENAI_ERRORS.class_of(200, caught.value.error) if caught.value.error else caught.value.failure
        assert found is failure


def test_content_in_parts_and_chunks_of_no_shape_are_taken_for_what_they_are():
    parts = [
        {"type": "text", "text": "a"},
        {"type": "thinking", "text": "hm"},
        "x",
        {"type": "text", "text": "b"},
        {"type": "text"},
    ]
    _, answer = decode(event(7) + event([]) + chunk({"content": parts}) + chunk({"content": 5}, "stop") + DONE)
    assert answer.blocks == (Text(text="ab"),)


def test_an_error_member_that_is_null_is_no_error():
    _, answer = decode(event({"error": None, "choices": [{"delta": {"content": "x"}, "finish_reason": "stop"}]}) + DONE)
    assert answer.blocks == (Text(text="x"),)


def test_a_server_that_does_not_stream_is_understood():
    body = {"choices": [{"finish_reason": "stop", "message": {"content": "hi", "tool_calls": [
        {"id": "a", "type": "function", "function": {"name": "w", "arguments": "{}"}},
        {"id": "b", "type": "function", "function": {"name": "w", "arguments": "{}"}},
    ]}}], "usage": {"prompt_tokens": 3, "completion_tokens": 1}}  # fmt: skip
    for size in SIZES:
        _, answer = decode(b"\n\n" + json.dumps(body).encode(), size)
        assert answer.stop is Stop.TOOL_USE
        assert answer.blocks[0] == Text(text="hi")
        assert [b.id for b in answer.blocks[1:]] == ["a", "b"]
        assert answer.usage == Usage(input=3, output=1)


def test_usage_that_is_missing_or_nonsense_is_not_reported_as_zero():
    for usage in (
        None,
        {},
        {"prompt_tokens": None},
        {"prompt_tokens": -1, "completion_tokens": True},
        {"prompt_tokens": "7"},
        {"completion_tokens": 1.5},
        [],
    ):
        _, answer = decode(event({"choices": [{"delta": {"content": "x"}, "finish_reason": "stop"}], "usage": usage}) + DONE)
        assert answer.usage == Usage()


def test_a_cost_comes_from_the_server_or_from_the_price_and_is_rounded_up():
    usage = {"prompt_tokens": 1000, "completion_tokens": 10, "prompt_tokens_details": {"cached_tokens": 600}, "cost": 0.0012}
    body = event({"choices": [{"delta": {"content": "x"}, "finish_reason": "stop"}], "usage": usage}) + DONE
    reported = ChatOptions(dialect=Dialect(cost_currency="USD"))
    assert decode(body, None, reported)[1].usage.cost == Money(micros=1200, currency="USD")
    priced = ChatOptions(price=Price(currency="EUR", input="1.25", output="10", cache_read="0.125"))
    assert decode(body, None, priced)[1].usage.cost == Money(micros=675, currency="EUR")
    assert decode(body)[1].usage.cost is None
    for nonsense in (True, [], "much", -1, 1e300):
        strange = event({"choices": [{"delta": {"content": "x"}, "finish_reason": "stop"}], "usage": {**usage, "cost": nonsense}})
        assert decode(strange + DONE, None, reported)[1].usage.cost is None


def test_fragments_of_reasoning_details_are_merged_by_index_and_only_texts_are_joined():
    _, answer = decode(stream("thinking_openrouter.response.sse"), 7)
    details = json.loads(next(b.data for b in answer.blocks if isinstance(b, Opaque)))
    follow_up = json.loads(stream("thinking_openrouter.followup.request.json"))
    assert details == follow_up["messages"][2]["reasoning_details"]


def test_an_attempt_leaves_nothing_for_the_next_one():
    """B27: each exchange has a decoder of its own, so the cut answer cannot glue to the whole one."""
    cut, second = (CASES / "B27-cut.chat.sse").read_bytes(), (CASES / "B27-second.chat.sse").read_bytes()
    with pytest.raises(Undecodable):
        decode(cut)
    _, answer = decode_chunks([second])
    assert answer.blocks == (
        Text(text="Running. "),
        ToolCall(id="call_b27b", name="execute", arguments='{"language":"python","code":"print(1)"}'),
    )


def call_chunk(*pieces: dict) -> bytes:
    """One chunk with these elements of `tool_calls`."""
    return b"data: " + json.dumps({"choices": [{"delta": {"tool_calls": pieces}}]}).encode() + b"\n\n"


def called_piece(arguments: str, **members) -> dict:
    return {"function": {"name": "f", "arguments": arguments}, **members}


def lines_run(data: bytes) -> int:
    """How many lines of Python reading a body takes."""
    count = 0

    def trace(*_event: object) -> Callable:
        nonlocal count
        count += 1
        return trace

    decoder = chat_decoder(ChatOptions())
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        list(decoder.feed(data))
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("start", [{}, {"id": "a", "index": 0}, {"index": 0}])
def test_twice_as_many_pieces_of_calls_take_twice_as_many_steps(start, monkeypatch):
    """A body of less than a megabyte must not hold up everything else: no search through the calls, no reading anew of a call."""
    read = 0

    def counted(text: str) -> bool:
        nonlocal read
        read += len(text)
        return is_json_object(text)

    monkeypatch.setattr(arguments, "is_json_object", counted)
    monkeypatch.setattr(calls, "is_json_object", counted)
    steps, chars = [], []
    for count in (200, 400):
        pieces = [called_piece("{}", **(start or {"id": f"c{n}"})) for n in range(count)]
        data = call_chunk(called_piece('{"x":[', **start), *pieces)
        read = 0
        steps.append(lines_run(data))
        chars.append(read)
    assert steps[1] < 2.2 * steps[0]
    assert chars[1] <= 2.2 * chars[0]


def test_white_space_before_a_body_is_not_kept():
    """Servers send it while they wait; what comes behind it is read as if there were less of it."""
    plain = stream("text.response.sse")
    for blank in (b" ", b"\n", b"\r\n\t", b"\r"):
        decoder = chat_decoder(ChatOptions())
        tracemalloc.start()
        try:
            for _ in range(64):
                list(decoder.feed(blank * (65536 // len(blank))))
            kept, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert kept < 65536
        assert most < 16 * 65536
        ended = b"" if blank in (b"\n", b"\r") else b"\n"
        list(decoder.feed(ended + plain))
        assert decoder.result() == decode(plain)[1]
    for start in (b"\n ", b"\xef\xbb\xbf\n ", b"  "):
        with pytest.raises(Undecodable):  # a line that begins with a blank is no field
            decode(start + b'data: {"choices": []}\n\ndata: [DONE]\n\n', 1)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(
    st.lists(st.sampled_from(["{", "}", "[", "]", '"', "\\", '"a":', "1", ",", " ", "", "{}", '{"b":"}"}', '\\"']), max_size=12)
)
def test_a_text_in_pieces_is_a_json_object_when_all_of_it_is_one(parts):
    """Asked behind every piece, and only at the end."""
    asked, late = arguments.Pieces(), arguments.Pieces()
    for n, piece in enumerate(parts):
        asked.add(piece)
        late.add(piece)
        assert asked.is_json_object is is_json_object("".join(parts[: n + 1]))
    assert late.is_json_object is is_json_object("".join(parts))


@pytest.mark.parametrize("empty", [{}, {"prompt_tokens": None}])
def test_a_usage_without_a_count_takes_no_count_away(empty):
    """Negative control beside it: a later object with a count is the one that holds."""
    finish = {"delta": {"content": "x"}, "finish_reason": "stop"}
    first = {"choices": [finish], "usage": {"prompt_tokens": 5, "completion_tokens": 2}}
    for later, output in ((empty, 2), ({"prompt_tokens": 5, "completion_tokens": 3}, 3)):
        chunks = (first, {"choices": [], "usage": later})
        data = b"".join(b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks) + b"data: [DONE]\n\n"
        assert decode(data)[1].usage == Usage(input=5, output=output)
