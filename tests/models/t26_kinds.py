"""The 24 kinds of faulty provider of T26, in every family: what one does, what an exchange comes to, how often a run asks.

The kinds are those of the plan of faults, under its names and in its order; two more are kept because one exchange shows them.
"""

import gzip
import json
from collections.abc import Callable, Iterable
from functools import lru_cache
from itertools import cycle
from typing import NamedTuple

from played import FOREVER

from semel.adapters.models.bedrock_converse.frames import FrameParser, frame
from semel.adapters.models.catalog import ModelOptions
from semel.adapters.models.deadline import Limits
from semel.adapters.models.script import parse_script
from semel.adapters.models.script_steps import End, Head, Pause, Send, Silence, Step
from semel.core.values import Stop
from semel.ports.model import FailureClass
from semel.testing.formats import FORMATS

F = FailureClass
FRAMED = {"bedrock_converse"}
LINE_ENDS = (b"\n", b"\r\n", b"\r")
TEXT = "Grüße 🌧, it works."
CALLS = [{"name": "w", "args": {"n": 1}, "id": "same"}, {"name": "w", "args": {"n": 2}, "id": "same"}]
LIMITS = ModelOptions(limits=Limits(idle_ms=10_000, first_content_ms=30_000, progress_ms=40_000, total_ms=400_000))


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


def redirect(status: int, to: str) -> list[Step]:
    return [Head(status=status, headers={"location": to}), End()]


def stop_of(family: str) -> list[bytes]:
    """An answer whose reason to stop is one that nobody knows."""
    names = {
        "openai_chat": (b'"finish_reason":"stop"', b'"finish_reason":"bored"'),
        "openai_responses": (b'"status":"completed","error"', b'"status":"bored","error"'),
        "anthropic_messages": (b'"stop_reason":"end_turn"', b'"stop_reason":"bored"'),
        "gemini": (b'"finishReason":"STOP"', b'"finishReason":"BORED"'),
    }
    if family in FRAMED:
        return events(family, text=TEXT, stop="other")
    old, new = names[family]
    made = events(family, text=TEXT)
    assert any(old in event for event in made)
    return [event.replace(old, new) for event in made]


def mixed_line_ends(family: str) -> list[bytes]:
    """Each event with line ends of its own; in frames, which have no lines, around the value that each holds."""
    made = events(family, text=TEXT)
    if family in FRAMED:
        parsed = FrameParser().feed(b"".join(made))
        return [frame(one.headers, ends + one.payload + ends) for one, ends in zip(parsed, cycle(LINE_ENDS), strict=False)]
    plain = (event.replace(b"\r\n", b"\n") for event in made)
    return [event.replace(b"\n", ends) for event, ends in zip(plain, cycle(LINE_ENDS), strict=False)]


def big_line(family: str) -> list[bytes]:
    return events(family, text="x" * (10 * 1024 * 1024), chunk=20 * 1024 * 1024)


@lru_cache
def bomb(family: str) -> bytes:
    """A whole answer and 16 MiB behind it, in less than a hundredth of that."""
    return gzip.compress(whole(family) + bytes(16 * 1024 * 1024), compresslevel=1)


def drip(family: str) -> list[Step]:
    steps: list[Step] = [head(family)]
    for byte in (whole(family) * 40)[:120]:
        steps += [Pause(ms=9_000), Send(body=bytes([byte]))]
    return [*steps, Silence()]


def cut_call(family: str) -> list[bytes]:
    """The events of a call up to the middle of its arguments, or of the only event that holds them."""
    made = b"".join(events(family, chunk=100, calls=[{"name": "w", "args": {"city": "Paris and Zürich"}}]))
    return [made[: made.index(b"aris") + 2]]


class Kind(NamedTuple):
    """What a provider does, what one exchange comes to (a class, a reason to stop, or the text of the answer), and how often a
    run asks such a provider: where it never does anything else, and where it answers from the second time on.
    """

    make: Callable[[str], Iterable[Step]]
    end: object
    asked: int = 1
    asked_if_once: int = 1


AGAIN = (6, 2)  # once, and five redeliveries, which is the budget that a run has unless told otherwise
TWO_STEPS = (2, 2)
PLAYED: dict[str, Kind] = {
    "no bytes ever": Kind(lambda f: [Pause(ms=FOREVER * 1000)], F.TIMEOUT, *AGAIN),
    "headers then nothing": Kind(lambda f: [head(f), Silence()], F.TIMEOUT, *AGAIN),
    "1 byte just in time, for ever": Kind(drip, F.TIMEOUT, *AGAIN),
    "keep-alives only": Kind(lambda f: [head(f), Silence(ping_ms=9_000, ping=FORMATS[f].format.ping)], F.TIMEOUT, *AGAIN),
    "empty deltas": Kind(
        lambda f: [head(f), Send(body=events(f, text=TEXT)[0]), Silence(ping_ms=9_000, ping=FORMATS[f].format.empty)],
        F.TIMEOUT,
        *AGAIN,
    ),
    "no final event": Kind(lambda f: sent(f, *events(f, text=TEXT)[:-1]), F.INTERRUPTED, *AGAIN),
    "final event twice": Kind(lambda f: sent(f, *events(f, text=TEXT), events(f, text=TEXT)[-1]), TEXT),
    "tool call cut mid-JSON": Kind(lambda f: sent(f, *cut_call(f)), F.INTERRUPTED, *AGAIN),
    "wrong content type": Kind(
        lambda f: [Head(status=200, headers={"content-type": "text/html"}), Send(body=b"<html>sign in</html>"), End()],
        F.MALFORMED_OUTPUT,
        *AGAIN,
    ),
    "200 with an error": Kind(lambda f: sent(f, FORMATS[f].format.error_event(None)), F.SERVER_ERROR, *AGAIN),
    "429 with Retry-After 10^9": Kind(lambda f: refusal(f, 429, **{"retry-after": "1000000000"}), F.RATE_LIMIT),
    "500 loop": Kind(lambda f: refusal(f, 500), F.SERVER_ERROR, *AGAIN),
    "redirect to another host": Kind(lambda f: redirect(307, "http://127.0.0.1:1/"), F.INVALID_REQUEST),
    "redirect loop": Kind(lambda f: redirect(308, "/v1/x"), F.INVALID_REQUEST),
    "gzip bomb": Kind(lambda f: [head(f, **{"content-encoding": "gzip"}), Send(body=bomb(f)), End()], F.MALFORMED_OUTPUT),
    "10 MiB in a single line": Kind(lambda f: sent(f, *big_line(f)), Stop.END_TURN),
    "CRLF and LF mixed": Kind(lambda f: sent(f, *mixed_line_ends(f)), TEXT),
    "byte order mark": Kind(lambda f: sent(f, b"\xef\xbb\xbf", whole(f)), TEXT),
    "split UTF-8": Kind(lambda f: sent(f, *(bytes([byte]) for byte in whole(f))), TEXT),
    "duplicated call ids": Kind(lambda f: sent(f, *events(f, calls=CALLS)), Stop.TOOL_USE, *TWO_STEPS),
    "unknown finish reason": Kind(lambda f: sent(f, *stop_of(f)), TEXT),
    "reset": Kind(lambda f: sent(f, whole(f)[: len(whole(f)) // 2], end="reset"), F.INTERRUPTED, *AGAIN),
}
"""The kinds that one scripted reply makes; those of `OVER_TIME_AND_TLS` need a clock or a connection of their own."""
OVER_TIME_AND_TLS = ("TLS close without notify", "clock jump during back-off")
BESIDE: dict[str, Kind] = {
    "no last chunk": Kind(lambda f: sent(f, whole(f)[: len(whole(f)) // 2], end="no_last_chunk"), F.INTERRUPTED, *AGAIN),
    "damage on the way": Kind(lambda f: sent(f, whole(f).replace("🌧".encode(), b"\xf0\x9f\xff\xa7")), F.INTERRUPTED, *AGAIN),
}
"""Two more."""
IN_FRAMES = {"byte order mark": F.MALFORMED_OUTPUT}
"""What is otherwise where a body is frames: one that does not begin with a frame is no answer of the API."""


def kind_of(name: str, family: str) -> Kind:
    """A kind as it is in a family."""
    kind = {**PLAYED, **BESIDE}[name]
    return kind._replace(end=IN_FRAMES[name], asked=6, asked_if_once=2) if name in IN_FRAMES and family in FRAMED else kind
