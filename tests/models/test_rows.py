"""The catalog's rows: shipped, and extended by the operator's own file (A11)."""

import pytest

from semel.adapters.models.catalog import ModelOptions, cost_currency, key_problem, known_of, resolve
from semel.adapters.models.rows import rows, user_file
from semel.errors import BadSettings, UnknownModel

OWN = """
[house]
family = "openai_chat"
base_url = "https://llm.house.example/v1"
key = "HOUSE_KEY"
example = "house:small"
features = ["tools"]
dialect = { max_tokens_field = "max_completion_tokens" }

[house.models."small"]
context = 32000
max_output = 4000
price = { currency = "EUR", input = "0.5", output = "2" }

[openai]
family = "openai_chat"
base_url = "https://gateway.house.example/{SITE}/v1"
"""


@pytest.fixture
def environ(tmp_path) -> dict[str, str]:
    (tmp_path / "models.toml").write_text(OWN)
    return {"SEMEL_MODELS": str(tmp_path / "models.toml"), "SITE": "berlin"}


def test_a_row_of_ones_own_adds_a_provider_with_windows_and_prices(environ):
    bundle = resolve("house:small", ModelOptions(), environ)
    assert (bundle.family, bundle.endpoint, bundle.max_output_tokens) == ("openai_chat", "https://llm.house.example/v1", 4000)
    assert cost_currency(bundle) == "EUR"
    here = (bundle.family, bundle.endpoint)
    assert known_of(*here, "small", environ).context == 32000
    assert known_of(*here, "small").context is None
    assert known_of(*here, "large", environ).context is None
    assert known_of("openai_chat", "https://other.example/v1", "small", environ).context is None
    assert known_of("openai_responses", bundle.endpoint, "small", environ).context is None
    assert resolve("house:large", ModelOptions(), environ).max_output_tokens is None
    assert key_problem(bundle, environ=environ) == "no key for llm.house.example: set HOUSE_KEY"
    with pytest.raises(UnknownModel, match="Known are anthropic"):
        resolve("house:small", ModelOptions())


def test_a_row_of_ones_own_replaces_a_shipped_one_and_fills_in_what_it_leaves_open(environ):
    assert resolve("openai:gpt-5", ModelOptions(), environ).endpoint == "https://gateway.house.example/berlin/v1"
    with pytest.raises(BadSettings, match="needs SITE, which is not set"):
        resolve("openai:gpt-5", ModelOptions(), {"SEMEL_MODELS": environ["SEMEL_MODELS"]})


def test_a_row_without_a_family_adds_to_the_shipped_one(tmp_path):
    file = tmp_path / "models.toml"
    file.write_text(
        'openai.dialect = { pictures_most = 3 }\n[openai.models."gpt-5"]\ncontext = 9\n'
        'price = { currency = "USD", input = "1", output = "2" }\n'
    )
    environ = {"SEMEL_MODELS": str(file)}
    shipped, row = rows({})["openai"], rows(environ)["openai"]
    assert (row.family, row.base_url, row.key, row.quirks) == (shipped.family, shipped.base_url, shipped.key, shipped.quirks)
    assert row.dialect == {**shipped.dialect, "pictures_most": 3}
    bundle = resolve("openai:gpt-5", ModelOptions(), environ)
    assert cost_currency(bundle) == "USD"
    assert known_of(bundle.family, bundle.endpoint, "gpt-5", environ).context == 9
    file.write_text('openai.models = "gpt-5"\n')
    with pytest.raises(BadSettings, match="Expected `object`, got `str`"):
        rows(environ)
    file.write_text("[nobody]\nkey = 'X'\n")
    with pytest.raises(BadSettings, match="missing required field `family`"):
        rows(environ)


@pytest.mark.parametrize("value", ["a.evil.example/", "a/b", "a:b", "@x", "", " ", "a.b"])
def test_a_variable_can_put_one_label_into_a_url_and_nothing_else(environ, value):
    with pytest.raises(BadSettings, match="SITE"):
        resolve("openai:gpt-5", ModelOptions(), {**environ, "SITE": value})


def test_a_key_goes_to_every_host_that_the_open_part_can_stand_for_and_to_no_other():
    bedrock = rows({})["bedrock"]
    assert bedrock.serves("bedrock-runtime.eu-west-1.amazonaws.com")
    for host in ("bedrock-runtime.evil.example.amazonaws.com", "bedrock-runtime.x.amazonaws.com.evil.example", "amazonaws.com"):
        assert not bedrock.serves(host)


def test_the_file_is_found_where_configuration_lies(tmp_path):
    assert user_file({}) is None
    assert user_file({"HOME": str(tmp_path)}) is None
    place = tmp_path / ".config" / "semel"
    place.mkdir(parents=True)
    (place / "models.toml").write_text(OWN)
    assert "house" in rows({"HOME": str(tmp_path)})
    assert "house" not in rows({"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "other")})
    with pytest.raises(BadSettings, match="which is no file"):
        rows({"SEMEL_MODELS": str(tmp_path / "missing.toml")})


def test_a_changed_file_is_read_again(tmp_path):
    import os

    path = tmp_path / "m.toml"
    for moment, name in ((1, "one"), (2, "two")):
        path.write_text(f'[{name}]\nfamily = "gemini"\nbase_url = "https://x.example"\n')
        os.utime(path, (moment, moment))
        assert name in rows({"SEMEL_MODELS": str(path)})


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[a]\nfamily = 1\n", "family"),
        ('[a]\nfamily = "x"\n', "base_url"),
        ('[a]\nfamily = "gemini"\nbase_url = "https://x"\nkeyy = "K"\n', "keyy"),
        ("[a\n", "cannot be read"),
        ('["A b"]\nfamily = "gemini"\nbase_url = "https://x"\n', "a name is of"),
        ('[a]\nfamily = "gemini"\nbase_url = "https://x"\n[a.models.m]\nprice = { currency = "EUR" }\n', "input"),
    ],
)
def test_a_mistake_in_the_file_is_named(tmp_path, text, told):
    (tmp_path / "m.toml").write_text(text)
    with pytest.raises(BadSettings, match=told):
        rows({"SEMEL_MODELS": str(tmp_path / "m.toml")})


def test_a_row_of_an_unknown_family_or_with_an_unsafe_url_is_refused_when_it_is_used(tmp_path):
    (tmp_path / "m.toml").write_text(
        '[a]\nfamily = "telepathy"\nbase_url = "https://x.example"\n[b]\nfamily = "gemini"\nbase_url = "http://10.0.0.1"\n'
    )
    for spec, told in (("a:m", "telepathy"), ("b:m", "https://")):
        with pytest.raises(BadSettings, match=told):
            resolve(spec, ModelOptions(), {"SEMEL_MODELS": str(tmp_path / "m.toml")})
