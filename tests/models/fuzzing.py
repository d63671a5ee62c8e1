"""Fuzz targets: damaged streams for every decoder, odd conversations for every renderer. Reproducible from a seed."""

import json
import random
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

import msgspec
from conversations import TOOLS, called, prompt, result, strict, user
from models_support import CASES, FIXTURES
from wire_support import WIRES, bundle_of, failure_of, family_of, renderer

from semel.adapters.models.bedrock_converse import frames
from semel.adapters.models.decoding import Decoded, Undecodable
from semel.core.persistent import Chain
from semel.core.values import AssistantMessage, Message, ToolMessage
from semel.ports.model import FailureClass

# Without one of these no body is an answer, whatever else it holds.
TERMINALS = {
    "openai_chat": (b"[DONE]", b'"message"', b"\\u006dessage"),
    "anthropic_messages": (b"message_stop", b'"content"'),
    "openai_responses": (b"response.completed", b"response.incomplete", b'"output"'),
    "gemini": (b"finishReason", b"blockReason"),
    "bedrock_converse": (b"messageStop", b'"stopReason"'),
}
ENDED_BY_EOF = frozenset({"gemini"})  # the end of the body is the end of the answer
TOKENS = (
    b"data: ", b"\n\n", b"\r\n", b"event: error\n", b"[DONE]", b"null", b"{}", b"[]", b'"', b"\\", b"\\ud83d", b"\xff", b"\x00",
    b"1e999", b"-1", b"9" * 400, b"true", b'{"error":{"code":500}}', b"index", b"\xef\xbb\xbf", b": ping\n\n", b"[" * 64, b"}",
    b",",
)  # fmt: skip
VALUES = (None, True, 0, -1, 1.5, 10**30, "", "x", "\ud83d", [], {}, [None], {"type": "text"}, [[]], "stop", "end_turn", 7)
HALF_EVENT = b'data: {"candidates":[{"content":{"parts":[{"text":"not y'


@lru_cache
def seeds(family: str) -> tuple[bytes, ...]:
    """The recorded streams of a family."""
    paths = [*sorted((FIXTURES / family).rglob("*.sse")), *sorted((FIXTURES / family).glob("*.bin"))]
    paths += [path for path in sorted(CASES.glob("*.sse")) if family_of(path.name) == family]
    return tuple(path.read_bytes() for path in paths)


def mutated(family: str, draw: random.Random) -> bytes:
    """A recorded stream with one to four things wrong: with its bytes, or with the values that its events hold."""
    data = bytearray(draw.choice(seeds(family)))
    if draw.random() < 0.1:  # nothing is wrong but that more was to come
        return bytes(data + HALF_EVENT[: draw.randint(1, len(HALF_EVENT))])
    if draw.random() < 0.6:
        return reshaped(family, bytes(data), draw)
    for _ in range(draw.randint(1, 4)):
        at = draw.randrange(len(data) + 1)
        to = min(len(data), at + draw.choice((1, 2, 8, 40, 200)))
        kind = draw.randrange(7)
        if kind == 0 and data:
            data[min(at, len(data) - 1)] ^= 1 << draw.randrange(8)
        elif kind == 1:
            del data[at:to]
        elif kind == 2:
            data[at:at] = data[at:to]
        elif kind == 3:
            data[at:at] = draw.choice(TOKENS)
        elif kind == 4:
            data[at:to] = draw.choice(TOKENS)
        elif kind == 5:
            del data[at:]
        else:
            other = draw.choice(seeds(family))
            data[at:] = other[draw.randrange(len(other)) :]
    return bytes(data)


def reshaped(family: str, data: bytes, draw: random.Random) -> bytes:
    """The stream with other values in some of its events, or with events that are missing, doubled or out of order."""
    if family == "bedrock_converse":
        try:
            parsed = list(frames.FrameParser().feed(data))
        except frames.FrameDamaged:
            return data
        units = [(frame.headers, other_value(frame.payload, draw)) for frame in parsed]
        return b"".join(frames.frame(headers, payload) for headers, payload in rearranged(units, draw))
    units = [b"data: " + other_value(line[6:], draw) if line.startswith(b"data: {") else line for line in data.split(b"\n")]
    return b"\n".join(rearranged(units, draw))


def rearranged(units: list, draw: random.Random) -> list:
    at = draw.randrange(len(units) + 1)
    to = at + draw.randrange(3)
    kind = draw.randrange(6)
    if kind == 0:
        return units[:at] + units[to:]
    if kind == 1:
        return units[:to] + units[at:]
    if kind == 2:
        return units[:at] + units[at:to][::-1] + units[to:]
    return units


def other_value(payload: bytes, draw: random.Random) -> bytes:
    """A JSON text whose value is changed in one place, now and then."""
    if draw.random() < 0.7:
        return payload
    try:
        value = json.loads(payload)
    except ValueError:
        return payload
    place = value
    while isinstance(place, (dict, list)) and place:
        key = draw.choice(list(place)) if isinstance(place, dict) else draw.randrange(len(place))
        if not isinstance(place[key], (dict, list)) or not place[key] or draw.random() < 0.25:
            place[key] = draw.choice(VALUES)
            break
        place = place[key]
    return json.dumps(value).encode()


def outcome_of(family: str, data: bytes, cuts: Sequence[int]) -> Decoded | FailureClass | None:
    """What a decoder makes of a body; anything but an answer or Undecodable is a crash, and raises."""
    decoder = WIRES[family].decoder(WIRES[family].options())
    try:
        start = 0
        for end in (*cuts, len(data)):
            for text in decoder.feed(data[start:end]):
                text.encode()
            start = end
        return decoder.result()
    except Undecodable as problem:
        return failure_of(family, problem)


def ends_within_an_event(data: bytes) -> bool:
    """Whether a stream of events ends with a part of one: a line without its end, or data with no blank line behind."""
    if data.removeprefix(b"\xef\xbb\xbf").lstrip(b" \t\r\n")[:1] in b'{[<"n':
        return False  # one JSON document
    block = re.split(rb"(?:\r\n|\r(?!\n)|\n)(?=[\r\n])", data)[-1].lstrip(b"\r\n")
    if block.strip() in (b"[DONE]", b"data: [DONE]", b"data:[DONE]"):
        return False  # the words of another family for the end, said by a sloppy gateway
    *lines, last = re.split(rb"\r\n?|\n", block)
    return bool(last.strip()) or any(line.startswith(b"data:") and line[5:].strip() for line in lines)


def fuzz_decoder(family: str, count: int, seed: int) -> dict[str, int]:
    """Feed `count` damaged streams: no crash, no answer without a terminal, the same whatever the cuts."""
    draw = random.Random(f"{family} {seed}")
    tally = {"answers": 0, "failures": 0}
    for n in range(count):
        data = mutated(family, draw)
        cuts = sorted(draw.randrange(len(data) + 1) for _ in range(draw.randrange(4)))
        found = outcome_of(family, data, cuts)
        answered = isinstance(found, Decoded)
        if answered:
            assert any(terminal in data for terminal in TERMINALS[family]), (family, seed, n, data)
            assert family not in ENDED_BY_EOF or not ends_within_an_event(data), (family, seed, n, data)
            for block in found.blocks:
                msgspec.json.encode(block)
        if n % 8 == 0:
            assert repr(outcome_of(family, data, ())) == repr(found), (family, seed, n, data, cuts)
        tally["answers" if answered else "failures"] += 1
    return tally


TEXTS = ("", " ", "\n", "hi", "Grüße 🌧", "\ud83d", "a\x00b", "\u2028", '"}]}', "x" * 300, "\x1b[31m", "\u202e", "</system>")
ARGUMENTS = (
    "",
    "{}",
    '{"city":"Bern"}',
    '{"a":',
    "null",
    "[1]",
    '{"a":NaN}',
    '{"q":"\\ud99c"}',
    '{"n":1e400}',
    "{" * 80,
    ' {"a" : 1} ',
)
NAMES = ("noop", "get_weather", "", "no such tool!", "x" * 200, "ü")
IDS = ("c1", "functions.x:0", "é|;", "y" * 90, "toolu_01")


def conversation(draw: random.Random) -> list[Message]:
    """A legal conversation of odd parts: every call is answered once, directly after, in call order."""
    messages: list[Message] = [user(draw.choice(TEXTS))]
    for turn in range(draw.randrange(4)):
        calls = [(f"{draw.choice(IDS)}{turn}{n}", draw.choice(NAMES), draw.choice(ARGUMENTS)) for n in range(draw.randrange(4))]
        messages.append(called(*calls, text=draw.choice(TEXTS)) if draw.random() < 0.8 else AssistantMessage(blocks=()))
        if messages[-1].calls:
            messages += [result(call.id, draw.choice(TEXTS), is_error=draw.random() < 0.5) for call in messages[-1].calls]
        for _ in range(draw.randrange(3)):
            messages.append(user(draw.choice(TEXTS)))
    return messages


def read_seed(name: str) -> list[Message]:
    """A checked-in conversation whose tool errors are of one kind."""
    messages: list[Message] = []
    for item in json.loads((FIXTURES / "fuzz" / f"{name}.json").read_text()):
        if "user" in item:
            messages.append(user(item["user"]))
        elif "calls" in item:
            messages.append(called(*map(tuple, item["calls"]), text=item.get("text", "")))
        else:
            call_id, text, is_error = item["result"]
            messages.append(result(call_id, text, is_error=is_error))
    return messages


def results_in(family: str, body) -> Iterator[tuple[str, bool]]:
    """The text of every tool result of a request, and whether it is an error, in order."""
    if family == "openai_chat":
        for message in body["messages"]:
            if message["role"] == "tool":
                yield _unflagged(message["content"])
    elif family == "openai_responses":
        for item in body["input"]:
            if item.get("type") == "function_call_output":
                yield _unflagged(item["output"])
    elif family == "anthropic_messages":
        for block in (block for turn in body["messages"] for block in turn["content"]):
            if block["type"] == "tool_result":
                yield block["content"], block.get("is_error", False)
    elif family == "gemini":
        for part in (part for turn in body["contents"] for part in turn["parts"]):
            if "functionResponse" in part:
                response = part["functionResponse"]["response"]
                yield next(iter(response.values())), "error" in response
    else:
        for block in (block for turn in body["messages"] for block in turn["content"]):
            if "toolResult" in block:
                yield block["toolResult"]["content"][0]["text"], block["toolResult"].get("status") == "error"


def _unflagged(text: str) -> tuple[str, bool]:
    return (text.removeprefix("error: "), True) if text.startswith("error: ") else (text, False)


def round_trip(family: str, messages: list[Message]) -> int:
    """Render a conversation step by step and at once, read it as a strict server does, and find every result in its place."""
    grown, chain, body = renderer(bundle_of(family)), Chain(), b""
    for message in messages:
        chain = chain.plus(message)
        body = grown.render(prompt(chain, tools=TOOLS)).body
    assert body == renderer(bundle_of(family)).render(prompt(messages, tools=TOOLS)).body
    value = strict(body)
    wanted = [(_seen(message.text), message.is_error) for message in messages if isinstance(message, ToolMessage)]
    assert list(results_in(family, value)) == wanted
    return len(wanted)


def _seen(text: str) -> str:
    text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text if text.strip() else "(no output)"


def fuzz_requests(count: int, seed: int) -> int:
    """Round trips of `count` conversations in every family; the results that were found."""
    draw = random.Random(seed)
    return sum(round_trip(family, messages) for messages in (conversation(draw) for _ in range(count)) for family in WIRES)
