"""Opaque state of every family: kept as received, sent back in its place, never to another model (wire 0.2, B22, B24)."""

import json

import pytest
from conversations import prompt, result, user
from models_support import CASES, FIXTURES
from msgspec.structs import replace
from wire_support import bundle_of, decoded, rendered

from semel.adapters.models.bedrock_converse import frames
from semel.adapters.models.bedrock_converse.options import ConverseOptions
from semel.adapters.models.bedrock_converse.options import Dialect as ConverseDialect
from semel.adapters.models.decoding import Undecodable
from semel.adapters.models.families import FAMILIES
from semel.adapters.models.gemini.options import Dialect as GeminiDialect
from semel.adapters.models.gemini.options import GeminiOptions
from semel.adapters.models.openai_responses.options import Dialect as ResponsesDialect
from semel.adapters.models.openai_responses.options import ResponsesOptions
from semel.core.values import AssistantMessage, Opaque, Stop, Text, ToolCall
from semel.ports.model import FailureClass

FORMATS = {"anthropic_messages": "anthropic", "openai_responses": "responses", "gemini": "gemini", "bedrock_converse": "bedrock"}


def case(name: str, family: str = "anthropic_messages", size: int | None = 7):
    return decoded(family, (CASES / name).read_bytes(), size)[1]


def sent_blocks(name: str) -> list[dict]:
    """The content of the assistant's message when it is sent back."""
    answer = AssistantMessage(blocks=case(name).blocks)
    body = json.loads(
        rendered(bundle_of("anthropic_messages"), prompt((user("go"), answer, *(result(c.id, "x") for c in answer.calls))))
    )
    return next(turn["content"] for turn in body["messages"] if turn["role"] == "assistant")


def test_b14_a_list_cut_by_the_output_limit_keeps_its_text_and_is_replayed_as_an_object():
    answer = case("B14-max-tokens.anthropic.sse")
    assert (answer.stop, answer.blocks[0].arguments) == (Stop.MAX_TOKENS, '{"commands": ["npm install", "npm test"')
    assert sent_blocks("B14-max-tokens.anthropic.sse")[0]["input"] == {}


def test_b19_a_lone_surrogate_in_arguments_is_stored_and_sent_as_the_replacement_character():
    assert case("B19-model-surrogate.anthropic.sse").blocks[0].arguments == '{"q": "현\ufffd ok?"}'
    assert sent_blocks("B19-model-surrogate.anthropic.sse")[0]["input"] == {"q": "현\ufffd ok?"}


def test_b22_thinking_goes_back_whole_in_its_place_the_empty_block_too():
    sent = sent_blocks("B22-turn1.anthropic.sse")
    assert [block["type"] for block in sent] == ["thinking", "text", "tool_use", "thinking", "redacted_thinking", "tool_use"]
    assert (sent[0]["thinking"], sent[3]["thinking"]) == ("Need two files. Read both.", "")
    assert sent[3]["signature"].startswith("==AAAA")
    assert sent[4]["data"].startswith("EmwKAhgB")


def test_b22_gemini_signatures_sit_on_the_parts_that_they_came_with():
    answer = AssistantMessage(blocks=case("B22-turn1.gemini.sse", "gemini").blocks)
    body = json.loads(rendered(bundle_of("gemini"), prompt((user("go"), answer, result("", "x")))))
    assert body["contents"][1]["parts"] == [
        {"text": "Plan: look first.", "thought": True},
        {"functionCall": {"name": "fs_list", "args": {"path": "."}}, "thoughtSignature": "Q2lvc3ludGhldGljLXNpZy1CMjI="},
        {"text": "", "thoughtSignature": "Q2ktdHJhaWxpbmc="},
    ]
    assert body["contents"][2]["parts"] == [{"functionResponse": {"name": "fs_list", "response": {"output": "x"}}}]


@pytest.mark.parametrize("name", ["B24-no-content", "B24-only-whitespace", "B24-whitespace"])
def test_b24_blank_answers_of_the_messages_api_can_be_sent_back(name):
    sent = sent_blocks(f"{name}.anthropic.sse")
    assert sent
    assert all(block["type"] != "text" or block["text"].strip() for block in sent)
    if name == "B24-whitespace":
        assert [block["type"] for block in sent] == ["tool_use"]


EMPTY_RESULTS = json.loads((CASES / "B24-tool-empty-result.json").read_text())["returns"]


@pytest.mark.parametrize("family", [*FORMATS, "openai_chat"])
def test_b24_an_empty_result_is_still_one_result_that_says_so(family):
    texts = [text for text in EMPTY_RESULTS if isinstance(text, str)]
    assert len(texts) == 3
    for text in texts:
        call = AssistantMessage(blocks=(ToolCall(id="c", name="noop", arguments="{}"),))
        body = rendered(bundle_of(family), prompt((user("go"), call, result("c", text)))).decode()
        assert body.count("(no output)") == 1


def chunks(*parts: dict) -> bytes:
    return b"".join(
        b"data: " + json.dumps({"candidates": [{"content": {"parts": [part]}}]}).encode() + b"\n\n" for part in parts
    ) + (b'data: {"candidates":[{"finishReason":"STOP"}]}\n\n')


def test_gemini_texts_are_joined_with_their_like_only():
    data = chunks(
        {"text": "a"}, {"text": "b"}, {"text": "T1", "thought": True}, {"text": "T2", "thought": True}, {"text": "c"},
        {"text": "d", "thoughtSignature": "c2ln"}, {"text": "e", "thoughtSignature": "c2lo"}, {"text": "f"},
    )  # fmt: skip
    blocks = decoded("gemini", data, 3)[1].blocks
    assert [block.text for block in blocks if isinstance(block, Text)] == ["ab", "c", "d", "e", "f"]
    assert [block.data for block in blocks if isinstance(block, Opaque)] == [
        '{"text":"T1T2","thought":true}',
        '{"thoughtSignature":"c2ln"}',
        '{"thoughtSignature":"c2lo"}',
    ]
    body = json.loads(rendered(bundle_of("gemini"), prompt((user("go"), AssistantMessage(blocks=blocks)))))
    assert body["contents"][1]["parts"][2:4] == [{"text": "c"}, {"text": "d", "thoughtSignature": "c2ln"}]


def test_parts_that_gemini_itself_ran_are_echoed_whole():
    part = {"executableCode": {"language": "PYTHON", "code": "1"}}
    blocks = decoded("gemini", chunks(part, {"text": "x"}))[1].blocks
    assert blocks[0] == Opaque(format="gemini.part", data=json.dumps(part, separators=(",", ":")))


def test_m3_a_bundle_without_the_switch_drops_phases_and_text_signatures_and_keeps_its_bytes():
    old = ResponsesOptions(dialect=ResponsesDialect(text_state=False))
    answer = decoded("openai_responses", (FIXTURES / "openai_responses/tools.response.sse").read_bytes(), None, old)[1]
    assert [block.format for block in answer.blocks if isinstance(block, Opaque)] == ["responses.call", "responses.call"]
    old = GeminiOptions(dialect=GeminiDialect(text_state=False))
    answer = decoded("gemini", (FIXTURES / "gemini/text.response.sse").read_bytes(), None, old)[1]
    assert answer.blocks == (Text(text="Héllo\u2028🌧"),)
    with_state = decoded("openai_responses", (FIXTURES / "openai_responses/tools.response.sse").read_bytes())[1].blocks
    family = FAMILIES["openai_responses"]
    bundle = bundle_of("openai_responses", options=family.encode(ResponsesOptions(dialect=ResponsesDialect(text_state=False))))
    given = prompt((user("go"), AssistantMessage(blocks=with_state), result("call_A", "x"), result("call_B", "y")))
    assert b"phase" not in rendered(bundle, given)
    assert b'"phase":"commentary"' in rendered(bundle_of("openai_responses"), given)


def test_m20_bedrock_without_the_switch_neither_keeps_nor_sends_reasoning():
    data = (FIXTURES / "bedrock_converse/thinking.response.bin").read_bytes()
    off = ConverseOptions(dialect=ConverseDialect(reasoning=False))
    assert not any(isinstance(block, Opaque) for block in decoded("bedrock_converse", data, None, off)[1].blocks)
    answer = AssistantMessage(blocks=decoded("bedrock_converse", data)[1].blocks)
    given = prompt((user("go"), answer, result("tooluse_C3", "x")))
    bundle = bundle_of("bedrock_converse", options=FAMILIES["bedrock_converse"].encode(off))
    assert b"reasoningContent" not in rendered(bundle, given)
    assert rendered(bundle_of("bedrock_converse"), given).count(b"reasoningContent") == 2


def converse(*events: tuple[str, dict]) -> bytes:
    end = (("messageStop", {"stopReason": "end_turn"}), ("metadata", {"usage": {}}))
    return b"".join(
        frames.frame({":message-type": "event", ":event-type": name}, json.dumps(payload).encode())
        for name, payload in (*events, *end)
    )


def delta(index: int, **what) -> tuple[str, dict]:
    return ("contentBlockDelta", {"contentBlockIndex": index, "delta": what})


def test_reasoning_that_no_model_signed_is_kept_but_sent_only_where_it_is_wanted():
    data = converse(delta(0, reasoningContent={"text": "hm"}), delta(1, text="ok"))
    answer = AssistantMessage(blocks=decoded("bedrock_converse", data)[1].blocks)
    given = prompt((user("go"), answer, user("on")))
    assert b"hm" not in rendered(bundle_of("bedrock_converse"), given)
    wanted = ConverseOptions(dialect=ConverseDialect(unsigned_reasoning=True))
    assert b'"hm"' in rendered(bundle_of("bedrock_converse", options=FAMILIES["bedrock_converse"].encode(wanted)), given)


def test_redacted_reasoning_in_pieces_is_put_together_as_its_bytes_are():
    data = converse(
        delta(0, reasoningContent={"redactedContent": "YQ=="}), delta(0, reasoningContent={"redactedContent": "Yg=="})
    )
    assert json.loads(decoded("bedrock_converse", data)[1].blocks[0].data) == {"reasoningContent": {"redactedContent": "YWI="}}


def responses(*items: dict, **response) -> bytes:
    whole = {"status": "completed", "output": list(items), **response}
    return b"data: " + json.dumps({"type": "response.completed", "response": whole}).encode() + b"\n\n"


def echoed(data: bytes, *more) -> list[dict]:
    answer = AssistantMessage(blocks=decoded("openai_responses", data)[1].blocks)
    given = prompt((user("go"), answer, *(result(call.id, "x") for call in answer.calls), *more))
    return json.loads(rendered(bundle_of("openai_responses"), given))["input"][1:]


def test_reasoning_without_its_encrypted_part_is_not_sent_and_neither_are_the_ids_behind_it():
    data = responses(
        {"type": "reasoning", "id": "rs_1", "summary": []},
        {"type": "function_call", "id": "fc_1", "call_id": "c", "name": "noop", "arguments": "{}", "status": "completed"},
    )
    assert echoed(data)[0] == {"type": "function_call", "status": "completed", "call_id": "c", "name": "noop", "arguments": "{}"}


def test_reasoning_that_led_to_nothing_is_not_sent_alone():
    """Servers refuse a reasoning item without the item that must follow it; an answer cut while it thought has one."""
    data = responses(
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "e"},
        status="incomplete", incomplete_details={"reason": "max_output_tokens"},
    )  # fmt: skip
    assert echoed(data, user("go on"))[0] == {"role": "assistant", "content": "(no output)"}


def test_a_reasoning_item_without_an_id_goes_back_as_it_came():
    item = {"type": "reasoning", "summary": [], "encrypted_content": "e"}
    said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "hi"}], "phase": "final_answer"}
    assert echoed(responses(item, said), user("x"))[:2] == [
        item,
        {"role": "assistant", "content": "hi", "phase": "final_answer"},
    ]


def test_items_come_from_their_done_events_where_the_terminal_event_leaves_them_out():
    item = {"type": "message", "id": "m", "status": "completed", "content": [{"type": "output_text", "text": "hi"}]}
    done = {"type": "response.output_item.done", "output_index": 0, "item": item}
    data = b"data: " + json.dumps(done).encode() + b"\n\n" + responses()
    assert decoded("openai_responses", data)[1].blocks[0] == Text(text="hi")


def test_the_encrypted_part_of_reasoning_comes_from_its_done_event():
    """In the terminal event, as in `added`, it may be partial."""
    whole = {"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": "whole"}
    done = {"type": "response.output_item.done", "output_index": 0, "item": whole}
    said = {"type": "message", "id": "m", "content": [{"type": "output_text", "text": "hi"}]}
    data = b"data: " + json.dumps(done).encode() + b"\n\n" + responses({**whole, "encrypted_content": "who"}, said)
    assert json.loads(decoded("openai_responses", data)[1].blocks[0].data)["encrypted_content"] == "whole"


def messages(*events: dict, stop: str = "end_turn") -> bytes:
    end = ({"type": "message_delta", "delta": {"stop_reason": stop}}, {"type": "message_stop"})
    return b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in (*events, *end))


def start(index: int, **block) -> dict:
    return {"type": "content_block_start", "index": index, "content_block": block}


def test_servers_that_are_only_nearly_compatible_with_the_messages_api():
    data = messages(
        {"type": "content_block_delta", "index": 5, "delta": {"type": "text_delta", "text": "orphan"}},
        start(0, type="text", text="pre"),
        {"type": "content_block_delta", "index": 0},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "fix"}},
        start(0, type="tool_use", id="x:1.a", name="noop", input={"a": 1}),
        start(7, type="tool_use", id="y", name="noop", input={}),
        {"type": "content_block_delta", "index": 7, "delta": {"type": "input_json_delta", "partial_json": '{"b":2}'}},
        start(8, type="thinking", thinking="hm"),
        {"type": "something_new", "x": 1},
    )
    answer = decoded("anthropic_messages", data)[1]
    assert [(b.id, b.arguments) for b in answer.blocks if isinstance(b, ToolCall)] == [("x:1.a", '{"a":1}'), ("y", '{"b":2}')]
    assert answer.blocks[0] == Text(text="prefix")
    assert answer.stop is Stop.TOOL_USE
    assert json.loads(answer.blocks[3].data) == {"type": "thinking", "thinking": "hm"}


def test_counts_that_come_late_replace_those_of_the_start_and_nothing_is_added():
    started = {
        "type": "message_start",
        "message": {"usage": {"input_tokens": 0, "output_tokens": 1, "cache_read_input_tokens": 4}},
    }
    late = {"type": "message_delta", "delta": {}, "usage": {"input_tokens": 90, "output_tokens": 7}}
    later = {"type": "message_delta", "delta": {}, "usage": {"output_tokens": 9, "cache_read_input_tokens": None}}
    usage = decoded("anthropic_messages", messages(started, late, later))[1].usage
    assert (usage.input, usage.output, usage.cache_read, usage.cache_write) == (90, 9, 4, None)


def test_m22_the_cache_key_is_equal_in_every_request_of_a_conversation_and_in_no_other_and_may_be_ones_own():
    def key_of(messages, *, instructions: str = "be good", **given) -> str | None:
        options = ResponsesOptions(dialect=ResponsesDialect(cache_key=True), **given)
        bundle = bundle_of("openai_responses", options=FAMILIES["openai_responses"].encode(options))
        return json.loads(rendered(bundle, replace(prompt(messages), instructions=instructions))).get("prompt_cache_key")

    talk = (user("go"), AssistantMessage(blocks=(ToolCall(id="c", name="noop", arguments="{}"),)), result("c", "x"), user("on"))
    keys = {key_of(talk[:upto]) for upto in (1, 3, 4)}
    assert len(keys) == 1
    (key,) = keys
    assert key is not None
    assert len(key) <= 64
    assert key not in {key_of((user("go!"),)), key_of((user("go"),), instructions="be bad")}
    assert key_of(talk, body={"prompt_cache_key": "mine"}) == "mine"
    plain = json.loads(rendered(bundle_of("openai_responses"), prompt(talk)))
    assert "prompt_cache_key" not in plain


def events(*values: str) -> bytes:
    return b"".join(b"data: " + value.encode() + b"\n\n" for value in values)


WITH_STATE = {
    "anthropic_messages": (
        '{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"t","signature":"s","n":NUMBER}}',
        '{"type":"content_block_start","index":1,"content_block":{"type":"text","text":"hi"}}',
        '{"type":"message_delta","delta":{"stop_reason":"end_turn"}}',
        '{"type":"message_stop"}',
    ),
    "openai_chat": (
        '{"choices":[{"delta":{"content":"hi","reasoning_details":[{"type":"t","n":NUMBER}]},"finish_reason":"stop"}]}',
        "[DONE]",
    ),
    "openai_responses": (
        '{"type":"response.output_item.done","output_index":0,"item":{"type":"reasoning","encrypted_content":"e","n":NUMBER}}',
        '{"type":"response.completed","response":{"output":[]}}',
    ),
    "gemini": ('{"candidates":[{"content":{"parts":[{"text":"hi"},{"new":NUMBER}]},"finishReason":"STOP"}]}',),
}


@pytest.mark.parametrize("number", ["1e999", "-1e999", "NaN", "Infinity"])
@pytest.mark.parametrize("family", sorted(WITH_STATE))
def test_state_that_could_not_be_sent_back_is_a_broken_answer_and_is_not_kept(family, number):
    """It would be in every later request of the session, none of which is JSON then. Beside it: a number as large as there is."""
    whole = [event.replace("NUMBER", "1.7976931348623157e308") for event in WITH_STATE[family]]
    assert any(isinstance(block, Opaque) for block in decoded(family, events(*whole))[1].blocks)
    with pytest.raises(Undecodable) as caught:
        decoded(family, events(*(event.replace("NUMBER", number) for event in WITH_STATE[family])))
    assert caught.value.failure is FailureClass.MALFORMED_OUTPUT


@pytest.mark.parametrize("payload", [b"", b"{}", b"not JSON", b"[]"])
def test_an_event_of_bedrock_that_nobody_knows_is_skipped_whatever_it_holds(payload):
    def event(name: str, payload: bytes) -> bytes:
        return frames.frame({":message-type": "event", ":event-type": name}, payload)

    start = event("contentBlockDelta", b'{"contentBlockIndex":0,"delta":{"text":"hi"}}')
    end = event("messageStop", b'{"stopReason":"end_turn"}') + event("metadata", b'{"usage":{"inputTokens":1}}')
    assert decoded("bedrock_converse", start + event("keepAlive", payload) + end)[1].blocks == (Text(text="hi"),)
    if payload != b"{}":
        with pytest.raises(Undecodable, match="not JSON"):
            decoded("bedrock_converse", start + event("contentBlockStart", payload) + end)


@pytest.mark.parametrize("size", [1, None])
def test_a_block_that_came_whole_goes_back_by_its_own_text(size):
    """Numbers keep their form and members that occur twice stay (wire 0.2). A NUL is replaced, as everywhere."""
    given = '{"n":1e3, "m":1.10,"d":1,"d":2,"s":"a\\/\\u00e9 \\u0000."}'
    block = f'{{ "type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{given}}}'
    start = f'{{"type":"content_block_start","index":0,"content_block":{block}}}'
    end = ('{"type":"message_delta","delta":{"stop_reason":"end_turn"}}', '{"type":"message_stop"}')
    answer = decoded("anthropic_messages", events(start, *end), size)[1]
    assert answer.blocks == (Opaque(format="anthropic.server_tool_use", data=block.replace("\\u0000", "\ufffd")),)
    sent = AssistantMessage(blocks=answer.blocks)
    assert answer.blocks[0].data in rendered(bundle_of("anthropic_messages"), prompt((user("go"), sent, user("on")))).decode()
    with_input = events(
        '{"type":"content_block_start","index":0,"content_block":{"type":"server_tool_use","id":"srvtoolu_1","name":"n","input":{}}}',
        '{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{\\"q\\":1}"}}',
        *end,
    )
    assert '"input":{"q":1}' in decoded("anthropic_messages", with_input, size)[1].blocks[0].data
