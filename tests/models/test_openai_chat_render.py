"""Prompts -> request bytes: deterministic, valid for the server, rendered once (P4, P5, P10, wire 0.3, B14)."""

import json
import subprocess
import sys

import pytest
from models_support import CHAT, GOLDEN, WEATHER, ask, chat_bundle
from msgspec.structs import replace
from openai.types.chat import completion_create_params
from pydantic import TypeAdapter

from semel.adapters.models import rendering
from semel.adapters.models.arguments import is_json_object
from semel.adapters.models.catalog import ModelOptions, resolve
from semel.adapters.models.openai_chat import render as render_module
from semel.adapters.models.openai_chat.options import OPENAI_CHAT, ChatOptions, Dialect
from semel.adapters.models.openai_chat.render import ChatForm
from semel.core.persistent import Chain
from semel.core.values import AssistantMessage, Bundle, Opaque, Prompt, Text, ToolCall, ToolMessage, ToolSpec, UserMessage


def chat_renderer(bundle, options):
    return rendering.Renderer(ChatForm(bundle, options))


QUESTION = UserMessage(text="Weather in Paris and Zürich?")
INSTRUCTIONS = "You are a terse test agent."
PARIS, ZURICH = '{"city":"Paris"}', '{"city":"Zürich"}'
OPENAI_TURN = (
    AssistantMessage(
        blocks=(
            ToolCall(id="call_A", name="get_weather", arguments=PARIS),
            ToolCall(id="call_B", name="get_weather", arguments=ZURICH),
        )
    ),
    ToolMessage(tool_call_id="call_A", text="18C"),
    ToolMessage(tool_call_id="call_B", text="upstream timed out", is_error=True),
)


def thinking_turn(call_id: str, format_: str, value) -> tuple:
    data = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    call = ToolCall(id=call_id, name="get_weather", arguments=PARIS)
    return (
        AssistantMessage(blocks=(Opaque(format=format_, data=data), call)),
        ToolMessage(tool_call_id=call_id, text="18C"),
    )


def fixture(name: str) -> bytes:
    return (CHAT / f"{name}.request.json").read_bytes().strip()


def rendered(bundle: Bundle, prompt: Prompt) -> bytes:
    return chat_renderer(bundle, OPENAI_CHAT.decode(bundle.options)).render(prompt).body


def prompt(*more, tools=(WEATHER,)) -> Prompt:
    return Prompt(instructions=INSTRUCTIONS, tools=tools, messages=(QUESTION, *more))


OPENAI = resolve("openai-chat:gpt-5.6", ModelOptions(max_output_tokens=1024))
DEEPSEEK = resolve(
    "deepseek:deepseek-v4-pro",
    ModelOptions(max_output_tokens=1024, body={"thinking": {"type": "enabled"}, "reasoning_effort": "high"}),
)
OPENROUTER = resolve(
    "openrouter:anthropic/claude-opus-5.5",
    ModelOptions(
        max_output_tokens=4096,
        body={"reasoning": {"effort": "high"}, "provider": {"order": ["anthropic"], "allow_fallbacks": False}},
    ),
)
DETAILS = json.loads(fixture("thinking_openrouter.followup"))["messages"][2]["reasoning_details"]
# What semel never sends: a cache key (a generated value), `strict` (it needs a subset of JSON Schema), two server defaults.
UNSENT = (b',"prompt_cache_key":"run-42"', b',"strict":true', b',"tool_choice":"auto"', b',"parallel_tool_calls":true')
AS_FIXTURE = {
    "text": (OPENAI, prompt(tools=())),
    "tools": (OPENAI, prompt()),
    "tools.followup": (OPENAI, prompt(*OPENAI_TURN)),
    "thinking_deepseek": (DEEPSEEK, prompt()),
    "thinking_deepseek.followup": (DEEPSEEK, prompt(*thinking_turn("call_00_x", "reasoning_content", "Need weather."))),
    "thinking_openrouter": (OPENROUTER, prompt()),
    "thinking_openrouter.followup": (OPENROUTER, prompt(*thinking_turn("toolu_01D", "reasoning_details", DETAILS))),
}


@pytest.mark.parametrize("name", AS_FIXTURE)
def test_a_request_equals_the_recorded_one_but_for_what_is_never_sent(name):
    expected = fixture(name)
    for part in UNSENT:
        expected = expected.replace(part, b"")
    assert json.loads(rendered(*AS_FIXTURE[name])) == json.loads(expected)


def test_the_bytes_of_requests_equal_the_recorded_ones_where_the_order_of_members_does():
    """OpenRouter's recorded requests have their extra members elsewhere; all others agree byte for byte."""
    equal = 0
    for name, (bundle, given) in AS_FIXTURE.items():
        expected = fixture(name)
        for part in UNSENT:
            expected = expected.replace(part, b"")
        if "deepseek" in name:  # its two extra members are sorted here
            expected = expected.replace(
                b'"thinking":{"type":"enabled"},"reasoning_effort":"high"',
                b'"reasoning_effort":"high","thinking":{"type":"enabled"}',
            )
        equal += rendered(bundle, given) == expected
    print(f"{equal} of {len(AS_FIXTURE)} byte for byte")
    assert equal == 5


GOLDENS = {
    "generic": (
        chat_bundle(max_output_tokens=500),
        ask(
            "Grüße 🌧\u2028",
            AssistantMessage(
                blocks=(Text(text="I look. "), ToolCall(id="c1", name="get_weather", arguments='{ "city" : "Bern" }'))
            ),
            ToolMessage(tool_call_id="c1", text=""),
            AssistantMessage(blocks=(Text(text="Rain."),)),
            UserMessage(text="And now?"),
        ),
    ),
    "openai_tools": AS_FIXTURE["tools.followup"],
    "deepseek_reasoning": AS_FIXTURE["thinking_deepseek.followup"],
    "openrouter_reasoning": AS_FIXTURE["thinking_openrouter.followup"],
    "cut_arguments": (
        chat_bundle(),
        ask(
            "go",
            AssistantMessage(blocks=(ToolCall(id="c1", name="no such tool!", arguments='{"a": [1, 2'),)),
            ToolMessage(tool_call_id="c1", text="the arguments are not valid JSON", is_error=True),
        ),
    ),
}


@pytest.mark.parametrize("name", GOLDENS)
def test_golden_requests_of_renderer_version_1_do_not_change(name):
    path = GOLDEN / f"openai_chat_v1_{name}.json"
    bundle, given = GOLDENS[name]
    assert rendered(replace(bundle, renderer=1), given) == path.read_bytes(), (
        f"{path}: bytes that open runs depend on (P4); a change needs a new renderer"
    )


def test_the_arguments_of_b14_are_replayed_as_an_empty_object():
    call = json.loads(rendered(*GOLDENS["cut_arguments"]))["messages"][2]["tool_calls"][0]["function"]
    assert call == {"name": "no_such_tool_", "arguments": "{}"}


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        ' {"a": 1}\n',
        '{"a":1e999}',
        '{"a":' + "9" * 5000 + "}",
        '{"a":"\\ud83d\\ude00"}',
        '{"a":"}{]["}',
        '{"a":' * 63 + "{}" + "}" * 63,
    ],
)
def test_the_text_of_one_json_object_is_replayed_as_it_was_written(text):
    assert is_json_object(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        '"x"',
        "{",
        "{'a':1}",
        '{"a":1}{"a":1}',
        '{"a":NaN}',
        '{"a":Infinity}',
        '{"a":"\\ud83d"}',
        '{"a":"\n"}',
        '{"a":1,}',
        '{"a":' * 65 + "{}" + "}" * 65,
        "{" * 200_000,
        '{"a":"' + "[" * 100,
    ],
)
def test_what_a_strict_server_would_refuse_is_not_replayed(text):
    assert not is_json_object(text)


LONG = [m for n in range(40) for m in (UserMessage(text=f"q{n}"), AssistantMessage(blocks=(Text(text=f"a{n} é"),)))]


def test_rendering_step_by_step_gives_the_bytes_of_rendering_at_once():
    bundle = chat_bundle()
    renderer, chain = chat_renderer(bundle, ChatOptions()), Chain()
    for message in LONG:
        chain = chain.plus(message)
        given = Prompt(instructions="i", tools=(WEATHER,), messages=chain)
        request = renderer.render(given)
        fresh = chat_renderer(bundle, ChatOptions()).render(Prompt(instructions="i", tools=(WEATHER,), messages=list(chain)))
        assert request == fresh


class CountingForm(ChatForm):
    """Counts how many messages are rendered."""

    rendered = 0

    def message(self, message, place):
        self.rendered += 1
        return super().message(message, place)


def test_a_message_is_rendered_once_however_many_steps_follow():
    answers = [AssistantMessage(blocks=(Text(text=f"a{n}"),)) for n in range(200)]
    messages = [UserMessage(text="q")]
    form = CountingForm(chat_bundle(), ChatOptions())
    renderer = rendering.Renderer(form)
    costs = []
    for answer in answers:
        before = form.rendered
        messages.append(answer)
        renderer.render(Prompt(instructions="i", tools=(), messages=messages))
        costs.append(form.rendered - before)
    print(f"messages rendered at turn 10: {costs[9]}, at turn 200: {costs[199]}")
    assert costs[199] == costs[9] == 1


def test_a_history_that_was_rewritten_is_rendered_anew():
    renderer = chat_renderer(chat_bundle(), ChatOptions())
    for messages in (LONG[:10], LONG[:6], [LONG[0], *LONG[4:9]], LONG[:10], [UserMessage(text="q0"), *LONG[1:10]]):
        for instructions in ("i", "j", ""):
            given = Prompt(instructions=instructions, tools=(), messages=messages)
            assert renderer.render(given) == chat_renderer(chat_bundle(), ChatOptions()).render(given)


def test_many_conversations_keep_their_place_and_the_oldest_goes_when_room_is_short(monkeypatch):
    monkeypatch.setattr(rendering, "KEPT_BYTES", 2000)
    renderer, single = chat_renderer(chat_bundle(), ChatOptions()), chat_renderer(chat_bundle(), ChatOptions())
    talks = [[UserMessage(text=f"talk {n} " + "x" * 200)] for n in range(20)]
    for turn in range(3):
        for talk in talks:
            talk.append(AssistantMessage(blocks=(Text(text=f"{turn}"),)))
            given = Prompt(instructions="i", tools=(), messages=talk)
            assert renderer.render(given).body == single.render(given).body
    assert len(renderer._kept) < 20
    assert renderer._kept_bytes == sum(len(kept.body) for kept in renderer._kept.values())


def test_another_process_renders_the_same_bytes():
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import test_openai_chat_render as t;"
        "sys.stdout.buffer.write(t.rendered(*t.GOLDENS['generic']))"
    )
    for seed in ("0", "1"):
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", code, str(CHAT.parents[1])],
            capture_output=True, check=True, env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
        )  # fmt: skip
        assert done.stdout == rendered(*GOLDENS["generic"])


def test_tools_choices_are_left_out_where_no_tool_is_offered():
    bundle = resolve("openai-chat:gpt-5", ModelOptions(body={"parallel_tool_calls": False, "temperature": 0.5}))
    assert "parallel_tool_calls" not in json.loads(rendered(bundle, prompt(tools=())))
    assert json.loads(rendered(bundle, prompt()))["parallel_tool_calls"] is False


@pytest.mark.parametrize(("rule", "expected"), [("null", {"content": None}), ("empty", {"content": ""}), ("absent", {})])
def test_content_of_an_answer_with_only_calls_follows_the_dialect(rule, expected):
    options = ChatOptions(dialect=Dialect(call_content=rule, echo_reasoning=False))
    message = render_module.message_json(thinking_turn("c", "reasoning_content", "hm")[0], options)
    assert {name: value for name, value in message.items() if name not in ("role", "tool_calls")} == expected


def test_opaque_blocks_of_other_families_are_not_sent():
    block = Opaque(format="anthropic.thinking", data='{"signature":"x"}')
    assert render_module.message_json(AssistantMessage(blocks=(block,)), ChatOptions()) == {
        "role": "assistant",
        "content": "(no output)",
    }


def test_members_that_a_gateway_attached_to_a_call_are_sent_back_on_it():
    extra = Opaque(format="tool_call_extra", data='{"extra_content":{"google":{"thought_signature":"s"}}}')
    message = AssistantMessage(blocks=(ToolCall(id="c", name="w", arguments="{}"), extra))
    call = render_module.message_json(message, ChatOptions())["tool_calls"][0]
    assert call["extra_content"] == {"google": {"thought_signature": "s"}}


OFFICIAL = TypeAdapter(completion_create_params.CompletionCreateParamsStreaming)


def walked(body: dict) -> int:
    """Validate by the official client's types, unknown members refused, and count the leaves."""
    return leaves(OFFICIAL.validate_python(body, extra="forbid"))


def leaves(value) -> int:
    """Walk to the leaves; lazily validated iterables raise only when they are."""
    if isinstance(value, dict):
        return sum(leaves(item) for item in value.values())
    if isinstance(value, (str, bytes, int, float, bool)) or value is None:
        return 1
    return sum(leaves(item) for item in value)


def test_requests_pass_the_official_clients_types_down_to_the_leaves():
    checked = 0
    for bundle, given in (GOLDENS["generic"], GOLDENS["openai_tools"], GOLDENS["cut_arguments"], AS_FIXTURE["text"]):
        checked += walked(json.loads(rendered(bundle, given)))
    print(f"{checked} leaves")
    assert checked == 95


def test_the_official_types_catch_a_result_without_its_id():
    """Negative control: a missing tool_call_id is found only by walking to the leaves."""
    body = json.loads(rendered(*GOLDENS["generic"]))
    del next(message for message in body["messages"] if message["role"] == "tool")["tool_call_id"]
    with pytest.raises(ValueError, match="tool_call_id"):
        walked(body)


def test_half_a_surrogate_pair_in_an_old_log_does_not_brick_the_session():
    body = rendered(chat_bundle(), Prompt(instructions="", tools=(), messages=[UserMessage(text="a\ud83db")]))
    assert json.loads(body)["messages"][0]["content"] == "a\ufffdb"


def test_a_prompt_without_messages_is_still_a_request():
    body = json.loads(rendered(chat_bundle(), Prompt(instructions="i", tools=(), messages=())))
    assert body["messages"] == [{"role": "system", "content": "i"}]


def test_a_tool_without_a_description_has_none():
    bare = ToolSpec(name="t", description="", parameters='{"type":"object"}')
    tool = json.loads(rendered(chat_bundle(), prompt(tools=(bare,))))["tools"][0]
    assert tool == {"type": "function", "function": {"name": "t", "parameters": {"type": "object"}}}
