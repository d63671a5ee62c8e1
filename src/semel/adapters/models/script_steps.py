"""A script as a server: the steps of its reply to each request, in whatever wire format. Pure; performing them is elsewhere."""

import json
from collections.abc import Iterator
from typing import Literal, Protocol

from semel.adapters.models import script as source
from semel.adapters.models.script import Asked, Fault, Script, ScriptedAnswer, ScriptRefused
from semel.core.values import JSON, Frozen


class Head(Frozen, frozen=True, kw_only=True):
    """Status and headers; the first step of every reply."""

    status: int
    headers: dict[str, str]


class Send(Frozen, frozen=True, kw_only=True):
    """Bytes of the body."""

    body: bytes


class Pause(Frozen, frozen=True, kw_only=True):
    """Wait that long."""

    ms: int


class HoldHere(Frozen, frozen=True, kw_only=True):
    """Make the file `reached`, wait for the file `release`. Without file names, for whoever runs the server to say so."""

    reached: str | None
    release: str | None


class Silence(Frozen, frozen=True, kw_only=True):
    """Nothing more, the connection stays open; with `ping_ms`, `ping` that often."""

    ping_ms: int | None = None
    ping: bytes = b""


class End(Frozen, frozen=True, kw_only=True):
    """The end of the reply: complete, by a reset, or by closing a chunked body without its last chunk."""

    how: Literal["complete", "reset", "no_last_chunk"] = "complete"


Step = Head | Send | Pause | HoldHere | Silence | End


class Unreadable(Exception):
    """A request is not one of the format's."""


class Format(Protocol):
    """How a wire family's server reads a request and writes an answer."""

    @property
    def content_type(self) -> str:
        """Of a stream."""

    @property
    def ping(self) -> bytes:
        """A sign of life without content."""

    @property
    def empty(self) -> bytes:
        """An event that belongs to an answer but holds nothing of it."""

    def read(self, request: bytes) -> Asked:
        """Read a request. Raises Unreadable."""

    def events(self, answer: ScriptedAnswer, index: int, model: str) -> list[bytes]:
        """The events of one streamed answer, the terminal one last."""

    def error_event(self, error: JSON) -> bytes:
        """An error within a stream; `error` is the format's own object, or null for a failure of the server."""

    def refusal(self, status: int, code: str, message: str) -> tuple[dict[str, str], JSON]:
        """Headers and body of a refusal."""


class ScriptServer:
    """A script served in one format. Counts how often each answer was asked for, since a fault strikes that often."""

    def __init__(self, script: Script, format_: Format) -> None:
        """Nothing asked yet."""
        self._script, self._format = script, format_
        self._asked: dict[int, int] = {}

    def reply(self, request: bytes) -> Iterator[Step]:
        """The steps of the reply to one request body."""
        try:
            asked = self._format.read(request)
            index = source.choose(self._script, asked)
        except ScriptRefused as refused:
            return iter(self._refused(400, {}, None, code=refused.code, message=str(refused)))
        except Unreadable as problem:
            return iter(self._refused(400, {}, None, code="", message=str(problem)))
        answer = self._script.answers[index]
        fault = source.strikes(answer, self._asked.get(index, 0))
        self._asked[index] = self._asked.get(index, 0) + 1
        return self._steps(answer, fault, self._format.events(answer, index, asked.model))

    def _steps(self, answer: ScriptedAnswer, fault: Fault | None, events: list[bytes]) -> Iterator[Step]:
        if answer.delay_ms:
            yield Pause(ms=answer.delay_ms)
        if isinstance(fault, source.Status):
            yield from self._refused(fault.status, fault.headers, fault.body)
            return
        yield Head(status=200, headers={"content-type": self._format.content_type, "cache-control": "no-cache"})
        if fault is None:
            yield from (Send(body=event) for event in events)
            yield End()
            return
        yield from self._faulty(fault, events)

    def _faulty(self, fault: Fault, events: list[bytes]) -> Iterator[Step]:
        whole = b"".join(events)
        if isinstance(fault, source.Trickle):
            for start in range(0, len(whole), max(1, fault.bytes)):
                yield Send(body=whole[start : start + max(1, fault.bytes)])
                yield Pause(ms=fault.every_ms)
            yield End()
            return
        if isinstance(fault, source.Empty):
            half = len(events) // 2
            yield from (Send(body=event) for event in [*events[:half], *[self._format.empty] * fault.count, *events[half:]])
            yield End()
            return
        assert not isinstance(fault, source.Status)
        at = len(whole) // 2 if fault.at is None else min(fault.at, len(whole))
        if isinstance(fault, source.Garble):
            at = max(at, whole.find(b'"', at))
            yield Send(body=whole[:at] + b"\xff" + whole[at + 1 :])
            yield End()
            return
        if isinstance(fault, source.StreamError):
            yield Send(body=_events_within(events, at) + self._format.error_event(fault.error))
            yield End()
            return
        sent = _events_within(events, at) if isinstance(fault, source.PingOnly) else whole[:at]
        if sent:
            yield Send(body=sent)
        yield from self._broken(fault, whole[at:])

    def _broken(self, fault: source.Cut | source.Hold | source.Stall | source.PingOnly, rest: bytes) -> Iterator[Step]:
        if isinstance(fault, source.Cut):
            yield End(how=fault.how)
        elif isinstance(fault, source.Hold):
            yield HoldHere(reached=fault.reached, release=fault.release)
            yield Send(body=rest)
            yield End()
        elif isinstance(fault, source.PingOnly):
            yield Silence(ping_ms=fault.every_ms, ping=self._format.ping)
        else:
            yield Silence()

    def _refused(self, status: int, headers: dict[str, str], body: JSON, *, code: str = "", message: str = "") -> list[Step]:
        usual, said = self._format.refusal(status, code, message or f"scripted status {status}")
        body = said if body is None else body
        is_text = isinstance(body, str)
        content = body if is_text else json.dumps(body, ensure_ascii=False)
        kind = "text/plain; charset=utf-8" if is_text else "application/json"
        return [Head(status=status, headers={"content-type": kind, **usual, **headers}), Send(body=content.encode()), End()]


def _events_within(events: list[bytes], at: int) -> bytes:
    """The whole events in the first `at` bytes."""
    kept = b""
    for event in events:
        if len(kept) + len(event) > at:
            break
        kept += event
    return kept
