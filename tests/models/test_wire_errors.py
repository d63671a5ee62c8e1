"""Errors of every family: by machine code, then by status, by wording last; with the server's word on when (wire 0.6, B30)."""

import json

import pytest
from models_support import CASES, FIXTURES
from wire_support import WIRES, decoded, failure_of

from semel.adapters.models import openai_errors
from semel.adapters.models.anthropic_messages import errors as messages
from semel.adapters.models.bedrock_converse import errors as converse
from semel.adapters.models.decoding import Undecodable
from semel.adapters.models.gemini import errors as gemini
from semel.adapters.models.gemini.options import GeminiOptions
from semel.adapters.models.openai_chat.options import ChatOptions
from semel.adapters.models.openai_chat.options import Dialect as ChatDialect
from semel.adapters.models.server_error import failed
from semel.ports.model import Exchange, FailureClass, ModelFailed

F = FailureClass
REFUSALS = {
    "openai_chat": openai_errors.refusal,
    "openai_responses": openai_errors.refusal,
    "anthropic_messages": messages.refusal,
    "gemini": gemini.refusal,
    "bedrock_converse": converse.refusal,
}


def refused(family: str, status: int, body, headers: dict[str, str] | None = None) -> ModelFailed:
    """What a refusal with that status, body and headers comes to."""
    headers = headers or {}
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    error = REFUSALS[family](status, headers, raw)
    exchange = Exchange(http_status=status)
    return failed(error, exchange, table=WIRES[family].errors, where="s", headers=headers, now_ms=0)


def anthropic(kind: str, message: str = "m", **details) -> dict:
    return {"type": "error", "error": {"type": kind, "message": message, **({"details": details} if details else {})}}


MESSAGES = [
    (400, anthropic("invalid_request_error"), F.INVALID_REQUEST),
    (400, anthropic("invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum"), F.CONTEXT_EXCEEDED),
    (400, anthropic("invalid_request_error", "input length and `max_tokens` exceed context limit"), F.CONTEXT_EXCEEDED),
    (400, json.loads((CASES / "B22-400.json").read_text()), F.OPAQUE_STATE_REJECTED),
    (400, anthropic("invalid_request_error", "messages.1.content.0: Invalid `signature` in `thinking` block"),
     F.OPAQUE_STATE_REJECTED),
    (400, anthropic("invalid_request_error", "Invalid `data` in `redacted_thinking` block"), F.OPAQUE_STATE_REJECTED),
    (400, anthropic("invalid_request_error", "The block is bound to a different conversation."), F.OPAQUE_STATE_REJECTED),
    (400, anthropic("invalid_request_error", "Expected `thinking` or `redacted_thinking`, but found `tool_use`"),
     F.OPAQUE_STATE_REJECTED),
    (400, anthropic("invalid_request_error", "You have reached your specified API usage limits."), F.QUOTA_EXHAUSTED),
    (401, anthropic("authentication_error"), F.AUTH),
    (402, anthropic("billing_error"), F.QUOTA_EXHAUSTED),
    (403, anthropic("permission_error"), F.PERMISSION),
    (404, anthropic("not_found_error"), F.INVALID_REQUEST),
    (409, anthropic("conflict_error"), F.SERVER_ERROR),
    (413, anthropic("request_too_large"), F.REQUEST_TOO_LARGE),
    (413, b"<html>413</html>", F.REQUEST_TOO_LARGE),
    (429, anthropic("rate_limit_error"), F.RATE_LIMIT),
    (429, anthropic("rate_limit_error", error_code="enforced_spend_limit_reached"), F.QUOTA_EXHAUSTED),
    (429, anthropic("rate_limit_error", error_code="contract_spend_limit_reached"), F.QUOTA_EXHAUSTED),
    (429, anthropic("rate_limit_error", error_code="ramp_limit_exceeded"), F.RATE_LIMIT),
    (500, anthropic("api_error"), F.SERVER_ERROR),
    (504, anthropic("timeout_error"), F.TIMEOUT),
    (529, anthropic("overloaded_error"), F.OVERLOADED),
    (502, b"<html>bad gateway</html>", F.SERVER_ERROR),
]  # fmt: skip


def google(code: int, status: str, message: str = "m", *details: dict) -> dict:
    return {"error": {"code": code, "message": message, "status": status, "details": list(details)}}


PER_DAY = {
    "@type": "type.googleapis.com/google.rpc.QuotaFailure",
    "violations": [{"quotaId": "GenerateRequestsPerDayPerProject"}],
}
KEY_INVALID = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}
GEMINI = [
    (400, google(400, "INVALID_ARGUMENT"), F.INVALID_REQUEST),
    (400, google(400, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key."), F.AUTH),
    (400, google(400, "INVALID_ARGUMENT", "m", KEY_INVALID), F.AUTH),
    (400, google(400, "INVALID_ARGUMENT", "The input token count (9) exceeds the maximum number of tokens allowed (8)."),
     F.CONTEXT_EXCEEDED),
    (400, google(400, "INVALID_ARGUMENT", "Function call is missing a thought_signature in functionCall parts."),
     F.OPAQUE_STATE_REJECTED),
    (400, google(400, "INVALID_ARGUMENT", "Corrupted thought signature."), F.OPAQUE_STATE_REJECTED),
    (400, google(400, "FAILED_PRECONDITION"), F.PERMISSION),
    (401, google(401, "UNAUTHENTICATED"), F.AUTH),
    (403, google(403, "PERMISSION_DENIED"), F.PERMISSION),
    (404, google(404, "NOT_FOUND"), F.INVALID_REQUEST),
    (429, google(429, "RESOURCE_EXHAUSTED"), F.RATE_LIMIT),
    (429, google(429, "RESOURCE_EXHAUSTED", "m", PER_DAY), F.QUOTA_EXHAUSTED),
    (429, [google(429, "RESOURCE_EXHAUSTED")], F.RATE_LIMIT),
    (500, google(500, "INTERNAL"), F.SERVER_ERROR),
    (503, google(503, "UNAVAILABLE"), F.OVERLOADED),
    (504, google(504, "DEADLINE_EXCEEDED"), F.TIMEOUT),
    (502, b"<html>", F.SERVER_ERROR),
]  # fmt: skip
CONVERSE = [
    (429, "ThrottlingException:http://internal.amazon.com/coral/", "Too many", F.RATE_LIMIT),
    (429, "ModelNotReadyException", "m", F.OVERLOADED),
    (503, "ServiceUnavailableException", "m", F.OVERLOADED),
    (500, "InternalServerException", "m", F.SERVER_ERROR),
    (408, "ModelTimeoutException", "m", F.TIMEOUT),
    (424, "ModelErrorException", "m", F.SERVER_ERROR),
    (400, "ValidationException", "m", F.INVALID_REQUEST),
    (400, "ValidationException", "Input is too long for requested model.", F.CONTEXT_EXCEEDED),
    (400, "ValidationException", "Invalid `signature` in `thinking` block", F.OPAQUE_STATE_REJECTED),
    (400, "ServiceQuotaExceededException", "m", F.QUOTA_EXHAUSTED),
    (403, "AccessDeniedException", "m", F.PERMISSION),
    (403, "UnrecognizedClientException", "m", F.AUTH),
    (403, "ExpiredTokenException", "m", F.AUTH),
    (403, "InvalidSignatureException", "m", F.AUTH),
    (404, "ResourceNotFoundException", "m", F.INVALID_REQUEST),
]


def openai(message: str, code: str | int | None = None, **members) -> dict:
    return {"error": {"message": message, "code": code, **members}}


NOT_STORED = "Item with id 'rs_1' not found. Items are not persisted when `store` is set to false."
OPENAI = [
    (400, openai("m", "invalid_request_error"), F.INVALID_REQUEST),
    (400, openai("Content Exists Risk", "invalid_request_error", type="invalid_request_error"), F.CONTENT_FILTER),
    (400, openai("considered high risk", type="content_filter"), F.CONTENT_FILTER),
    (400, {"code": "x", "error": "This model's maximum prompt length is 131072 but the request contains 136973 tokens."},
     F.CONTEXT_EXCEEDED),
    (400, openai("maximum context length is 4096 tokens", 400, type="BadRequestError"), F.CONTEXT_EXCEEDED),
    (400, openai(NOT_STORED), F.OPAQUE_STATE_REJECTED),
    (404, openai(NOT_STORED), F.OPAQUE_STATE_REJECTED),
    (404, openai("No endpoints found", 404), F.INVALID_REQUEST),
    (401, openai("Key limit exceeded"), F.AUTH),
    (402, openai("Insufficient Balance"), F.QUOTA_EXHAUSTED),
    (403, openai("Key limit exceeded (monthly limit). Manage it using your settings", 403), F.QUOTA_EXHAUSTED),
    (403, openai("Country, region, or territory not supported", "unsupported_country_region_territory"), F.PERMISSION),
    (403, openai("flagged", 403, metadata={"flagged_input": "y"}), F.CONTENT_FILTER),
    (429, openai("You exceeded your current quota", "insufficient_quota"), F.QUOTA_EXHAUSTED),
    (500, openai("This model's maximum context length"), F.SERVER_ERROR),
    (502, openai("Provider returned error", 502), F.SERVER_ERROR),
]  # fmt: skip
RETRYABLE = {F.RATE_LIMIT, F.OVERLOADED, F.SERVER_ERROR, F.TIMEOUT}


@pytest.mark.parametrize(("status", "body", "failure"), MESSAGES)
def test_refusals_of_the_messages_api(status, body, failure):
    told = refused("anthropic_messages", status, body)
    assert (told.failure, told.retryable) == (failure, failure in RETRYABLE)


@pytest.mark.parametrize("family", ["openai_chat", "openai_responses"])
@pytest.mark.parametrize(("status", "body", "failure"), OPENAI)
def test_refusals_of_openai_and_of_servers_like_it(status, body, failure, family):
    told = refused(family, status, body)
    assert (told.failure, told.retryable) == (failure, failure in RETRYABLE)


@pytest.mark.parametrize(("status", "body", "failure"), GEMINI)
def test_refusals_of_gemini(status, body, failure):
    told = refused("gemini", status, body)
    assert (told.failure, told.retryable) == (failure, failure in RETRYABLE)


@pytest.mark.parametrize(("status", "name", "message", "failure"), CONVERSE)
def test_refusals_of_bedrock(status, name, message, failure):
    told = refused("bedrock_converse", status, {"message": message}, {"x-amzn-errortype": name})
    assert (told.failure, told.retryable) == (failure, failure in RETRYABLE)
    assert told.provider_code == name.partition(":")[0]
    capital = refused("bedrock_converse", status, {"Message": message}, {"x-amzn-errortype": name})
    assert message in str(capital)


def test_bedrock_tells_the_status_that_it_got_from_the_model_itself():
    body = {"message": "m", "originalStatusCode": 529, "originalMessage": "Overloaded"}
    told = refused("bedrock_converse", 424, body, {"x-amzn-errortype": "ModelStreamErrorException"})
    assert told.failure is F.OVERLOADED
    assert "Overloaded" in str(told)


def test_how_long_gemini_asks_to_wait_and_which_quota_it_was_stay_with_the_error():
    body = (FIXTURES / "gemini" / "error429.body.json").read_bytes()
    told = refused("gemini", 429, body)
    assert (told.failure, told.retry_after_ms, told.retryable) == (F.RATE_LIMIT, 31_500, True)
    assert [detail["@type"].rpartition(".")[2] for detail in told.details] == ["QuotaFailure", "Help", "RetryInfo"]


@pytest.mark.parametrize(
    ("delay", "wait_ms"),
    [
        ("31s", 31_000),
        ("0s", 0),
        ("0.1s", 100),
        ("0.000000001s", 1),
        ("-1s", None),
        ("1.0000000001s", None),
        ("1m", None),
        (7, None),
    ],
)
def test_the_durations_of_gemini(delay, wait_ms):
    info = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay}
    assert refused("gemini", 429, google(429, "RESOURCE_EXHAUSTED", "m", info)).retry_after_ms == wait_ms


def in_stream(family: str, data: bytes) -> FailureClass | None:
    with pytest.raises(Undecodable) as caught:
        decoded(family, data)
    return failure_of(family, caught.value)


def sse(value, event: str = "") -> bytes:
    return (f"event: {event}\n".encode() if event else b"") + b"data: " + json.dumps(value).encode() + b"\n\n"


def test_errors_inside_a_stream_of_the_messages_api():
    assert in_stream("anthropic_messages", sse({"error": {"type": "rate_limit_error", "message": "m"}})) is F.RATE_LIMIT
    assert in_stream("anthropic_messages", sse({"type": "overloaded_error", "message": "m"}, "error")) is F.OVERLOADED
    assert in_stream("anthropic_messages", sse({"error": {"code": 503, "message": "m"}})) is F.OVERLOADED
    assert in_stream("anthropic_messages", sse({"error": "boom"})) is F.SERVER_ERROR
    assert in_stream("anthropic_messages", sse(anthropic("invalid_request_error"), "error")) is F.INVALID_REQUEST


def test_an_error_behind_the_end_of_an_answer_is_an_error():
    """Some gateways end an answer in good order, so that clients do not hang, and then say that it failed (wire 1)."""
    whole = (FIXTURES / "anthropic_messages" / "text.response.sse").read_bytes()
    assert in_stream("anthropic_messages", whole + sse(anthropic("overloaded_error"), "error")) is F.OVERLOADED
    chat = (FIXTURES / "openai_chat" / "text.response.sse").read_bytes()
    assert in_stream("openai_chat", chat + sse({"error": {"message": "m", "code": 503}})) is F.OVERLOADED


def test_a_whole_document_in_the_place_of_a_stream_is_read_or_refused():
    bodies = {
        "anthropic_messages": anthropic("overloaded_error"),
        "openai_responses": {"error": {"message": "m", "code": "server_is_overloaded", "type": "overloaded_error"}},
        "gemini": [google(503, "UNAVAILABLE")],
    }
    for family, body in bodies.items():
        assert in_stream(family, json.dumps(body).encode()) is F.OVERLOADED
    for family in WIRES:
        for body in (b"null", b"{}", b"[]", b'"x"', b"<html>sign in</html>", b"[1,2]", b'{"a":'):
            assert in_stream(family, body) is None, (family, body)


def test_an_answer_that_is_no_stream_is_understood():
    call = {"city": "Paris"}
    bodies = {
        "anthropic_messages": {
            "content": [{"type": "text", "text": "hi"}, {"type": "tool_use", "id": "c", "name": "w", "input": call}],
            "stop_reason": "tool_use",
            "usage": {"input_tokens": 3, "output_tokens": 1},
        },
        "openai_responses": {
            "status": "completed",
            "output": [
                {"type": "message", "id": "m", "content": [{"type": "output_text", "text": "hi"}]},
                {"type": "function_call", "call_id": "c", "name": "w", "arguments": call},
            ],
            "usage": {"input_tokens": 3, "output_tokens": 1},
        },
        "gemini": {
            "candidates": [
                {
                    "content": {"parts": [{"text": "hi"}, {"functionCall": {"id": "c", "name": "w", "args": call}}]},
                    "finishReason": "STOP",
                }
            ],
            "usageMetadata": {"promptTokenCount": 3, "candidatesTokenCount": 1},
        },
        "bedrock_converse": {
            "output": {"message": {"content": [{"text": "hi"}, {"toolUse": {"toolUseId": "c", "name": "w", "input": call}}]}},
            "stopReason": "tool_use",
            "usage": {"inputTokens": 3, "outputTokens": 1},
        },
    }
    for family, body in bodies.items():
        for data in (json.dumps(body).encode(), b"\n" + json.dumps(body, indent=1).encode()):
            answer = decoded(family, data, 7)[1]
            assert (answer.blocks[0].text, answer.usage.input, answer.usage.output) == ("hi", 3, 1), family
            calls = [(b.id, b.name, b.arguments) for b in answer.blocks if hasattr(b, "arguments")]
            assert calls == [("c", "w", '{"city":"Paris"}')]
            assert str(answer.stop) == "tool_use"
    several = [bodies["gemini"], {"candidates": [{"content": {"parts": [{"text": "!"}]}}]}]
    assert decoded("gemini", json.dumps(several).encode())[1].blocks[-1].text == "!"


WITHOUT_DONE = ChatOptions(dialect=ChatDialect(done_required=False))
ENDED_BY_EOF = [
    ("gemini", {"candidates": [{"content": {"parts": [{"text": "hi"}]}, "finishReason": "STOP"}]}, GeminiOptions()),
    ("openai_chat", {"choices": [{"delta": {"content": "hi"}, "finish_reason": "stop"}]}, WITHOUT_DONE),
]


@pytest.mark.parametrize(("family", "chunk", "options"), ENDED_BY_EOF)
def test_part_of_an_event_behind_the_last_whole_one_shows_that_more_was_to_come(family, chunk, options):
    """Where the end of the body is the terminator (wire 4). Whatever the end of the part: only nothing at all is the end."""
    whole = sse(chunk)
    for end in (b"", b"\r\n", b": ping\n", b": ping\n\n", b"\n \t"):
        assert decoded(family, whole + end, options=options)[1].blocks[0].text == "hi", end
    more = sse(chunk)
    for cut in range(1, len(more)):
        with pytest.raises(Undecodable) as caught:
            decoded(family, whole + more[:cut], options=options)
        assert caught.value.failure is F.INTERRUPTED, cut
    for done in (b"data: [DONE]", b"data:[DONE]\r\n", b"data: [DONE]\n\n"):
        assert decoded(family, whole + done, options=options)[1].blocks[0].text == "hi", done


FINISHES = [
    ("SAFETY", "content_filter"), ("PROHIBITED_CONTENT", "content_filter"), ("IMAGE_SAFETY", "content_filter"),
    ("MAX_TOKENS", "max_tokens"), ("CONTINUATION", "other"), ("SOMETHING_NEW", "other"),
    ("OTHER", F.MALFORMED_OUTPUT), ("UNEXPECTED_TOOL_CALL", F.MALFORMED_OUTPUT), ("STOP", F.MALFORMED_OUTPUT),
    ("TOO_MANY_TOOL_CALLS", F.INVALID_REQUEST), ("MISSING_THOUGHT_SIGNATURE", F.OPAQUE_STATE_REJECTED),
    ("PUP_LIMITED_DISABLED", F.AUTH), ("FINISH_REASON_UNSPECIFIED", F.INTERRUPTED), (None, F.INTERRUPTED),
]  # fmt: skip


@pytest.mark.parametrize(("reason", "outcome"), FINISHES)
def test_finish_reasons_of_gemini(reason, outcome):
    data = sse({"candidates": [{"content": {"parts": []}, "finishReason": reason}]})
    if isinstance(outcome, FailureClass):
        assert in_stream("gemini", data) is outcome
    else:
        answer = decoded("gemini", data)[1]
        assert (str(answer.stop), answer.raw_stop) == (outcome, reason)


MESSAGE_STOPS = [
    ("end_turn", "end_turn"), ("stop_sequence", "end_turn"), ("max_tokens", "max_tokens"), ("refusal", "refusal"),
    ("model_context_window_exceeded", "max_tokens"), ("pause_turn", "other"), ("something_new", "other"),
]  # fmt: skip


@pytest.mark.parametrize(("reason", "stop"), MESSAGE_STOPS)
def test_stop_reasons_of_the_messages_api(reason, stop):
    data = sse({"type": "message_delta", "delta": {"stop_reason": reason}}) + sse({"type": "message_stop"})
    answer = decoded("anthropic_messages", data)[1]
    assert (str(answer.stop), answer.raw_stop) == (stop, reason)
    missing = sse({"type": "message_delta", "delta": {"stop_reason": None}}) + sse({"type": "message_stop"})
    assert in_stream("anthropic_messages", missing) is F.INTERRUPTED


RESPONSE_STOPS = [
    ({"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}, "max_tokens"),
    ({"status": "incomplete", "incomplete_details": {"reason": "content_filter"}}, "content_filter"),
    ({"status": "incomplete", "incomplete_details": {"reason": "steered"}}, "other"),
    ({"status": "incomplete"}, "max_tokens"),
    ({"status": "completed"}, "end_turn"),
    ({"status": "completed", "output": [{"type": "message", "content": [{"type": "refusal", "refusal": "no"}]}]}, "refusal"),
    ({"status": "cancelled"}, F.INTERRUPTED),
]


@pytest.mark.parametrize(("response", "outcome"), RESPONSE_STOPS)
def test_stops_of_the_responses_api(response, outcome):
    data = sse({"type": "response.completed", "response": response})
    if isinstance(outcome, FailureClass):
        assert in_stream("openai_responses", data) is outcome
    else:
        assert str(decoded("openai_responses", data)[1].stop) == outcome


@pytest.mark.parametrize(
    ("code", "failure"),
    [
        ("rate_limit_exceeded", F.RATE_LIMIT),
        ("server_error", F.SERVER_ERROR),
        ("invalid_prompt", F.CONTENT_FILTER),
        ("bio_policy", F.CONTENT_FILTER),
        ("context_length_exceeded", F.CONTEXT_EXCEEDED),
        ("data_residency_mismatch", F.PERMISSION),
        ("invalid_encrypted_content", F.OPAQUE_STATE_REJECTED),
        ("insufficient_quota", F.QUOTA_EXHAUSTED),
        ("new", F.SERVER_ERROR),
    ],
)
def test_failed_responses(code, failure):
    response = {"status": "failed", "error": {"code": code, "message": "m"}}
    assert in_stream("openai_responses", sse({"type": "response.failed", "response": response})) is failure
    assert in_stream("openai_responses", sse({"type": "response.failed", "response": {"status": "failed"}})) is F.SERVER_ERROR
