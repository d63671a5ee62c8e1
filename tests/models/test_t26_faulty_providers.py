"""T26: 24 kinds of faulty provider and 50 places of a reset, in every family, each with the exact number of sends.

A stream is sent once whatever happens (MODEL-4): redelivery is decided above and recorded. What breaks is a failure with its
class, never an answer; what is only odd is the answer all the same.
"""

import asyncio
import json
from collections.abc import Callable, Iterable
from contextlib import asynccontextmanager

import pytest
from models_support import HandClock, VirtualClock, ask, in_virtual_time, outcome
from played import FOREVER, PlayedConnector
from wire_support import WIRES

from semel.adapters.models.catalog import ModelOptions, build_model
from semel.adapters.models.deadline import Limits
from semel.adapters.models.script import parse_script
from semel.adapters.models.script_steps import End, Head, Pause, Send, Silence, Step
from semel.core.values import Stop, Text, ToolCall
from semel.ports.model import Answer, FailureClass, ModelFailed
from semel.testing.formats import FORMATS
from semel.testing.model_server import ModelServer

pytestmark = pytest.mark.anyio
F = FailureClass
every_family = pytest.mark.parametrize("family", sorted(WIRES))
FRAMED = {"bedrock_converse"}
TEXT = "Grüße 🌧, it works."
CALLS = [{"name": "w", "args": {"n": 1}, "id": "same"}, {"name": "w", "args": {"n": 2}, "id": "same"}]
LIMITS = ModelOptions(limits=Limits(idle_ms=10_000, first_content_ms=30_000, progress_ms=40_000, total_ms=900_000))


def events(family: str, **answer) -> list[bytes]:
    script = parse_script(json.dumps({"answers": [{"chunk": 3, **answer}]}), "s")
    return FORMATS[family].format.events(script.answers[0], 0, "m")


def head(family: str, status: int = 200, **headers: str) -> Head:
    return Head(status=status, headers={"content-type": FORMATS[family].format.content_type, **headers})


def sent(family: str, *bodies: bytes, end: str = "complete") -> list[Step]:
    return [head(family), *(Send(body=body) for body in bodies), End(how=end)]


def whole(family: str) -> bytes:
    return b"".join(events(family, text=TEXT))


def refusal(family: str, status: int, **headers: str) -> list[Step]:
    usual, body = FORMATS[family].format.refusal(status, "", "m")
    said = Head(status=status, headers={"content-type": "application/json", **usual, **headers})
    return [said, Send(body=json.dumps(body).encode()), End()]


def redirect(to: str) -> list[Step]:
    return [Head(status=307, headers={"location": to}), End()]


def stop_of(family: str) -> list[bytes]:
    """An answer whose reason to stop is one that nobody knows."""
    names = {
        "openai_chat": (b'"finish_reason":"stop"', b'"finish_reason":"bored"'),
        "openai_responses": (b'"status":"completed","error"', b'"status":"bored","error"'),
        "anthropic_messages": (b'"stop_reason":"end_turn"', b'"stop_reason":"bored"'),
        "gemini": (b'"finishReason":"STOP"', b'"finishReason":"BORED"'),
        "bedrock_converse": (b"", b""),
    }
    if family in FRAMED:
        return events(family, text=TEXT, stop="other")
    old, new = names[family]
    return [event.replace(old, new) for event in events(family, text=TEXT)]


def mixed_line_ends(family: str) -> list[bytes]:
    """Each event with line ends of its own."""
    ends = (b"\n", b"\r\n", b"\r")
    made = [event.replace(b"\r\n", b"\n") for event in events(family, text=TEXT)]
    return [event.replace(b"\n", ends[at % 3]) for at, event in enumerate(made)]


def big_line(family: str) -> list[bytes]:
    return events(family, text="x" * (10 * 1024 * 1024), chunk=20 * 1024 * 1024)


def kept(family: str) -> bool:
    """For kinds that only events can have."""
    return family not in FRAMED


def drip(family: str) -> list[Step]:
    steps: list[Step] = [head(family)]
    for byte in (whole(family) * 40)[:120]:
        steps += [Pause(ms=9_000), Send(body=bytes([byte]))]
    return [*steps, Silence()]


def cut_call(family: str) -> list[bytes]:
    """The events of a call up to the middle of its arguments, or of the only event that holds them."""
    made = b"".join(events(family, chunk=100, calls=[{"name": "w", "args": {"city": "Paris and Zürich"}}]))
    return [made[: made.index(b"aris") + 2]]


Made = Callable[[str], Iterable[Step]]
# By kind: the steps, and what they end in: a class, a reason to stop, or the text of the answer.
KINDS: dict[str, tuple[Made, object]] = {
    "no bytes ever": (lambda f: [Pause(ms=FOREVER * 1000)], F.TIMEOUT),
    "headers then nothing": (lambda f: [head(f), Silence()], F.TIMEOUT),
    "a byte just in time, for ever": (drip, F.TIMEOUT),
    "keep-alives only": (lambda f: [head(f), Silence(ping_ms=9_000, ping=FORMATS[f].format.ping)], F.TIMEOUT),
    "empty deltas only": (
        lambda f: [head(f), Send(body=events(f, text=TEXT)[0]), Silence(ping_ms=9_000, ping=FORMATS[f].format.empty)],
        F.TIMEOUT,
    ),
    "no final event": (lambda f: sent(f, *events(f, text=TEXT)[:-1]), F.INTERRUPTED),
    "final event twice": (lambda f: sent(f, *events(f, text=TEXT), events(f, text=TEXT)[-1]), TEXT),
    "tool call cut mid-JSON": (lambda f: sent(f, *cut_call(f)), F.INTERRUPTED),
    "wrong content type": (
        lambda f: [Head(status=200, headers={"content-type": "text/html"}), Send(body=b"<html>sign in</html>"), End()],
        F.MALFORMED_OUTPUT,
    ),
    "200 with an error": (lambda f: sent(f, FORMATS[f].format.error_event(None)), F.SERVER_ERROR),
    "429 with Retry-After 10^9": (lambda f: refusal(f, 429, **{"retry-after": "1000000000"}), F.RATE_LIMIT),
    "500": (lambda f: refusal(f, 500), F.SERVER_ERROR),
    "redirect to another host": (
        lambda f: [Head(status=307, headers={"location": "http://127.0.0.1:1/"}), End()],
        F.INVALID_REQUEST,
    ),
    "redirect to itself": (lambda f: [Head(status=308, headers={"location": "/v1/x"}), End()], F.INVALID_REQUEST),
    "gzip bomb": (lambda f: [head(f, **{"content-encoding": "gzip"}), Send(body=b"\x1f\x8b" * 1000), End()], F.MALFORMED_OUTPUT),
    "one line of 10 MiB": (lambda f: sent(f, *big_line(f)), Stop.END_TURN),
    "mixed line ends": (lambda f: sent(f, *(mixed_line_ends(f) if kept(f) else [whole(f)])), TEXT),
    "a byte order mark": (lambda f: sent(f, b"\xef\xbb\xbf" * kept(f), whole(f)), TEXT),
    "UTF-8 split over chunks": (lambda f: sent(f, *(bytes([byte]) for byte in whole(f))), TEXT),
    "call ids that repeat": (lambda f: sent(f, *events(f, calls=CALLS)), Stop.TOOL_USE),
    "an unknown reason to stop": (lambda f: sent(f, *stop_of(f)), TEXT),
    "a reset": (lambda f: sent(f, whole(f)[: len(whole(f)) // 2], end="reset"), F.INTERRUPTED),
    "a body without its last chunk": (lambda f: sent(f, whole(f)[: len(whole(f)) // 2], end="no_last_chunk"), F.INTERRUPTED),
    "damage on the way": (lambda f: sent(f, whole(f).replace("🌧".encode(), b"\xf0\x9f\xff\xa7")), F.INTERRUPTED),
}


@every_family
async def test_every_kind_of_fault_has_its_outcome_and_is_sent_once(family):
    checked = 0
    for kind, (make, expected) in KINDS.items():
        clock = VirtualClock()
        connector = PlayedConnector(clock, lambda _body, make=make: make(family))
        url = f"{family}:m@http://127.0.0.1:9/v1"
        model = build_model(url, clock=clock, environ={}, options=LIMITS, connector=connector)
        shown, end = await in_virtual_time(clock, outcome(model, ask()))
        assert len(connector.requests) == 1, kind
        if isinstance(expected, FailureClass):
            assert isinstance(end, ModelFailed), (kind, end)
            assert end.failure is expected, (kind, end)
        elif isinstance(expected, Stop):
            assert end.stop is expected, (kind, end)
        else:
            assert isinstance(end, Answer), (kind, end)
            assert [b.text for b in end.blocks if isinstance(b, Text)] == [expected], kind
            assert "".join(shown) == expected
        if kind.startswith("call ids"):
            assert len([b for b in end.blocks if isinstance(b, ToolCall)]) == 2
        if kind.startswith("429"):
            assert end.retry_after_ms == 10**12  # never shortened; whether to wait is decided where the budget is known
        checked += 1
    print(f"{checked} kinds in {family}")
    assert checked == 24


async def test_asking_again_is_a_send_of_its_own_and_nobody_else_does_it():
    for family in sorted(WIRES):
        clock = VirtualClock()
        connector = PlayedConnector(clock, lambda _body, family=family: refusal(family, 500))
        model = build_model(f"{family}:m@http://127.0.0.1:9/v1", clock=clock, environ={}, connector=connector)
        request = model.render(ask())
        for times in range(1, 7):
            _, end = await in_virtual_time(clock, outcome(model, request))
            assert (end.failure, end.retryable, len(connector.requests)) == (F.SERVER_ERROR, True, times)
        assert len(set(connector.requests)) == 1  # the same bytes each time


@asynccontextmanager
async def cut_at(family: str, offsets: list[int], how: str):
    """A real server that ends each answer at the next offset."""
    body, left = whole(family), list(offsets)

    def reply(_body: bytes) -> list[Step]:
        return [head(family), Send(body=body[: left.pop(0)]), End(how=how)]

    async with ModelServer(reply) as server:
        yield server


@every_family
async def test_a_reset_at_50_places_over_real_sockets_is_never_an_answer(family):
    size = len(whole(family))
    offsets = sorted({round(size * n / 50) for n in range(50)})
    assert len(offsets) == 50
    assert max(offsets) < size
    taken = 0
    for how in ("reset", "no_last_chunk"):
        async with cut_at(family, offsets, how) as server:
            model = build_model(f"{family}:m@{server.url}", clock=HandClock(), environ={})
            for at in offsets:
                _, end = await outcome(model, ask())
                assert isinstance(end, ModelFailed), (how, at)
                assert end.failure is F.INTERRUPTED, (how, at, end)
                taken += 1
            await model.close()
            assert len(server.requests) == 50
    print(f"{taken} cuts of {family}, none taken for an answer")
    assert taken == 100


async def test_tls_that_ends_without_a_goodbye_is_interrupted(tmp_path):
    """A cut that looks like a clean end: no close_notify, no last chunk."""
    import ssl

    import httpx2
    from test_addresses import certificate

    pem, secret = certificate("localhost")
    for name, content in (("cert.pem", pem), ("key.pem", secret)):
        (tmp_path / name).write_bytes(content)
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    body = whole("openai_chat")
    requests = 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal requests
        requests += 1
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        writer.write(b"%x\r\n%s\r\n" % (len(body) // 2, body[: len(body) // 2]))
        await writer.drain()
        writer.transport.abort()

    trust = ssl.create_default_context(cafile=str(tmp_path / "cert.pem"))
    async with await asyncio.start_server(answer, "127.0.0.1", 0, ssl=serving) as server:
        url = f"https://localhost:{server.sockets[0].getsockname()[1]}/v1"
        connector = httpx2.AsyncHTTPTransport(verify=trust, trust_env=False)
        model = build_model(f"openai_chat:m@{url}", clock=HandClock(), environ={}, connector=connector)
        _, end = await outcome(model, ask())
        await model.close()
    assert (end.failure, requests) == (F.INTERRUPTED, 1)


async def test_an_event_or_frame_beyond_the_cap_is_refused_unread():
    for family, body in (
        ("gemini", b"data: " + b"x" * (17 * 1024 * 1024)),
        ("bedrock_converse", b"\x01\x90\x00\x00" + b"\x00" * 20),
    ):
        clock = VirtualClock()
        connector = PlayedConnector(clock, lambda _body, family=family, body=body: sent(family, body))
        model = build_model(f"{family}:m@http://127.0.0.1:9/v1", clock=clock, environ={}, connector=connector)
        _, end = await in_virtual_time(clock, outcome(model, ask()))
        assert end.failure in (F.MALFORMED_OUTPUT, F.INTERRUPTED)
        assert len(connector.requests) == 1
