"""Exchanges over real sockets on 127.0.0.1: cuts, refusals, redirects, encodings, caps (B27, X12 to X19, A24)."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress

import msgspec
import pytest
from models_support import CASES, HandClock, after, ask, outcome

from semel.adapters.models.catalog import ModelOptions, build_model
from semel.adapters.models.deadline import Limits
from semel.adapters.models.script import parse_script
from semel.adapters.models.script_chat import chat_events
from semel.adapters.models.script_steps import End, Head, HoldHere, Send, Step
from semel.core.values import Stop, Text, ToolCall, Usage
from semel.ports.model import Answer, Delta, Exchange, FailureClass, ModelFailed, ModelPort
from semel.testing.model_server import ModelServer

pytestmark = pytest.mark.anyio
STREAM = Head(status=200, headers={"content-type": "text/event-stream"})


def model_at(url: str, options: ModelOptions | None = None, clock: HandClock | None = None) -> ModelPort:
    return build_model(f"openai_chat:m@{url}", clock=clock or HandClock(), environ={}, options=options)


@asynccontextmanager
async def raw_server(response: bytes, *others: bytes) -> AsyncIterator[str]:
    """Answers each request with the next of these bytes, the last ones for ever, and closes; yields the base URL."""
    left = [response, *others]

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length"))
        await reader.readexactly(length)
        writer.write(left.pop(0) if len(left) > 1 else left[0])
        with suppress(ConnectionError):  # a client that has read enough hangs up
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"


async def from_raw(response: bytes, options: ModelOptions | None = None) -> tuple[list[str], Answer | ModelFailed]:
    async with raw_server(response) as url:
        model = model_at(url, options)
        try:
            return await outcome(model, ask())
        finally:
            await model.close()


def http(body: bytes, *headers: str, status: str = "200 OK") -> bytes:
    lines = [f"HTTP/1.1 {status}", *headers, f"content-length: {len(body)}", "connection: close", "", ""]
    return "\r\n".join(lines).encode() + body


@pytest.mark.parametrize("how", ["reset", "no_last_chunk"])
async def test_b27_a_cut_stream_is_interrupted_and_only_the_finished_attempt_is_an_answer(how):
    cut, second = (CASES / "B27-cut.chat.sse").read_bytes(), (CASES / "B27-second.chat.sse").read_bytes()
    attempts: list[list[Step]] = [[STREAM, Send(body=cut), HoldHere(reached=None, release=None), End(how=how)]]
    attempts.append([STREAM, Send(body=second), End()])
    async with ModelServer(lambda _body: attempts.pop(0)) as server:
        model = model_at(server.url)
        request = model.render(ask())
        # The cut comes once its bytes have been read, so that a reset cannot overtake them.
        deltas, failed = await outcome(model, request, seen=server.release.set)
        assert (failed.failure, failed.retryable, deltas) == (FailureClass.INTERRUPTED, True, ["I will run it. "])
        assert failed.exchange.response_body_len == len(cut)
        shown, answer = await outcome(model, request)
        assert shown == ["Running. "]
        assert answer.blocks == (
            Text(text="Running. "),
            ToolCall(id="call_b27b", name="execute", arguments='{"language":"python","code":"print(1)"}'),
        )
        assert answer.usage == Usage(input=77, output=25, cache_read=0, reasoning=0)
        assert len({received.sha256 for received in server.requests}) == 1
        assert len(server.requests) == 2
        await model.close()


async def test_a_body_shorter_than_its_content_length_is_interrupted():
    second = (CASES / "B27-second.chat.sse").read_bytes()
    whole = http(second, "content-type: text/event-stream")
    _, end = await from_raw(whole[: -len(b"data: [DONE]\n\n\n")])
    assert end.failure is FailureClass.INTERRUPTED
    _, end = await from_raw(whole)
    assert isinstance(end, Answer)


async def test_plain_words_where_a_stream_should_be_are_no_api_response():
    _, end = await from_raw(http(b"upstream connect error", "content-type: text/plain"))
    assert end.failure is FailureClass.MALFORMED_OUTPUT
    assert "upstream connect error" in str(end)


def upstream(raw: object) -> dict:
    """As OpenRouter tells what its own provider refused: the words that matter are beside the message."""
    return {"error": {"message": "Provider returned error", "code": 400, "metadata": {"raw": raw, "provider_name": "P"}}}


STATUSES = [
    (400, {"error": {"message": "bad", "type": "invalid_request_error"}}, FailureClass.INVALID_REQUEST, False),
    (400, {"error": {"code": "context_length_exceeded", "message": "m"}}, FailureClass.CONTEXT_EXCEEDED, False),
    (400, {"error": {"type": "BadRequestError", "code": 400, "message": "This model's maximum context length is 9"}},
     FailureClass.CONTEXT_EXCEEDED, False),
    (400, {"error": {"type": "exceed_context_size_error", "n_ctx": 9}}, FailureClass.CONTEXT_EXCEEDED, False),
    (400, {"error": {"type": "content_filter", "message": "high risk"}}, FailureClass.CONTENT_FILTER, False),
    (400, upstream('{"error":{"code":400,"message":"Corrupted thought signature.","status":"INVALID_ARGUMENT"}}'),
     FailureClass.OPAQUE_STATE_REJECTED, False),
    (400, upstream('{"message":"messages.7.content.2: Invalid signature in thinking block"}'),
     FailureClass.OPAQUE_STATE_REJECTED, False),
    (400, upstream('{"error":{"message":"prompt is too long: 9 tokens > 8 maximum"}}'), FailureClass.CONTEXT_EXCEEDED, False),
    (400, upstream({"not": "a text"}), FailureClass.INVALID_REQUEST, False),
    (401, {"error": {"code": "invalid_api_key"}}, FailureClass.AUTH, False),
    (402, {"error": {"code": 402, "message": "no credits"}}, FailureClass.QUOTA_EXHAUSTED, False),
    (403, {"error": {"message": "region"}}, FailureClass.PERMISSION, False),
    (403, {"error": {"code": 403, "message": "m", "metadata": {"flagged_input": "x"}}}, FailureClass.CONTENT_FILTER, False),
    (404, {"error": {"code": "model_not_found"}}, FailureClass.INVALID_REQUEST, False),
    (404, {"detail": "Not Found"}, FailureClass.INVALID_REQUEST, False),
    (408, None, FailureClass.TIMEOUT, True),
    (409, None, FailureClass.SERVER_ERROR, True),
    (413, "<html>nginx</html>", FailureClass.REQUEST_TOO_LARGE, False),
    (422, {"detail": [{"msg": "field required"}]}, FailureClass.INVALID_REQUEST, False),
    (429, {"error": {"type": "tokens", "code": "rate_limit_exceeded"}}, FailureClass.RATE_LIMIT, True),
    (429, {"error": {"type": "insufficient_quota", "code": "insufficient_quota"}}, FailureClass.QUOTA_EXHAUSTED, False),
    (500, "Internal Server Error", FailureClass.SERVER_ERROR, True),
    (502, "<html>", FailureClass.SERVER_ERROR, True),
    (503, {"error": {"message": "Loading model", "type": "unavailable_error", "code": 503}}, FailureClass.OVERLOADED, True),
    (504, None, FailureClass.TIMEOUT, True),
    (529, None, FailureClass.OVERLOADED, True),
]  # fmt: skip


async def test_every_status_keeps_its_class_and_its_exchange_facts():
    script = {"answers": [{"fault": {"kind": "status", "status": status, "body": body}} for status, body, _, _ in STATUSES]}
    checked = 0
    async with ModelServer(script) as server:
        for index, (status, body, failure, retryable) in enumerate(STATUSES):
            model = model_at(server.url)  # with a clock of its own, so that no refusal holds up the next request
            _, end = await outcome(model, after(index))
            await model.close()
            assert (end.failure, end.retryable, end.exchange.http_status) == (failure, retryable, status), (status, body, end)
            checked += 1
    assert checked == 26


async def test_the_servers_word_on_when_to_try_again_is_carried():
    headers = {"retry-after": "7", "x-request-id": "req_1"}
    faults = [
        {"kind": "status", "status": 429, "headers": headers},
        {"kind": "status", "status": 400, "headers": {"x-should-retry": "true"}},
    ]
    async with ModelServer({"answers": [{"fault": fault} for fault in faults]}) as server:
        model = model_at(server.url)
        _, busy = await outcome(model, after(0))
        assert (busy.retry_after_ms, busy.retryable, busy.exchange.request_id) == (7000, True, "req_1")
        await model.close()
        model = model_at(server.url)
        _, odd = await outcome(model, after(1))
        assert (odd.failure, odd.retryable) == (FailureClass.INVALID_REQUEST, True)
        await model.close()


async def test_a_redirect_is_not_followed():
    async with ModelServer({"answers": [{"text": "x"}]}) as elsewhere:
        _, end = await from_raw(http(b"", f"location: {elsewhere.url}/chat/completions", status="307 Temporary Redirect"))
        assert (end.failure, end.retryable) == (FailureClass.INVALID_REQUEST, False)
        assert "redirect" in str(end)
        assert elsewhere.requests == []


@pytest.mark.parametrize("encoding", ["gzip", "br", "zstd", "deflate", "identity, gzip"])
async def test_an_encoded_body_is_refused_unread(encoding):
    _, end = await from_raw(http(b"\x1f\x8b" + b"x" * 100, "content-type: text/event-stream", f"content-encoding: {encoding}"))
    assert (end.failure, end.retryable, end.exchange.response_body_len) == (FailureClass.MALFORMED_OUTPUT, False, 0)


async def test_the_body_is_asked_for_unencoded_and_the_key_is_not_needed_on_loopback():
    async with ModelServer({"answers": [{"text": "x"}]}) as server:
        model = model_at(server.url)
        await outcome(model, ask())
        await model.close()
        headers = server.requests[0].headers
        assert headers["accept-encoding"] == "identity"
        assert headers["content-type"] == "application/json"
        assert "authorization" not in headers


async def test_a_server_gets_no_cookie_back():
    second = (CASES / "B27-second.chat.sse").read_bytes()
    said = Head(status=200, headers={"content-type": "text/event-stream", "set-cookie": "sid=1; Path=/"})
    async with ModelServer(lambda _body: [said, Send(body=second), End()]) as server:
        model = model_at(server.url)
        for _ in range(2):
            assert isinstance((await outcome(model, ask()))[1], Answer)
        await model.close()
        assert ["cookie" in received.headers for received in server.requests] == [False, False]


async def test_headers_are_read_up_to_100_kib_and_given_up_one_read_later():
    """The cap is that of the HTTP library, which looks at it after each read of 64 KiB."""
    second = (CASES / "B27-second.chat.sse").read_bytes()
    for size, taken in ((100 * 1024 - 200, True), (170 * 1024, False), (4 * 1024 * 1024, False)):
        for headers in ([f"x-long: {'x' * size}"], [f"x-{n}: {'x' * 1000}" for n in range(size // 1006)]):
            _, end = await from_raw(http(second, "content-type: text/event-stream", *headers))
            assert isinstance(end, Answer) is taken
            assert taken or (end.failure, end.exchange.http_status) == (FailureClass.INTERRUPTED, None)


async def test_a_response_over_the_cap_is_refused():
    options = ModelOptions(limits=Limits(response_bytes=10_000))
    async with ModelServer({"answers": [{"text": "x" * 20_000, "chunk": 100}]}) as server:
        model = model_at(server.url, options)
        _, end = await outcome(model, ask())
        await model.close()
    assert (end.failure, end.retryable) == (FailureClass.MALFORMED_OUTPUT, False)
    assert "10000 bytes" in str(end)


async def test_nobody_at_the_address_is_unreachable():
    async with raw_server(b"") as url:
        pass
    _, end = await outcome(model_at(url), ask())
    assert (end.failure, end.retryable, end.exchange) == (FailureClass.UNREACHABLE, True, Exchange())
    assert url.split("/")[2] in str(end)


async def test_a_server_that_hangs_up_without_a_word_is_interrupted():
    _, end = await from_raw(b"")
    assert (end.failure, end.retryable) == (FailureClass.INTERRUPTED, True)


async def test_a_peer_that_does_not_speak_tls_is_final():
    async def answer(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        model = model_at(url, ModelOptions(key_env="NONE"))
        _, end = await outcome(model, ask())
        await model.close()
    assert (end.failure, end.retryable) == (FailureClass.UNREACHABLE, False)


async def test_a_peer_that_does_not_speak_http_is_interrupted():
    _, end = await from_raw(b"SSH-2.0-OpenSSH_9.6\r\n")
    assert end.failure is FailureClass.INTERRUPTED


async def test_the_facts_of_an_exchange_are_those_of_the_bytes_that_came():
    import hashlib

    body = (CASES / "B27-second.chat.sse").read_bytes()
    _, end = await from_raw(http(body, "content-type: text/event-stream", "x-request-id: req_9"))
    assert end.exchange == Exchange(
        response_body_len=len(body),
        response_body_sha256=hashlib.sha256(body).hexdigest(),
        http_status=200,
        content_type="text/event-stream",
        request_id="req_9",
    )


async def test_a_stall_over_a_real_socket_ends_when_the_clock_passes_the_limit():
    clock = HandClock()
    async with ModelServer({"answers": [{"text": "Let me look at it", "fault": {"kind": "stall", "at": 450}}]}) as server:
        model = model_at(server.url, clock=clock)
        stream = model.stream(model.render(ask()))
        assert isinstance(await anext(stream), Delta)
        waiting = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0)
        clock.advance(119)
        assert not waiting.done()
        while not waiting.done():
            clock.advance(1)
            for _ in range(20):
                await asyncio.sleep(0)  # let whatever the new time wakes run
        with pytest.raises(ModelFailed, match="idle_ms"):
            await waiting
        assert 120 < clock.monotonic() < 123
        await model.close()


async def test_cancelling_over_a_real_socket_closes_it_at_once():
    async with ModelServer({"answers": [{"text": "Let me look at it", "fault": {"kind": "hold", "at": 300}}]}) as server:
        model = model_at(server.url)
        task = asyncio.ensure_future(outcome(model, ask()))
        await server.reached.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        while server.connections:
            await asyncio.sleep(0)  # the server sees the connection go although nobody released the hold
        await model.close()


async def test_a_connection_is_used_again_after_an_answer():
    async with ModelServer({"answers": [{"text": "one"}, {"text": "two"}]}) as server:
        model = model_at(server.url)
        await outcome(model, after(0))
        await outcome(model, after(1))
        assert server.accepted == 1
        await model.close()


async def test_an_answer_does_not_wait_for_a_server_that_leaves_its_connection_open():
    from models_support import VirtualClock, in_virtual_time

    def reply(_body: bytes) -> Iterator[Step]:
        yield STREAM
        yield Send(body=(CASES / "B27-second.chat.sse").read_bytes())
        yield HoldHere(reached=None, release=None)

    clock = VirtualClock()
    async with ModelServer(reply) as server:
        model = model_at(server.url, clock=clock)
        _, end = await in_virtual_time(clock, outcome(model, ask()))
        assert end.stop is Stop.TOOL_USE
        await model.close()


async def test_two_exchanges_of_one_model_do_not_mix():
    script = {"answers": [{"text": "a" * 500, "chunk": 1}, {"text": "b" * 500, "chunk": 1}]}
    async with ModelServer(script) as server:
        model = model_at(server.url)
        ends = await asyncio.gather(*(outcome(model, after(index % 2)) for index in range(8)))
        assert [end.blocks[0].text[0] for _, end in ends] == ["a", "b"] * 4
        assert all(len(end.blocks[0].text) == 500 for _, end in ends)
        await model.close()


async def cut_everywhere(step: int) -> tuple[int, int]:
    """Cut one stream at every `step`-th byte, in both ways, over real sockets: (cuts, answers among them)."""
    script = {
        "answers": [{"text": "Paying.", "calls": [{"name": "pay", "args": {"cents": 5}}], "usage": {"input": 1, "output": 1}}]
    }
    whole = b"".join(chat_events(parse_script(msgspec.json.encode(script), "s").answers[0], 0, "m"))
    cuts = answers = 0
    plan: list[tuple[int, str]] = [(at, how) for at in range(0, len(whole), step) for how in ("reset", "no_last_chunk")]
    queue = list(plan)

    def reply(_body: bytes) -> list[Step]:
        at, how = queue.pop(0)
        return [STREAM, Send(body=whole[:at]), End(how=how)]

    async with ModelServer(reply) as server:
        model = model_at(server.url)
        for at, _ in plan:
            _, end = await outcome(model, ask())
            cuts += 1
            answers += isinstance(end, Answer)
            assert isinstance(end, Answer) or end.failure is FailureClass.INTERRUPTED, (at, end)
        await model.close()
    return cuts, answers


async def test_a_stream_cut_at_any_byte_is_never_an_answer():
    cuts, answers = await cut_everywhere(23)
    print(f"{cuts} cuts over real sockets, {answers} taken for an answer")
    assert (cuts, answers) == (106, 0)


@pytest.mark.prove
@pytest.mark.timeout(300)
async def test_a_stream_cut_at_every_byte_is_never_an_answer():
    cuts, answers = await cut_everywhere(1)
    print(f"{cuts} cuts over real sockets, {answers} taken for an answer")
    assert (cuts, answers) == (2424, 0)
