"""A canary key shows in no error, repr, log or trace, whatever goes wrong (A13, MODEL-6)."""

import asyncio
import json
import logging
import traceback

import pytest
from models_support import HandClock, ask, outcome
from test_http_exchange import http, raw_server

from semel.adapters.models.catalog import ModelOptions, build_model
from semel.adapters.models.endpoint import parse_endpoint
from semel.adapters.models.keys import Outgoing, key_from, redacted
from semel.adapters.models.script_steps import End, Head, Send
from semel.errors import BadSettings
from semel.ports.model import FailureClass, ModelFailed
from semel.testing.formats import FORMATS
from semel.testing.model_server import ModelServer

pytestmark = pytest.mark.anyio
CANARY = "sk-canary-7c2f1e9ab4"
OPTIONS = ModelOptions(key_env="CANARY")
PROMPT_CANARY = "prompt-canary-52aa"


def replies():
    """Servers that answer in every wrong way, most of them repeating the key."""
    leak = f'{{"error":{{"message":"Incorrect API key provided: {CANARY}","code":"{CANARY}"}}}}'
    for status in (200, 400, 401, 403, 429, 500, 502):
        for kind in ("application/json", "text/html", "text/event-stream"):
            cut = "x" * 190 + CANARY  # where a text that is cut short would keep half of it
            for body in (
                leak,
                f"<html>{CANARY}</html>",
                f"data: {leak}\n\n",
                f"{CANARY} oops",
                cut,
                leak.replace("In", cut),
                "null",
            ):
                yield status, kind, body.encode()


async def test_a_server_that_repeats_the_key_does_not_get_it_into_an_error(caplog):
    caplog.set_level(logging.DEBUG)
    wrong = list(replies())
    queue = list(wrong)

    def reply(_body: bytes):
        status, kind, body = queue.pop(0)
        headers = {"content-type": kind, "x-request-id": "r", "retry-after": "soon"}
        return [Head(status=status, headers=headers), Send(body=body), End()]

    shown: list[str] = []
    async with ModelServer(reply) as server:
        for _ in wrong:
            model = build_model(f"openai_chat:m@{server.url}", clock=HandClock(), environ={"CANARY": CANARY}, options=OPTIONS)
            _, end = await outcome(model, ask(PROMPT_CANARY))
            await model.close()
            assert isinstance(end, ModelFailed)
            shown += [str(end), repr(end), repr(end.exchange), str(end.provider_code), "".join(traceback.format_exception(end))]
            assert end.__cause__ is None
        assert server.requests[0].headers["authorization"] == f"Bearer {CANARY}"
        shown += [repr(vars(part)) for part in (model, model._transport)] + [repr(model), repr(model.bundle)]
    text = "\n".join(shown) + caplog.text
    print(f"{len(wrong)} failures, {len(shown)} texts")
    assert len(wrong) == 147
    assert CANARY[:10] not in text
    assert PROMPT_CANARY not in text


LONG = f"{CANARY}." + "eyJhbGciOiJ0123456789" * 70  # as long as signed tokens are


def broken(key: str):
    """Servers that break HTTP, or cut what they say, and repeat the key where an error would quote it."""
    stream = "content-type: text/event-stream"
    yield f"HTTP/1.1 200 OK\r\nX-Debug authorization Bearer {key}\r\n\r\n".encode()
    yield f"HTTP/9 Bearer {key}\r\n\r\n".encode()
    yield f"HTTP/1.1 200 OK\r\ncontent-length: {key}\r\n\r\n".encode()
    yield f"HTTP/1.1 200 OK\r\ntransfer-encoding: {key}\r\n\r\n".encode()
    yield f"HTTP/1.1 200 OK\r\n{stream}\r\ntransfer-encoding: chunked\r\n\r\n{key}\r\n".encode()
    for encoding in (key, "x" * 20 + key):
        yield http(b"{}", f"content-encoding: {encoding}")
    yield http(b"", f"location: http://x/{key}", status="302 Found")
    for length in (781, 792, 799):  # where a text of 800 bytes would be cut inside the key
        yield http(
            ("<html>" + " " * (length - 13) + f"Bearer {key}</html>").encode(), "content-type: text/html", status="502 Bad"
        )
    for status in ("200 OK", "502 Bad"):
        yield http(f"oops {key} ".encode() + b"tail " * 400, "content-type: text/html", status=status)
        yield http(b" " * 1000 + f"oops {key}".encode(), "content-type: text/html", status=status)
        yield http(b'{"x":"' + b" " * (65_536 - 20) + f'{key}"}}'.encode(), "content-type: application/json", status=status)


@pytest.mark.parametrize("key", [CANARY, CANARY.upper(), LONG], ids=["usual", "upper", "long"])
async def test_a_server_that_breaks_http_with_the_key_or_cuts_it_gets_not_even_its_start_into_an_error(key, caplog):
    caplog.set_level(logging.DEBUG, logger="semel")
    shown = []
    for reply in broken(key):
        async with raw_server(reply) as url:
            model = build_model(f"openai_chat:m@{url}", clock=HandClock(), environ={"CANARY": key}, options=OPTIONS)
            _, end = await outcome(model, ask())
            await model.close()
        assert isinstance(end, ModelFailed)
        shown += [str(end), repr(end.exchange), str(end.provider_code), "".join(traceback.format_exception(end))]
    text = "\n".join(shown) + caplog.text
    assert len(shown) == 4 * 17
    assert CANARY[:8].lower() not in text.lower()
    assert text.count("[key]") > 20


def test_a_secret_is_taken_out_whole_as_json_writes_it_and_where_the_text_was_cut():
    assert redacted("a one/two b", ["one/two"]) == "a [key] b"
    assert redacted(r"a one\/two b", ["one/two"]) == "a [key] b"
    assert redacted("a 123456789", ["1234", "123456789"]) == "a [key]"
    assert redacted("a 12345678", ["123456789"]) == "a [key]"
    assert redacted("a 1234567", ["123456789"]) == "a 1234567"  # so few may be the prefix that a vendor's keys share
    assert redacted("a abababababab", ["abababababababX"]) == "a [key]"
    assert redacted("a 12345678 b", ["", "123456789"]) == "a 12345678 b"


async def test_a_header_that_repeats_the_key_does_not_get_it_into_the_facts():
    def reply(_body: bytes):
        return [Head(status=500, headers={"content-type": CANARY, "x-request-id": "x" * 90 + CANARY}), End()]

    async with ModelServer(reply) as server:
        model = build_model(f"openai_chat:m@{server.url}", clock=HandClock(), environ={"CANARY": CANARY}, options=OPTIONS)
        _, end = await outcome(model, ask())
        await model.close()
    assert end.exchange.content_type == "[key]"
    assert CANARY[:5] not in end.exchange.request_id


async def test_a_refused_key_is_named_by_its_source():
    async with ModelServer({"answers": [{"fault": {"kind": "status", "status": 401, "times": None}}]}) as server:
        for environ, told in (({"CANARY": CANARY}, "the key came from CANARY"), ({}, "no key was sent; set CANARY")):
            model = build_model(f"openai_chat:m@{server.url}", clock=HandClock(), environ=environ, options=OPTIONS)
            _, end = await outcome(model, ask())
            await model.close()
            assert (end.failure, told in str(end)) == (FailureClass.AUTH, True)


async def test_a_connection_that_fails_does_not_show_the_key(caplog):
    caplog.set_level(logging.DEBUG)
    for url in ("http://127.0.0.1:1/v1", "https://127.0.0.1:1/v1"):
        model = build_model(f"openai_chat:m@{url}", clock=HandClock(), environ={"CANARY": CANARY}, options=OPTIONS)
        _, end = await outcome(model, ask())
        await model.close()
        assert end.failure is FailureClass.UNREACHABLE
        assert CANARY not in "".join(traceback.format_exception(end)) + caplog.text


@pytest.mark.parametrize("key", [f"{CANARY}\nx: y", f"{CANARY} b", f"{CANARY}\x00", f"{CANARY}é"])
async def test_a_key_that_is_no_header_value_is_not_sent_and_not_shown(key):
    async with ModelServer({"answers": [{"text": "x"}]}) as server:
        model = build_model(f"openai_chat:m@{server.url}", clock=HandClock(), environ={"CANARY": key}, options=OPTIONS)
        _, end = await outcome(model, ask())
        await model.close()
        assert (end.failure, end.retryable, server.requests) == (FailureClass.AUTH, False, [])
        assert "CANARY" in str(end)
        assert CANARY not in str(end)


async def test_a_missing_key_is_named_and_nothing_is_sent():
    model = build_model("openai:gpt-5", clock=HandClock(), environ={})
    _, end = await outcome(model, ask())
    await model.close()
    assert end.failure is FailureClass.AUTH
    assert "OPENAI_API_KEY" in str(end)


async def test_a_key_is_read_anew_for_each_request_and_may_be_fetched():
    keys = ["one", "two"]

    async def fetch() -> str:
        await asyncio.sleep(0)
        return keys.pop(0)

    async with ModelServer({"answers": [{"text": "x"}]}) as server:
        model = build_model(f"openai_chat:m@{server.url}", clock=HandClock(), environ={}, key=fetch)
        await outcome(model, ask())
        await outcome(model, ask())
        await model.close()
        assert [received.headers["authorization"] for received in server.requests] == ["Bearer one", "Bearer two"]


async def test_a_key_source_that_fails_is_told_by_kind_only():
    def broken() -> str:
        raise RuntimeError(CANARY)

    model = build_model("openai:gpt-5", clock=HandClock(), environ={}, key=broken)
    _, end = await outcome(model, ask())
    await model.close()
    assert (end.failure, "RuntimeError" in str(end)) == (FailureClass.AUTH, True)
    assert CANARY not in "".join(traceback.format_exception(end))


async def test_a_key_is_refused_to_another_host():
    key = key_from({"K": CANARY}, "K", parse_endpoint("https://one.example/v1"), optional=False)
    with pytest.raises(BadSettings, match=r"for one\.example, not for two\.example") as caught:
        await key.headers(Outgoing(endpoint=parse_endpoint("https://two.example/v1"), path="/x", body=b"", headers={}))
    assert CANARY not in str(caught.value)
    assert repr(key) == "ApiKey(K for one.example)"


AWS = {
    "AWS_ACCESS_KEY_ID": "AKIACANARY0011",
    "AWS_SECRET_ACCESS_KEY": "secret-canary-9c1d44",
    "AWS_SESSION_TOKEN": "token-canary-ee02",
}
SHAPES = {
    "anthropic_messages": ({}, {"x-api-key": CANARY}),
    "openai_chat": ({"auth": "api-key"}, {"api-key": CANARY}),
    "openai_responses": ({}, {"authorization": f"Bearer {CANARY}"}),
    "gemini": ({}, {"x-goog-api-key": CANARY}),
    "bedrock_converse": ({}, {"authorization": f"Bearer {CANARY}"}),
}


def echoing(received):
    """A server that answers with all the headers that it got, as a refusal or within a stream."""

    def reply(_body: bytes):
        told = " ".join(f"{name}={value}" for name, value in received()[-1].headers.items())
        family = next(name for name, served in FORMATS.items() if served.path.fullmatch(received()[-1].path.split("?")[0]))
        format_ = FORMATS[family].format
        if len(received()) % 2:
            headers, body = format_.refusal(401, "", told)
            return [
                Head(status=401, headers={"content-type": "application/json", **headers}),
                Send(body=json.dumps(body).encode()),
                End(),
            ]
        error = {"type": "throttlingException", "message": told, "code": 500, "status": told}
        return [Head(status=200, headers={"content-type": format_.content_type}), Send(body=format_.error_event(error)), End()]

    return reply


@pytest.mark.parametrize("family", sorted(SHAPES))
async def test_a_key_travels_in_the_shape_that_was_frozen_and_comes_back_in_no_text(family, caplog):
    caplog.set_level(logging.DEBUG)
    dialect, headers = SHAPES[family]
    options = ModelOptions(key_env="CANARY", dialect=dialect)
    texts = []
    servers: list[ModelServer] = []
    async with ModelServer(echoing(lambda: servers[0].requests)) as server:
        servers.append(server)
        for _ in range(2):
            model = build_model(f"{family}:m@{server.url}", clock=HandClock(), environ={"CANARY": CANARY}, options=options)
            _, end = await outcome(model, ask(PROMPT_CANARY))
            assert isinstance(end, ModelFailed)
            texts += [str(end), repr(end), str(end.details), str(end.provider_code), "".join(traceback.format_exception(end))]
            await model.close()
        for received in server.requests:
            assert headers.items() <= received.headers.items()
    assert "[key]" in "".join(texts)
    assert CANARY not in "".join(texts) + caplog.text


async def test_neither_half_of_a_signing_key_nor_its_token_comes_back_in_any_text(caplog):
    caplog.set_level(logging.DEBUG)
    options = ModelOptions(dialect={"auth": "sigv4"})
    texts = []
    servers: list[ModelServer] = []
    async with ModelServer(echoing(lambda: servers[0].requests)) as server:
        servers.append(server)
        for _ in range(2):
            model = build_model(f"bedrock_converse:m@{server.url}", clock=HandClock(), environ=AWS, options=options)
            _, end = await outcome(model, ask(PROMPT_CANARY))
            texts += [str(end), repr(vars(model)), repr(vars(model._transport)), "".join(traceback.format_exception(end))]
            await model.close()
        sent = server.requests[0].headers
    assert sent["x-amz-security-token"] == AWS["AWS_SESSION_TOKEN"]
    assert AWS["AWS_SECRET_ACCESS_KEY"] not in str(sent)
    told = "".join(texts) + caplog.text
    assert all(value not in told for value in AWS.values())
