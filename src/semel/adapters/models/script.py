"""A model from a file: its answers, and which of them a request gets (design 14). Pure; the HTTP peer serves the same file.

    {"answers": [{"text": "...", "calls": [{"name": "pay", "args": {"cents": 5}}], "stop": "tool_use",
                  "usage": {"input": 10, "output": 3}, "chunk": 8, "delay_ms": 20, "expect": "invoice 17",
                  "thinking": "hm", "fault": {"kind": "status", "status": 429}}]}

Answer i serves the request that holds i assistant messages, so a client that is killed and asks again gets the same answer.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import msgspec

from semel.core.values import JSON, Frozen, Stop, ToolCall, Usage
from semel.errors import BadSettings


class ScriptedCall(Frozen, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A tool call: `args` as JSON, or `raw` as the exact text of the arguments. Without `id` it gets call_<answer>_<ordinal>."""

    name: str
    args: JSON = None
    raw: str | None = None
    id: str | None = None


class Status(Frozen, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="status"):
    """Refuse with an HTTP status. `body` is JSON, or text that is sent as it is."""

    status: int
    headers: dict[str, str] = msgspec.field(default_factory=dict)
    body: JSON = None
    times: int | None = 1


class Cut(Frozen, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="cut"):
    """Send `at` bytes of the body (half of it if null) and end: by a reset, or by closing without the last chunk."""

    at: int | None = None
    how: Literal["reset", "no_last_chunk"] = "reset"
    times: int | None = 1


class Stall(Frozen, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="stall"):
    """Send `at` bytes of the body, then nothing, with the connection open. `at` 0 is headers only."""

    at: int = 0
    times: int | None = 1


class Hold(Frozen, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="hold"):
    """Send `at` bytes (half if null), make the file `reached`, go on once `release` exists: a place to kill a client at."""

    at: int | None = None
    reached: str | None = None
    release: str | None = None
    times: int | None = 1


class Trickle(Frozen, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="trickle"):
    """Send the body `bytes` at a time with `every_ms` between."""

    bytes: int = 1
    every_ms: int = 0
    times: int | None = 1


class PingOnly(Frozen, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="ping_only"):
    """Send the events in the first `at` bytes, then only signs of life without content, every `every_ms`."""

    at: int = 0
    every_ms: int = 1000
    times: int | None = 1


class StreamError(Frozen, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="stream_error"):
    """Send the events in the first `at` bytes of a 200 (half if null), then an error object within the stream."""

    at: int | None = None
    error: JSON = None
    times: int | None = 1


class Empty(Frozen, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="empty"):
    """Send `count` events without content in front of the answer's second half: they are bytes, but no progress."""

    count: int = 10
    times: int | None = 1


class Garble(Frozen, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="garble"):
    """Change a quote at or behind `at` (half of the body if null) on its way: bad UTF-8 in events, a wrong checksum in frames."""

    at: int | None = None
    times: int | None = 1


Fault = Status | Cut | Stall | Hold | Trickle | PingOnly | StreamError | Empty | Garble


class ScriptedAnswer(Frozen, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One answer. `chunk` is the number of characters per piece, `expect` text that the newest messages must hold.

    `thinking` comes first, in the form that the wire format has for it, with state that wants to be sent back.
    A fault strikes the first `times` requests for this answer, every one if `times` is null; the next gets the answer.
    """

    text: str = ""
    thinking: str = ""
    calls: tuple[ScriptedCall, ...] = ()
    stop: Stop | None = None
    usage: Usage | None = None
    chunk: int = 64
    delay_ms: int = 0
    fault: Fault | None = None
    expect: str | tuple[str, ...] = ()


class Script(Frozen, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All answers, in order."""

    answers: tuple[ScriptedAnswer, ...]


class ScriptRefused(Exception):
    """The script has no answer for a request: `code` is script_exhausted or script_expectation."""

    def __init__(self, code: str, message: str) -> None:
        """`message` says which answer was asked for."""
        super().__init__(message)
        self.code = code


def parse_script(text: str | bytes, name: str) -> Script:
    """Read a script; `name` is used in errors. Raises BadSettings with the place of the mistake."""
    try:
        script = msgspec.json.decode(text, type=Script)
    except msgspec.DecodeError as error:
        raise BadSettings(f"the scripted model {name} cannot be read: {error}") from None
    for index, answer in enumerate(script.answers):
        if answer.chunk < 1 or answer.delay_ms < 0:
            raise BadSettings(f"the scripted model {name} cannot be read: answers[{index}] has a chunk or delay_ms out of range")
        for call in answer.calls:
            if call.raw is not None and call.args is not None:
                raise BadSettings(f"the scripted model {name} cannot be read: answers[{index}] has a call with both args and raw")
    return script


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What is read of a request: how many answers it holds, the model's name, and, if asked for, all behind the last answer."""

    answers: int
    model: str
    newest: Callable[[], JSON]


def choose(script: Script, asked: Asked) -> int:
    """The index of the answer to a request. Raises ScriptRefused."""
    index = asked.answers
    if index >= len(script.answers):
        raise ScriptRefused(
            "script_exhausted",
            f"the script has {len(script.answers)} answers, this request asks for number {index + 1}; add one to the script",
        )
    if expect := script.answers[index].expect:
        text = json.dumps(asked.newest(), ensure_ascii=False)
        for wanted in (expect,) if isinstance(expect, str) else expect:
            if json.dumps(wanted, ensure_ascii=False)[1:-1] not in text:
                raise ScriptRefused(
                    "script_expectation", f"answer {index + 1} of the script expects {wanted!r} in the newest messages"
                )
    return index


def strikes(answer: ScriptedAnswer, asked_before: int) -> Fault | None:
    """The fault that this request meets, if its answer was asked for `asked_before` times already."""
    fault = answer.fault
    return fault if fault is not None and (fault.times is None or asked_before < fault.times) else None


def calls_of(answer: ScriptedAnswer, index: int) -> tuple[ToolCall, ...]:
    """The tool calls of answer `index` as a model would issue them."""
    return tuple(
        ToolCall(
            id=f"call_{index}_{ordinal}" if call.id is None else call.id,
            name=call.name,
            arguments=_arguments(call),
        )
        for ordinal, call in enumerate(answer.calls)
    )


def stop_of(answer: ScriptedAnswer) -> Stop:
    """Why the answer stops, where the script leaves it out."""
    return answer.stop or (Stop.TOOL_USE if answer.calls else Stop.END_TURN)


def pieces(text: str, size: int) -> list[str]:
    """A text as it is streamed."""
    return [text[start : start + size] for start in range(0, len(text), size)]


def _arguments(call: ScriptedCall) -> str:
    if call.raw is not None:
        return call.raw
    return json.dumps({} if call.args is None else call.args, ensure_ascii=False, separators=(",", ":"))
