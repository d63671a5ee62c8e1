"""What every family's requests have in common: each message once, valid whatever was said, frozen bytes (P4, P5, P10, B24)."""

import json
import re
import subprocess
import sys
from itertools import pairwise

import pytest
from conversations import FAMILY_NAMES, NEUTRAL, TOOLS, everything, prompt, strict
from models_support import GOLDEN, WEATHER
from msgspec.structs import replace
from wire_support import WIRES, bundle_of, rendered, renderer

from semel.adapters.models import rendering
from semel.adapters.models.catalog import ModelOptions, resolve
from semel.adapters.models.controls import NamedTool, Reasoning
from semel.adapters.models.families import FAMILIES
from semel.adapters.models.pricing import Price
from semel.core.limits import Limits
from semel.core.persistent import Chain
from semel.core.records import Config
from semel.core.targets import READ_ONLY_DIALECT, manner_of
from semel.core.values import AssistantMessage, Opaque, Text, ToolCall, ToolMessage, ToolSpec, UserMessage
from semel.errors import BadSettings

every_family = pytest.mark.parametrize("family", FAMILY_NAMES)
LONG = [m for n in range(40) for m in (UserMessage(text=f"q{n}"), AssistantMessage(blocks=(Text(text=f"a{n} é"),)))]


@every_family
def test_rendering_step_by_step_gives_the_bytes_of_rendering_at_once(family):
    checked = 0
    for given in everything(family).values():
        grown, chain = renderer(bundle_of(family)), Chain()
        for message in given.messages:
            chain = chain.plus(message)
            step = prompt(chain, tools=given.tools, instructions=given.instructions)
            at_once = prompt(list(chain), tools=given.tools, instructions=given.instructions)
            assert grown.render(step) == renderer(bundle_of(family)).render(at_once)
            checked += 1
    print(f"{checked} requests of {family}")
    assert checked >= 50


@every_family
def test_a_message_is_rendered_once_however_many_steps_follow(family):
    form = WIRES[family].form(bundle_of(family), WIRES[family].options())
    counted = [0]

    class Counting:
        head, tail = form.head, form.tail

        def message(self, message, place):
            counted[0] += 1
            return form.message(message, place)

    grown, chain, costs = rendering.Renderer(Counting()), Chain([UserMessage(text="q")]), []
    for n in range(200):
        before = counted[0]
        chain = chain.plus(AssistantMessage(blocks=(Text(text=f"a{n}"),)))
        grown.render(prompt(chain))
        costs.append(counted[0] - before)
    assert costs[199] == costs[9] == 1


@every_family
def test_a_history_that_was_rewritten_is_rendered_anew(family):
    grown = renderer(bundle_of(family))
    for messages in (LONG[:10], LONG[:6], [LONG[0], *LONG[4:9]], LONG[:10], [UserMessage(text="q0"), *LONG[1:10]]):
        for instructions in ("i", "j", ""):
            for sequence in (messages, Chain(list(messages))):
                given = prompt(sequence, instructions=instructions)
                assert grown.render(given) == renderer(bundle_of(family)).render(given)


def test_a_change_in_the_middle_behind_an_equal_end_is_noticed():
    """A renderer that looks at the last message only would send state that the prompt no longer holds."""
    thought = Opaque(format="anthropic.thinking", data='{"type":"thinking","thinking":"","signature":"s"}')
    first, last = UserMessage(text="q"), UserMessage(text="r")
    with_state = AssistantMessage(blocks=(thought, Text(text="a")))
    without = AssistantMessage(blocks=(Text(text="a"),))
    grown = renderer(bundle_of("anthropic_messages"))
    assert b"signature" in grown.render(prompt(Chain([first, with_state, last]))).body
    assert b"signature" not in grown.render(prompt(Chain([first, without, last]))).body


def test_many_conversations_keep_their_place_and_the_oldest_goes_when_room_is_short(monkeypatch):
    monkeypatch.setattr(rendering, "KEPT_BYTES", 2000)
    grown, single = renderer(bundle_of("gemini")), renderer(bundle_of("gemini"))
    talks = [[UserMessage(text=f"talk {n} " + "x" * 200)] for n in range(20)]
    for turn in range(3):
        for talk in talks:
            talk.append(AssistantMessage(blocks=(Text(text=f"{turn}"),)))
            given = prompt(talk)
            assert grown.render(given).body == single.render(given).body
    assert len(grown._kept) < 20
    assert grown._kept_bytes == sum(len(kept.body) for kept in grown._kept.values())


def texts_in(value) -> list[str]:
    """Every text that a server would refuse if it were blank."""
    found: list[str] = []
    if isinstance(value, dict):
        for name, item in value.items():
            blank = name in ("text", "content", "output", "error") and isinstance(item, str)
            found += [item] if blank and "thoughtSignature" not in value else []
            arguments = name in ("input", "args") and isinstance(item, dict)
            found += [] if arguments else texts_in(item)
    elif isinstance(value, list):
        found += [text for item in value for text in texts_in(item)]
    return found


@every_family
def test_b24_no_request_holds_blank_text_and_none_ends_with_the_models_own_words(family):
    checked = 0
    for name, given in everything(family).items():
        body = strict(rendered(bundle_of(family), given))
        texts = texts_in(body)
        assert texts, name
        assert all(text.strip() for text in texts), (name, [text for text in texts if not text.strip()])
        checked += len(texts)
        if family not in ("openai_chat", "openai_responses"):
            roles = [turn["role"] for turn in body.get("messages", body.get("contents"))]
            assert roles[0] == roles[-1] == "user"
            assert all(one != two for one, two in pairwise(roles)), (name, roles)
    print(f"{checked} texts of {family}")


CALL_IDS = re.compile(r'"(?:tool_use_id|tool_call_id|call_id|toolUseId)":"([^"]*)"')
ALLOWED_IDS = {
    "anthropic_messages": r"[a-zA-Z0-9_-]{1,128}",
    "openai_chat": r"[\x21-\x7e]{1,64}",
    "openai_responses": r"[\x21-\x7e]{1,64}",
    "bedrock_converse": r"[a-zA-Z0-9_.:-]{1,64}",
}


@pytest.mark.parametrize("family", ALLOWED_IDS)
def test_b10_ids_of_other_providers_fit_are_paired_and_do_not_become_equal(family):
    body = rendered(bundle_of(family), prompt(NEUTRAL["ids and names of other providers"])).decode()
    ids = re.findall(r'"(?:id|call_id|toolUseId|tool_call_id|tool_use_id)":"([^"]*)"', body)
    assert all(re.fullmatch(ALLOWED_IDS[family], name) for name in ids), ids
    assert len(set(ids)) == 3
    assert all(ids.count(name) == 2 for name in ids)


def test_ids_that_fit_are_left_alone_and_cutting_them_would_make_two_equal():
    """Negative control for the digest: two long ids share their first 64 characters."""
    from semel.adapters.models.wire_text import wire_id

    allowed = re.compile(r"[a-z0-9_]{1,64}")
    one, two = "x" * 80 + "1", "x" * 80 + "2"
    assert wire_id("call_1", allowed) == "call_1"
    assert wire_id(one, allowed) != wire_id(two, allowed)
    assert one[:64] == two[:64]


@every_family
def test_b19_half_a_surrogate_pair_is_sent_as_the_replacement_character(family):
    body = strict(rendered(bundle_of(family), prompt(NEUTRAL["half a surrogate pair"])))
    text = json.dumps(body, ensure_ascii=False).replace("\\\\", "\\")
    assert "a\ufffdb" in text
    assert "\ufffd ok" in text
    assert "😀" in text or "\\ud83d\\ude00" in text


@every_family
def test_b14_arguments_that_are_no_object_are_replayed_as_an_empty_one(family):
    body = rendered(bundle_of(family), prompt(NEUTRAL["arguments that are no JSON object"])).decode()
    assert len(re.findall(r'"(?:input|args|arguments)":(?:"\{\}"|\{\})', body)) == 4


@pytest.mark.parametrize("family", ["anthropic_messages", "gemini", "bedrock_converse"])
def test_arguments_travel_as_the_model_wrote_them(family):
    body = rendered(bundle_of(family), prompt(NEUTRAL["numbers that do not survive a reading"]))
    assert b'{"n":1e3,"m":12345678901234567890123,"z":-0.0,"n":2}' in body


@every_family
def test_state_of_another_family_is_not_sent(family):
    body = rendered(bundle_of(family), prompt(NEUTRAL["state of another family"]))
    assert b"thinking" not in body
    assert b"signature" not in body


CONTROLS = {
    "anthropic_messages": ModelOptions(
        max_output_tokens=500,
        tool_choice=NamedTool(tool="noop"),
        parallel_calls=False,
        reasoning=Reasoning(effort="max", show=False),
        output_schema={"type": "object"},
        cache="long",
        dialect={"version": "2026-10-21"},
        body={"metadata": {"user_id": "u"}},
    ),
    "openai_chat": ModelOptions(
        max_output_tokens=500,
        tool_choice="required",
        parallel_calls=False,
        reasoning=Reasoning(effort="low"),
        output_schema={"type": "object"},
        body={"temperature": 0.5},
    ),
    "openai_responses": ModelOptions(
        max_output_tokens=500,
        tool_choice=NamedTool(tool="noop"),
        parallel_calls=False,
        reasoning=Reasoning(effort="xhigh"),
        output_schema={"type": "object"},
        body={"prompt_cache_key": "k"},
    ),
    "gemini": ModelOptions(
        max_output_tokens=500,
        tool_choice=NamedTool(tool="noop"),
        reasoning=Reasoning(budget_tokens=64, show=True),
        output_schema={"type": "object"},
        body={"generationConfig": {"temperature": 0.5}, "safetySettings": []},
        dialect={"foreign_calls": "skip_thought_signature_validator"},
    ),
    "bedrock_converse": ModelOptions(
        max_output_tokens=500,
        tool_choice=NamedTool(tool="noop"),
        reasoning=Reasoning(effort="high"),
        output_schema={"type": "object"},
        cache="long",
        body={"inferenceConfig": {"temperature": 0.5}, "additionalModelRequestFields": {"top_k": 5}},
    ),
}


def with_controls(family: str):
    return resolve(f"{family}:m@http://127.0.0.1:9/v1", CONTROLS[family])


def goldens(family: str, renderer: int | None = None) -> dict[str, bytes]:
    """Three requests of a renderer, the newest by default: all neutral conversations, all of its own state, all controls."""
    version = FAMILIES[family].renderer if renderer is None else renderer
    prompts, bundle = everything(family), bundle_of(family, renderer=version)
    neutral = [rendered(bundle, prompts[name]) for name in NEUTRAL]
    own = [rendered(bundle, given) for name, given in prompts.items() if name not in NEUTRAL]
    controls = [rendered(replace(with_controls(family), renderer=version), prompt(NEUTRAL["two parallel calls"]))]
    return {"neutral": b"\n".join(neutral), "own_state": b"\n".join(own), "controls": b"\n".join(controls)}


# The goldens of openai_chat 1 are those of test_openai_chat_render.
VERSIONS = [(name, n) for name in FAMILY_NAMES for n in sorted(FAMILIES[name].renderers) if (name, n) != ("openai_chat", 1)]


@pytest.mark.parametrize(("family", "version"), VERSIONS)
def test_golden_requests_of_every_renderer_do_not_change(family, version):
    for name, bodies in goldens(family, version).items():
        path = GOLDEN / f"{family}_v{version}_{name}.jsonl"
        assert bodies == path.read_bytes(), f"{path}: bytes that open runs depend on (P4); a change needs a new renderer"


def test_another_process_renders_the_same_bytes():
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import test_rendering as t, hashlib;"
        "print([hashlib.sha256(body).hexdigest() for f in t.FAMILY_NAMES for body in t.goldens(f).values()])"
    )
    import hashlib

    here = str([hashlib.sha256(body).hexdigest() for f in FAMILY_NAMES for body in goldens(f).values()])
    for seed in ("0", "1"):
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", code, str(GOLDEN.parent / "models")],
            capture_output=True, check=True, text=True, env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
        )  # fmt: skip
        assert done.stdout.strip() == here


OTHER_VALUES: dict[str, object] = {
    "auth": "bearer",
    "region": "eu-north-1",
    "cost_currency": "USD",
    "done_required": False,
    "metadata_required": False,
}


@every_family
def test_the_members_of_a_dialect_that_no_request_shows_change_no_byte(family):
    """What the proof of the cache leaves out of account (core.targets) must be just that."""
    assert OTHER_VALUES.keys() == READ_ONLY_DIALECT
    own = {name: value for name, value in OTHER_VALUES.items() if name in WIRES[family].options().dialect.__struct_fields__}
    other = resolve(
        f"{family}:m@http://127.0.0.1:9/v1", ModelOptions(dialect=own, price=Price(currency="USD", input="1", output="2"))
    )
    plain = bundle_of(family)
    assert other.options != plain.options
    for messages in NEUTRAL.values():
        assert rendered(other, prompt(messages)) == rendered(plain, prompt(messages))
    assert manner_of(Config(bundle=other, limits=Limits())) == manner_of(Config(bundle=plain, limits=Limits()))
    changed = with_controls(family)
    assert rendered(changed, prompt(NEUTRAL["one question"])) != rendered(plain, prompt(NEUTRAL["one question"]))
    assert manner_of(Config(bundle=changed, limits=Limits())) != manner_of(Config(bundle=plain, limits=Limits()))


REFUSED = [
    ("gemini", {"parallel_calls": False}, "parallel_calls"),
    ("gemini", {"cache": "long"}, "cache"),
    ("gemini", {"reasoning": {"effort": "max"}}, "effort"),
    ("openai_chat", {"cache": "short"}, "cache"),
    ("openai_chat", {"reasoning": {"budget_tokens": 9}}, "budget_tokens"),
    ("openai_responses", {"reasoning": {"budget_tokens": 9}}, "budget_tokens"),
    ("bedrock_converse", {"tool_choice": "none"}, "tool_choice"),
    ("bedrock_converse", {"parallel_calls": True}, "parallel_calls"),
    ("bedrock_converse", {"reasoning": {"show": True}}, "show"),
    ("anthropic_messages", {"reasoning": {"effort": "minimal"}}, "effort"),
    ("anthropic_messages", {"reasoning": {"effort": "low", "budget_tokens": 2000}}, "both an effort and budget_tokens"),
    ("anthropic_messages", {"reasoning": {"budget_tokens": 2000}, "tool_choice": "required"}, "forced tool_choice"),
    ("anthropic_messages", {"dialect": {"version": "2026-10-21"}, "body": {"temperature": 1.0}}, "refuses temperature"),
    ("openai_responses", {"body": {"truncation": "auto"}}, "truncation is set by semel"),
    ("openai_responses", {"body": {"previous_response_id": "r"}}, "previous_response_id is set by semel"),
]


@pytest.mark.parametrize(("family", "raw", "told"), REFUSED)
def test_a_choice_that_a_family_has_no_words_for_is_refused_by_name_before_any_request(family, raw, told):
    from semel.adapters.models.catalog import parse_options

    with pytest.raises(BadSettings, match=told):
        resolve(f"{family}:m@http://127.0.0.1:9", parse_options(raw))


def test_the_cache_mark_moves_without_a_message_being_rendered_again():
    """The request of the next step starts with all of the last one but its mark, so the provider finds the prefix it has."""
    bundle = resolve("anthropic_messages:m@http://127.0.0.1:9", ModelOptions(cache="short"))
    mark = b',"cache_control":{"type":"ephemeral"}'
    grown, chain, before = renderer(bundle), Chain(), b""
    for message in LONG:
        chain = chain.plus(message)
        body = grown.render(prompt(chain)).body
        assert body.count(mark) == 2
        unmarked = body.replace(mark, b"")
        shared = before[: before.rfind(b"}]}]")]
        assert unmarked.startswith(shared)
        before = unmarked if isinstance(message, UserMessage) else b""


def test_bedrock_offers_the_tools_that_a_history_called_when_none_are_left():
    body = json.loads(rendered(bundle_of("bedrock_converse"), prompt(NEUTRAL["two parallel calls"], tools=())))
    assert [tool["toolSpec"]["name"] for tool in body["toolConfig"]["tools"]] == ["get_weather"]
    assert "toolConfig" not in json.loads(rendered(bundle_of("bedrock_converse"), prompt(NEUTRAL["one question"], tools=())))


def test_gemini_gets_a_stand_in_only_on_the_first_call_that_another_model_made():
    own = AssistantMessage(
        blocks=(
            ToolCall(id="a", name="noop", arguments="{}"),
            Opaque(format="gemini.call", data='{"thoughtSignature":"real"}'),
            ToolCall(id="b", name="noop", arguments="{}"),
            Opaque(format="gemini.call", data="{}"),
        )
    )
    foreign = AssistantMessage(
        blocks=(ToolCall(id="c", name="noop", arguments="{}"), ToolCall(id="d", name="noop", arguments="{}"))
    )
    results = [ToolMessage(tool_call_id=name, text="ok") for name in "abcd"]
    messages = (UserMessage(text="go"), own, *results[:2], foreign, *results[2:])
    signatures = [
        [part.get("thoughtSignature") for part in turn["parts"]]
        for turn in json.loads(rendered(with_controls("gemini"), prompt(messages)))["contents"]
        if turn["role"] == "model"
    ]
    assert signatures == [["real", None], ["skip_thought_signature_validator", None]]
    plain = rendered(bundle_of("gemini"), prompt(messages))
    assert b"skip_thought" not in plain


def test_a_tool_without_a_description_has_none():
    for family in FAMILY_NAMES:
        bare = ToolSpec(name="t", description="", parameters='{"type":"object"}')
        assert b"description" not in rendered(bundle_of(family), prompt((UserMessage(text="x"),), tools=(bare,)))
        assert b"Look up weather." in rendered(bundle_of(family), prompt((UserMessage(text="x"),), tools=(WEATHER, *TOOLS[1:])))


if __name__ == "__main__":  # writes the goldens of the newest renderers
    for each in FAMILY_NAMES:
        for title, content in goldens(each).items():
            (GOLDEN / f"{each}_v{FAMILIES[each].renderer}_{title}.jsonl").write_bytes(content)
