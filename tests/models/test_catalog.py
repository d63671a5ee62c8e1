"""Model names, and models from frozen bundles (design 11, P4 to P10)."""

import json
import subprocess
import sys

import msgspec
import pytest
from models_support import HandClock, ScheduledConnector, VirtualClock, ask, chat_bundle, whole

from semel.adapters.models.catalog import (
    ModelOptions,
    build_model,
    check_bundle,
    cost_currency,
    differ_in_auth,
    key_problem,
    parse_options,
    resolve,
    restore_model,
)
from semel.adapters.models.endpoint import parse_endpoint
from semel.adapters.models.pricing import Price
from semel.adapters.models.rows import rows
from semel.core.values import Bundle
from semel.errors import BadSettings, UnknownModel
from semel.ports.model import BundleRefused

NONE = ModelOptions()
SHIPPED = rows({})
NAMES = {
    "openai:gpt-5": ("openai_responses", "gpt-5", "https://api.openai.com/v1"),
    "openai-chat:gpt-5": ("openai_chat", "gpt-5", "https://api.openai.com/v1"),
    "anthropic:claude-opus-5-5": ("anthropic_messages", "claude-opus-5-5", "https://api.anthropic.com/v1"),
    "gemini:gemini-3.1-pro-preview": (
        "gemini",
        "gemini-3.1-pro-preview",
        "https://generativelanguage.googleapis.com/v1beta",
    ),
    "xai:grok-5": ("openai_responses", "grok-5", "https://api.x.ai/v1"),
    "meta:muse-spark-1.1": ("openai_responses", "muse-spark-1.1", "https://api.meta.ai/v1"),
    "gemini:m@http://127.0.0.1:8000/v1beta": ("gemini", "m", "http://127.0.0.1:8000/v1beta"),
    "anthropic_messages:m@https://llm.example/v1": ("anthropic_messages", "m", "https://llm.example/v1"),
    "openai_responses:m@https://llm.example/v1": ("openai_responses", "m", "https://llm.example/v1"),
    "bedrock_converse:a.b:0@https://llm.example": ("bedrock_converse", "a.b:0", "https://llm.example"),
    "openrouter:deepseek/deepseek-r1:free": ("openai_chat", "deepseek/deepseek-r1:free", "https://openrouter.ai/api/v1"),
    "deepseek:deepseek-v4-pro": ("openai_chat", "deepseek-v4-pro", "https://api.deepseek.com"),
    "moonshot:kimi-k3": ("openai_chat", "kimi-k3", "https://api.moonshot.ai/v1"),
    "ollama:qwen3:30b": ("openai_chat", "qwen3:30b", "http://127.0.0.1:11434/v1"),
    "vllm:Qwen/Qwen3-30B-A3B": ("openai_chat", "Qwen/Qwen3-30B-A3B", "http://127.0.0.1:8000/v1"),
    "llamacpp:default": ("openai_chat", "default", "http://127.0.0.1:8080/v1"),
    "openai_chat:m@http://127.0.0.1:8000/v1": ("openai_chat", "m", "http://127.0.0.1:8000/v1"),
    "openai_chat:a@b:c@https://llm.example/v1/": ("openai_chat", "a@b:c", "https://llm.example/v1"),
    "openai_chat:m@http://[::1]:8000/v1": ("openai_chat", "m", "http://[::1]:8000/v1"),
    "openai_chat:m@https://LLM.example": ("openai_chat", "m", "https://llm.example"),
}


@pytest.mark.parametrize("spec", NAMES)
def test_a_name_stands_for_a_model_at_an_endpoint(spec):
    bundle = resolve(spec, NONE)
    assert (bundle.family, bundle.model, bundle.endpoint) == NAMES[spec]
    assert not bundle.endpoint.endswith("/")


AWS = {"AWS_REGION": "eu-west-1"}


def test_each_provider_has_an_example_that_works():
    for name, row in SHIPPED.items():
        bundle = resolve(row.example, NONE, AWS)
        assert row.example.startswith(f"{name}:")
        assert (bundle.family, bundle.endpoint) == (row.family, row.url(AWS))
        assert row.features, name
    assert len(SHIPPED) == 13


@pytest.mark.parametrize(
    ("spec", "part"),
    [
        ("opnai:gpt-5", "did you mean openai:gpt-5"),
        ("ollma:x", "did you mean ollama:"),
        ("claude:opus", "Known are anthropic, bedrock, deepseek, gemini, llamacpp, meta, moonshot, ollama, openai, openai-chat"),
        ("anthropic_messages:m", "write anthropic_messages:MODEL@https://host/v1"),
        ("gpt-5", "write provider:model"),
        ("openai:", "write provider:model"),
        ("", "write provider:model"),
        ("openai_chat:m", "openai_chat:MODEL@https://host/v1"),
        ("scripted:/no/such/file", "cannot be opened"),
    ],
)
def test_a_wrong_name_says_what_is_known_and_what_is_nearest(spec, part):
    with pytest.raises(UnknownModel, match=part.replace("(", r"\(")):
        build_model(spec, clock=HandClock(), environ={})


@pytest.mark.parametrize(
    "url",
    [
        "http://llm.example/v1",
        "http://10.0.0.5:8000/v1",
        "http://169.254.169.254/v1",
        "https://169.254.169.254/v1",
        "https://[fe80::1]/v1",
        "https://0.0.0.0/v1",
        "https://224.0.0.1/v1",
        "http://user:pass@127.0.0.1/v1",
        "https://user@host.example/v1",
        "https://host.example/v1?key=1",
        "https://host.example/v1#x",
        "https://host .example/v1",
        "https://2852039166/v1",
        "https://0x7f000001/v1",
        "https://127.1/v1",
        "https:///v1",
        "https://host.example:99999/v1",
        "https://host.example:0/v1",
        "https://ho\tst.example/v1",
        "https://host.example\\@evil.example/v1",
        "http://localhost.evil.example/v1",
    ],
)
def test_an_address_that_no_model_should_be_at_is_refused(url):
    with pytest.raises((BadSettings, UnknownModel)):
        resolve(f"openai_chat:m@{url}", NONE)


@pytest.mark.parametrize(
    "url",
    [
        "https://host.example/v1?key=SECRET",
        "https://host.example/v1#SECRET",
        "https://host.example:SECRET/v1",
        "https://user:SECRET@host.example:x/v1",
        "https://user:SECRET@host.example/v1",
        "https://SECRET@/v1",
        "https://[SECRET/v1",
        "https://SECRET\\@host.example/v1",
        "https://host.example\\SECRET/v1",
        "http://host.example/SECRET",
        "https://10.1/SECRET",
        "https://169.254.169.254/SECRET",
        "SECRET:x",
        "SECRET",
    ],
)
def test_an_address_that_is_refused_is_told_without_what_may_be_a_key(url):
    with pytest.raises(BadSettings) as caught:
        parse_endpoint(url)
    assert "secret" not in str(caught.value).lower()
    assert "the model URL" in str(caught.value)
    for spec in (f"openai_chat:m@{url}", f"opnai_chat:m@{url}", f"openai_chat:{url}@"):
        with pytest.raises((BadSettings, UnknownModel)) as caught:
            resolve(spec, NONE)
        assert "secret" not in str(caught.value).lower()


def test_a_refused_address_is_named_by_its_scheme_and_host():
    with pytest.raises(BadSettings, match=r"the model URL https://host\.example has a query"):
        parse_endpoint("https://host.example:8443/v1?key=1")


@pytest.mark.parametrize("url", ["file:///etc/passwd", "gopher://127.0.0.1/v1", "ftp://host.example/v1", "127.0.0.1:8000"])
def test_other_schemes_are_refused(url):
    with pytest.raises(BadSettings, match="https://"):
        resolve(f"openai_chat:m@{url}", NONE)


@pytest.mark.parametrize(
    "url", ["http://localhost:1/v1", "http://127.9.9.9/v1", "http://[::1]/v1", "http://[::ffff:127.0.0.1]/v1"]
)
def test_this_machine_may_be_spoken_to_without_tls(url):
    assert resolve(f"openai_chat:m@{url}", NONE).endpoint == url


@pytest.mark.parametrize(
    "raw",
    [
        {"temperature": 1},
        {"max_output_tokens": "many"},
        {"dialect": {"system_role": "boss"}},
        {"dialect": {"nonsense": True}},
        {"body": {"stream": False}},
        {"body": {"messages": []}},
        {"body": {"temperature": float("nan")}},
        {"price": {"currency": "USD", "input": "cheap", "output": "1"}},
        {"price": {"currency": "USD", "input": "-1", "output": "1"}},
        {"limits": {"idle": 3}},
    ],
)
def test_an_option_that_cannot_be_used_is_named(raw):
    with pytest.raises(BadSettings):
        resolve("openai-chat:gpt-5", parse_options(raw))


def test_the_same_name_and_options_give_the_same_bundle_bytes():
    options = parse_options({"body": {"b": 1, "a": {"y": 1, "x": 2}}, "max_output_tokens": 9})
    other = parse_options({"max_output_tokens": 9, "body": {"a": {"x": 2, "y": 1}, "b": 1}})
    assert msgspec.json.encode(resolve("openai:gpt-5", options)) == msgspec.json.encode(resolve("openai:gpt-5", other))
    assert resolve("vllm:m", NONE).options == "{}"


def test_a_restored_model_renders_the_bytes_of_the_one_that_was_frozen_whatever_the_catalog_says_today(tmp_path):
    options = parse_options({"max_output_tokens": 7, "body": {"temperature": 0.2}})
    built = build_model("openai:gpt-5", clock=HandClock(), environ={}, options=options)
    stored = msgspec.json.decode(msgspec.json.encode(built.bundle), type=Bundle)
    (tmp_path / "models.toml").write_text('[openai]\nfamily = "gemini"\nbase_url = "https://elsewhere.example/v1"\n')
    today = {"SEMEL_MODELS": str(tmp_path / "models.toml")}
    assert resolve("openai:gpt-5", NONE, today).endpoint == "https://elsewhere.example/v1"
    restored = restore_model(stored, clock=HandClock(), environ=today)
    assert restored.render(ask()) == built.render(ask())
    assert restored.bundle == built.bundle


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"renderer": 99}, "renderer_version_drift"),
        ({"renderer": 0}, "renderer_version_drift"),
        ({"family": "gemini", "renderer": 3}, "renderer_version_drift"),
        ({"family": "gemini", "options": '{"dialect":{"auth":"sigv4"}}'}, "frozen_render_config_unverifiable"),
        ({"family": "telepathy"}, "frozen_render_config_unverifiable"),
        ({"options": "not json"}, "frozen_render_config_unverifiable"),
        ({"options": '{"later_field":1}'}, "frozen_render_config_unverifiable"),
        ({"endpoint": "ftp://x"}, "frozen_render_config_unverifiable"),
        ({"options": '{"dialect":{}}'}, "frozen_render_config_drift"),
        ({"options": "{ }"}, "frozen_render_config_drift"),
    ],
)
def test_a_bundle_that_would_render_otherwise_is_refused_by_name_before_any_request(changes, reason):
    with pytest.raises(BundleRefused) as caught:
        restore_model(chat_bundle(**changes), clock=HandClock(), environ={})
    assert caught.value.reason == reason


def test_good_bundles_pass():
    for row in SHIPPED.values():
        check_bundle(resolve(row.example, NONE, AWS))


def test_a_scripted_model_is_restored_from_its_file(tmp_path):
    path = tmp_path / "s.json"
    path.write_text(json.dumps({"answers": [{"text": "x"}]}))
    bundle = build_model(f"scripted:{path}", clock=HandClock(), environ={}).bundle
    assert restore_model(bundle, clock=HandClock(), environ={}).bundle == bundle
    assert cost_currency(bundle) is None
    assert key_problem(bundle, environ={}) is None


BAD_SCRIPTS = [
    "",
    "[]",
    '{"answers": [{"txt": "x"}]}',
    '{"answers": [{"chunk": 0}]}',
    '{"answers": [{"delay_ms": -1}]}',
    '{"answers": [{"calls": [{"name": "a", "args": 1, "raw": ""}]}]}',
    '{"answers": [{"fault": {"kind": "earthquake"}}]}',
]


@pytest.mark.parametrize("text", BAD_SCRIPTS)
def test_a_script_with_a_mistake_is_refused_with_its_place(text, tmp_path):
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(BadSettings, match=r"bad\.json"):
        build_model(f"scripted:{path}", clock=HandClock(), environ={})


def test_prices_are_known_where_somebody_states_them():
    assert cost_currency(resolve("openai:gpt-5", NONE)) is None
    assert cost_currency(resolve("openrouter:x/y", NONE)) == "USD"
    priced = ModelOptions(price=Price(currency="EUR", input="1.25", output="10"))
    assert cost_currency(resolve("openai:gpt-5", priced)) == "EUR"


def test_a_missing_key_is_found_before_a_run():
    assert key_problem(resolve("openai:gpt-5", NONE), environ={}) == "no key for api.openai.com: set OPENAI_API_KEY"
    assert key_problem(resolve("openai:gpt-5", NONE), environ={"OPENAI_API_KEY": "k"}) is None
    assert key_problem(resolve("ollama:x", NONE), environ={}) is None
    own = resolve("openai_chat:m@https://llm.example/v1", NONE)
    assert key_problem(own, environ={}) is None
    assert "MY_KEY" in key_problem(own, environ={}, options=ModelOptions(key_env="MY_KEY"))


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("spec", "environ", "options", "sent"),
    [
        ("openai:gpt-5", {"OPENAI_API_KEY": "sk-1"}, {}, "Bearer sk-1"),
        ("openai_chat:m@https://api.openai.com/v1", {"OPENAI_API_KEY": "sk-1"}, {}, "Bearer sk-1"),
        ("openai_chat:m@https://llm.example/v1", {"OPENAI_API_KEY": "sk-1"}, {}, None),
        ("openai_chat:m@https://llm.example/v1", {"SEMEL_KEY_LLM_EXAMPLE": "k2"}, {}, "Bearer k2"),
        ("openai_chat:m@https://llm.example/v1", {"MINE": " k3\n"}, {"key_env": "MINE"}, "Bearer k3"),
        ("ollama:x", {"OPENAI_API_KEY": "sk-1"}, {}, None),
        ("openai_chat:m@http://127.0.0.1:9/v1", {"SEMEL_KEY_127_0_0_1": "k4"}, {}, "Bearer k4"),
    ],
)
async def test_a_key_goes_to_the_host_it_belongs_to_and_to_no_other(spec, environ, options, sent):
    clock = VirtualClock()
    connector = ScheduledConnector(clock, whole(b""))
    model = build_model(spec, clock=clock, environ=environ, options=parse_options(options), connector=connector)
    from models_support import in_virtual_time, outcome

    await in_virtual_time(clock, outcome(model, ask()))
    request = connector.requests[0]
    assert request.headers.get("authorization") == sent
    path = "/responses" if spec == "openai:gpt-5" else "/chat/completions"
    assert str(request.url) == resolve(spec, NONE).endpoint + path


@pytest.mark.anyio
async def test_the_endpoint_of_a_log_from_elsewhere_does_not_get_a_providers_key():
    """A11: the endpoint comes from the log, so the key is found by host, never by what the log or the agent's name says."""
    clock = VirtualClock()
    connector = ScheduledConnector(clock, whole(b""))
    evil = chat_bundle(endpoint="https://evil.example/v1")
    model = restore_model(
        evil, clock=clock, environ={"OPENAI_API_KEY": "sk-1", "OPENROUTER_API_KEY": "sk-2"}, connector=connector
    )
    from models_support import in_virtual_time, outcome

    await in_virtual_time(clock, outcome(model, ask()))
    assert "authorization" not in connector.requests[0].headers


def test_resolving_and_building_do_not_import_the_http_client():
    code = (
        "import sys; import semel; from semel.adapters.models import catalog;"
        "catalog.resolve('openai:gpt-5', catalog.ModelOptions());"
        "print('httpx2' in sys.modules, 'asyncio' in sys.modules);"
        "catalog.build_model('openai:gpt-5', clock=None, environ={}); print('httpx2' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONPATH": ":".join(sys.path)}
    )
    print(done.stdout)
    assert done.stdout.split()[0] == "False"
    assert done.stdout.split()[2] == "False"


SHAPES = {
    "anthropic_messages": ("x-api-key", "bearer"),
    "bedrock_converse": ("sigv4", "bearer"),
    "gemini": ("x-goog-api-key", "bearer"),
    "openai_chat": ("bearer", "api-key"),
    "openai_responses": ("bearer", "api-key"),
}


@pytest.mark.parametrize("family", SHAPES)
def test_two_bundles_that_show_a_key_in_two_ways_and_are_otherwise_equal_are_told_from_all_others(family: str) -> None:
    def bundle(auth: str, name: str = "m", port: int = 8000, **more: object) -> Bundle:
        options = parse_options({"dialect": {"auth": auth}, **more})
        return resolve(f"{family}:{name}@http://127.0.0.1:{port}/v1", options, {})

    one, other = SHAPES[family]
    recorded = bundle(one)
    assert differ_in_auth(recorded, bundle(other))
    for today in (
        recorded,
        bundle(other, name="n"),
        bundle(other, port=8001),
        bundle(other, max_output_tokens=7),
        bundle(other, body={"x": 1}),
        msgspec.structs.replace(bundle(other), renderer=99),
        Bundle(family="scripted", model="m", endpoint="x", renderer=1),
    ):
        assert not differ_in_auth(recorded, today)
    assert not differ_in_auth(Bundle(family="scripted", model="m", endpoint="x", renderer=1), recorded)


def test_a_bedrock_run_that_was_signed_may_go_on_with_a_key_of_its_own() -> None:
    signed = resolve("bedrock:m", NONE, {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "s", "AWS_REGION": "us-east-1"})
    keyed = resolve("bedrock:m", NONE, {"AWS_BEARER_TOKEN_BEDROCK": "k", "AWS_REGION": "us-east-1"})
    assert differ_in_auth(signed, keyed)
