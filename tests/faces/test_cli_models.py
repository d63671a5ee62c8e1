"""A model on the command line as a new user meets it: each family answers, files go along, and each refusal has its remedy."""

import re
from pathlib import Path
from typing import Any

import pytest

from semel.core.values import JSON
from semel.testing.model_server import serve_in_thread
from tests.faces.support import Shop, open_shop

FAMILIES = ["anthropic_messages", "bedrock_converse", "gemini", "openai_chat", "openai_responses"]
PNG = b"\x89PNG\r\n\x1a\n" + b"a dot"


def shop_at(place: Path, url: str, family: str) -> Shop:
    return open_shop(place, model=f"{family}:m@{url}")


@pytest.mark.parametrize("family", FAMILIES)
def test_each_family_answers_from_its_scripted_peer_and_a_file_goes_along_once(family: str, tmp_path: Path) -> None:
    (tmp_path / "dot.png").write_bytes(PNG)
    with serve_in_thread({"answers": [{"text": "A dot."}, {"text": "Still a dot."}]}) as server:
        shop = shop_at(tmp_path, server.url, family)
        words = ("run", "What is it?", "--file", "dot.png", "--session", "s", "--key", "k")
        assert shop.semel(*words).out == "A dot.\n"
        assert shop.semel(*words).out == "A dot.\n"
        other = shop.semel("run", "What is it?", "--session", "s", "--key", "k")
        assert (other.exit, "another input" in other.refusal()) == (2, True)
        assert shop.semel("send", "And now?", "--session", "s").out == "Still a dot.\n"
        assert len(server.requests) == 2
    assert "[dot.png, image/png, 13 bytes]" in shop.semel("show", "s").out


def test_a_file_that_is_not_there_is_named_and_nothing_is_sent(tmp_path: Path) -> None:
    with serve_in_thread({"answers": [{"text": "hi"}]}) as server:
        shop = shop_at(tmp_path, server.url, "openai_chat")
        done = shop.semel("run", "Look", "--file", "nope.png")
        assert (done.exit, server.requests) == (2, [])
    assert "the file nope.png cannot be read: No such file or directory" in done.refusal()


@pytest.mark.parametrize(
    ("family", "name", "content", "told"),
    [
        ("openai_chat", "old.txt", "Zürich".encode("latin-1"), "'old.txt' is taken for text/plain, and is not UTF-8; save"),
        (
            "anthropic_messages",
            "big.png",
            PNG.ljust(3_932_161),
            "at most 3932160 (picture_bytes_most of anthropic_messages); send",
        ),
    ],
)
def test_a_file_that_no_request_could_show_is_one_line_and_nothing_is_sent(
    family: str, name: str, content: bytes, told: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(content)
    with serve_in_thread({"answers": [{"text": "hi"}]}) as server:
        shop = shop_at(tmp_path, server.url, family)
        done = shop.semel("run", "Look", "--file", name)
        assert (done.exit, server.requests, shop.semel("ls").out.count("s-")) == (2, [], 0)
    assert told in done.refusal()


def refusal(status: int, body: JSON, **headers: str) -> dict[str, Any]:
    fault = {"kind": "status", "status": status, "body": body, "headers": headers, "times": None}
    return {"answers": [{"text": "hi", "fault": fault}]}


def google(code: int, status: str, message: str, **detail: JSON) -> dict[str, Any]:
    return {"error": {"code": code, "message": message, "status": status, "details": [detail] if detail else []}}


def amazon(status: int, name: str, message: str) -> dict[str, Any]:
    return refusal(status, {"message": message}, **{"x-amzn-errortype": name})


DAILY = {"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [{"quotaId": "RequestsPerDay"}]}
WRONG_KEY, WRONG_MODEL, NO_QUOTA = (
    "set SEMEL_KEY_127_0_0_1",
    "Check the name of the model and its URL",
    "Add credit at the provider",
)
LOOK = "such as a file that this model does not take. If it comes again in this session, start a new one with `semel run`"
NOT_FOUND = {"type": "error", "error": {"type": "not_found_error", "message": "model: m"}}
BAD_KEY = {"type": "error", "error": {"type": "authentication_error", "message": "invalid x-api-key"}}
SPENT = {"type": "rate_limit_error", "message": "limit", "details": {"error_code": "enforced_spend_limit_reached"}}
REFUSALS = {
    "wrong key, anthropic_messages": (refusal(401, BAD_KEY), WRONG_KEY),
    "wrong key, openai_chat": (refusal(401, {"error": {"message": "no", "code": "invalid_api_key"}}), WRONG_KEY),
    "wrong key, openai_responses": (refusal(401, {"error": {"message": "no", "code": "invalid_api_key"}}), WRONG_KEY),
    "wrong key, gemini": (
        refusal(400, google(400, "INVALID_ARGUMENT", "API key not valid.", reason="API_KEY_INVALID")),
        WRONG_KEY,
    ),
    "wrong key, bedrock_converse": (amazon(403, "UnrecognizedClientException", "The security token is invalid."), WRONG_KEY),
    "wrong model, anthropic_messages": (refusal(404, NOT_FOUND), WRONG_MODEL),
    "wrong model, openai_chat": (refusal(404, {"error": {"message": "no", "code": "model_not_found"}}), WRONG_MODEL),
    "wrong model, openai_responses": (refusal(400, {"error": {"message": "no", "code": "model_not_found"}}), WRONG_MODEL),
    "wrong model, gemini": (refusal(404, google(404, "NOT_FOUND", "models/m is not found")), WRONG_MODEL),
    "wrong model, bedrock_converse": (
        amazon(400, "ValidationException", "The provided model identifier is invalid."),
        WRONG_MODEL,
    ),
    "a bad request, bedrock_converse": (amazon(400, "ValidationException", "The picture is odd."), LOOK),
    "a bad request, openai_chat": (refusal(400, {"error": {"message": "odd", "type": "invalid_request_error"}}), LOOK),
    "quota gone, anthropic_messages": (refusal(429, {"type": "error", "error": SPENT}), NO_QUOTA),
    "quota gone, openai_chat": (refusal(402, {"error": {"message": "Insufficient credits", "code": 402}}), NO_QUOTA),
    "quota gone, openai_responses": (refusal(429, {"error": {"message": "gone", "code": "insufficient_quota"}}), NO_QUOTA),
    "quota gone, gemini": (refusal(429, google(429, "RESOURCE_EXHAUSTED", "You exceeded it.", **DAILY)), NO_QUOTA),
    "quota gone, bedrock_converse": (amazon(400, "ServiceQuotaExceededException", "Too many tokens."), NO_QUOTA),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_a_refusal_is_one_line_with_its_remedy(name: str, tmp_path: Path) -> None:
    script, remedy = REFUSALS[name]
    with serve_in_thread(script) as server:
        done = shop_at(tmp_path, server.url, name.rpartition(" ")[2]).semel("run", "Hi")
    assert done.exit == (4 if remedy == WRONG_KEY else 1)
    line = done.refusal()
    assert remedy in line
    assert ".." not in line
    assert len(server.requests) == 1


def test_a_long_wait_for_a_server_is_told_once_with_its_reason(tmp_path: Path) -> None:
    with serve_in_thread({"answers": [{"text": "hi"}]}) as server:
        url = server.url  # whose port is free again below
    shop = shop_at(tmp_path, url, "openai_chat")
    agent = (tmp_path / "agent.toml").read_text()
    (tmp_path / "agent.toml").write_text(agent.replace("model_retries = 0", "model_retries = 3"))
    waits, line = shop.semel("run", "Hi").err.splitlines()
    where = url.removeprefix("http://").removesuffix("/v1")
    assert waits.startswith(f"semel: {where}: no connection; check the address and that the server runs")
    assert waits.endswith("; it is asked again in 2.0 s, 3 times at most")
    assert "failed: unreachable" in line


def test_a_model_without_its_provider_is_told_the_nearest_example(tmp_path: Path) -> None:
    shop = open_shop(tmp_path)
    assert "such as anthropic:claude-opus-5-5" in shop.semel("run", "Hi", "--model", "claude-opus").refusal()
    assert "such as openai:gpt-5" in shop.semel("run", "Hi", "--model", "gpt-5").refusal()


PAGE = (Path(__file__).parents[2] / "docs" / "models.md").read_text(encoding="utf-8")


def test_what_nobody_told_of_a_model_is_said_to_be_unknown(tmp_path: Path) -> None:
    shop = open_shop(tmp_path)
    lines = [line.split("\t") for line in shop.semel("models").out.splitlines() if line.count("\t") == 5]
    assert lines[0] == ["provider", "model", "served at", "key", "window", "price"]
    assert {line[4] for line in lines[1:]} == {"unknown"}
    prices = {line[0]: line[5] for line in lines[1:]}
    assert prices.pop("openrouter") == "told by the server, in USD"
    assert set(prices.values()) == {"unknown"}
    assert all(row["models"] == {} for row in shop.semel("models", "--json").lines)


def test_a_window_and_a_price_as_the_page_adds_them_are_listed_limit_the_cost_and_are_explained(tmp_path: Path) -> None:
    example = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)[0]
    script = {"answers": [{"calls": [{"name": "pay", "args": {"cents": 1}}], "usage": {"input": 10_000, "output": 5_000}}]}
    with serve_in_thread(script) as server:
        shop = open_shop(tmp_path, model="house:small")
        (tmp_path / "models.toml").write_text(example.replace("https://llm.house.example/v1", server.url), encoding="utf-8")
        shop.variables["SEMEL_MODELS"] = str(tmp_path / "models.toml")
        lines = [line.split("\t") for line in shop.semel("models").out.splitlines()]
        assert ["house", "house:small", server.url, "HOUSE_KEY", "32,000", "0.50 and 2.00 EUR"] in lines
        assert ["100,000", "1.00 and 8.00 USD"] in [line[4:] for line in lines if line[0] == "openai"]
        agent = (tmp_path / "agent.toml").read_text(encoding="utf-8")
        for limit, told in (("1.00 USD", "is paid in EUR; write the limit in EUR"), ("0.01 EUR", "the run cost 0.015 EUR")):
            (tmp_path / "agent.toml").write_text(agent.replace("limits = {", f'limits = {{ cost = "{limit}",'), encoding="utf-8")
            assert told in shop.semel("run", "Go", "--session", "s", HOUSE_KEY="k").err
    told = shop.semel("explain", "s").out
    assert "The run has used 15,000 tokens; they cost 0.015 EUR." in told
    assert "The window of small is 32,000 tokens." in told
    del shop.variables["SEMEL_MODELS"]
    assert "The window of small is unknown." in shop.semel("explain", "s").out


def test_what_an_answer_cost_is_unknown_without_a_price(tmp_path: Path) -> None:
    """Negative control: the same answer of a model of which nothing is known."""
    with serve_in_thread({"answers": [{"text": "hi", "usage": {"input": 10, "output": 5}}]}) as server:
        shop = shop_at(tmp_path, server.url, "openai_chat")
        shop.semel("run", "Go", "--session", "s")
        assert "The run has used 15 tokens; what they cost is unknown: no price of m is known." in shop.semel("explain", "s").out
        (tmp_path / "agent.toml").write_text(
            f'name = "a"\nmodel = "openai_chat:m@{server.url}"\nlimits = {{ cost = "1.00 EUR" }}\n'
        )
        line = shop.semel("run", "Go", "--session", "t").refusal()
    assert "no price is known for m; set `price` in its row of models.toml or in the model options, or drop the limit" in line
