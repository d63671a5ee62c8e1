"""Server-sent events from bytes, as the WHATWG describes them, whatever the cuts between chunks (wire 7, B29).

Only CR, LF and CRLF end a line; one leading BOM is dropped; an event without a `data` line is not dispatched; an event that
the end of the stream cuts is dropped. `retry` is ignored: reconnecting is not ours to do. Lines without a known field name are
ignored too, but kept aside: some servers write an error as plain JSON between the events.
"""

import re
from collections.abc import Iterator

from semel.core.values import Frozen

_LINE_END = re.compile(rb"\r\n?|\n")
_BOM = b"\xef\xbb\xbf"
_IGNORED = frozenset({b"", b"id", b"retry"})
EVENT_BYTES_MAX = 16 * 1024 * 1024
STRAY_BYTES_MAX = 64 * 1024


class Event(Frozen, frozen=True, kw_only=True):
    """One event. `damaged` says that its bytes were not UTF-8 and that `data` therefore holds U+FFFD in their place."""

    type: str = "message"
    data: str = ""
    id: str = ""
    damaged: bool = False


class EventTooLarge(Exception):
    """An event or a line is longer than the parser's cap."""


class Parser:
    """An incremental parser: `feed` it the bytes as they come, it yields the events that they complete."""

    def __init__(self, *, event_bytes_max: int = EVENT_BYTES_MAX) -> None:
        """`event_bytes_max` bounds the bytes of one event, lines not yet ended included."""
        self._max = event_bytes_max
        self._line = bytearray()  # the start of a line whose end has not come
        self._size = 0  # bytes of the data lines of the current event
        self._data: list[bytes] = []
        self._type = b""
        self._id = b""
        self._first_line = True
        self._after_cr = False
        self.stray = bytearray()  # lines that are no field, up to a bound

    @property
    def pending(self) -> bytes:
        """What a body that ends here leaves behind: data that no blank line dispatched, and the start of a line."""
        return b"\n".join((*self._data, bytes(self._line)))

    def feed(self, chunk: bytes) -> Iterator[Event]:
        """Yield the events that end in `chunk`. Raises EventTooLarge."""
        if not chunk:
            return
        start = 1 if self._after_cr and chunk[0] == 0x0A else 0  # the LF of a CRLF that was cut in two
        self._after_cr = chunk[-1] == 0x0D
        for end in _LINE_END.finditer(chunk, start):
            line = chunk[start : end.start()]
            if self._line:
                line = bytes(self._line) + line
                self._line.clear()
            start = end.end()
            if (event := self._take(line)) is not None:
                yield event
        self._line += chunk[start:]
        self._bound(len(self._line))

    def _bound(self, more: int) -> None:
        if self._size + more > self._max:
            raise EventTooLarge(f"an event of the stream is longer than {self._max} bytes")

    def _take(self, line: bytes) -> Event | None:
        if self._first_line:
            self._first_line = False
            line = line.removeprefix(_BOM)
        if not line:
            return self._dispatch()
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._bound(len(value))
            self._size += len(value) + 1
            self._data.append(value)
        elif name == b"event":
            self._bound(len(value))
            self._type = value
        elif name == b"id" and b"\0" not in value:
            self._bound(len(value))
            self._id = value
        elif name not in _IGNORED and len(self.stray) + len(line) < STRAY_BYTES_MAX:
            self.stray += line + b"\n"
        return None

    def _dispatch(self) -> Event | None:
        lines, kind = self._data, self._type
        self._data, self._type, self._size = [], b"", 0
        if not lines:
            return None
        raw = lines[0] if len(lines) == 1 else b"\n".join(lines)
        data = raw.decode(errors="replace")
        return Event(
            type=kind.decode(errors="replace") or "message",
            data=data,
            id=self._id.decode(errors="replace"),
            damaged="\ufffd" in data and data.encode() != raw,
        )
