"""The two ends of a server's pipes that are ours: lines of bounded length in, and a queue of bounded size out. No threads."""

import asyncio
import os
from collections import deque
from collections.abc import Callable

from semel.adapters.tools.capture import PipeReader


class LineReader(PipeReader):
    """Reads a pipe line by line. A line that is longer than `line_bytes_max` ends the reading, before more of it is kept."""

    def __init__(
        self, descriptor: int, *, line_bytes_max: int, take: Callable[[bytes], None], too_long: Callable[[], None]
    ) -> None:
        """Own `descriptor` from now on. `take` gets each line, and `too_long` is told of one over the bound."""
        super().__init__(descriptor, self._cut)
        self._line_bytes_max = line_bytes_max
        self._take_line = take
        self._too_long = too_long
        self._begun = bytearray()

    def close(self) -> None:
        """Stop reading; idempotent. A line without its end is cut, and says nothing."""
        super().close()
        self._begun.clear()

    def _cut(self, data: bytes) -> None:
        *lines, rest = data.split(b"\n")
        for line in lines:
            if not self._fits(line):
                return
            whole = bytes(self._begun + line) if self._begun else line
            self._begun.clear()
            self._take_line(whole)
            if self.ended.done():  # what was taken gave up reading
                return
        if self._fits(rest):
            self._begun += rest

    def _fits(self, more: bytes) -> bool:
        if len(self._begun) + len(more) <= self._line_bytes_max:
            return True
        self.close()
        self._too_long()
        return False


class Outgoing:
    """A line on its way. `started` once its first byte was handed over."""

    def __init__(self, line: bytes) -> None:
        self.rest = memoryview(line)
        self.started = False


class LineWriter:
    """Writes lines to a pipe whose reader may be slow or deaf: nothing waits, and what cannot leave stays in a queue."""

    def __init__(self, descriptor: int, *, broken: Callable[[], None]) -> None:
        """Own `descriptor` from now on. `broken` is told once where nobody reads any more."""
        self._descriptor = descriptor
        self._broken = broken
        self._queue: deque[Outgoing] = deque()
        self._loop = asyncio.get_running_loop()
        self._watching = False
        os.set_blocking(descriptor, False)

    @property
    def waiting_bytes(self) -> int:
        """How much could not leave yet."""
        return sum(len(line.rest) for line in self._queue)

    def send(self, line: bytes) -> Outgoing:
        """Hand a line over, as far as the pipe takes it now."""
        outgoing = Outgoing(line)
        if self._descriptor >= 0:
            self._queue.append(outgoing)
            self._flush()
        return outgoing

    def withdraw(self, outgoing: Outgoing) -> bool:
        """Take a line back of which no byte was handed over; False if it is too late for that."""
        if outgoing in self._queue and not outgoing.started:
            self._queue.remove(outgoing)
        return not outgoing.started

    def close(self) -> None:
        """Close the pipe; idempotent. What is in the queue does not leave."""
        if self._descriptor >= 0:
            self._watch(wanted=False)
            os.close(self._descriptor)
            self._descriptor = -1
        self._queue.clear()

    def _flush(self) -> None:
        while self._queue:
            first = self._queue[0]
            try:
                written = os.write(self._descriptor, first.rest)
            except BlockingIOError:
                break
            except OSError:  # nobody reads any more
                self.close()
                self._broken()
                return
            first.started = True
            first.rest = first.rest[written:]
            if not first.rest:
                self._queue.popleft()
        self._watch(wanted=bool(self._queue))

    def _watch(self, *, wanted: bool) -> None:
        if wanted and not self._watching:
            self._loop.add_writer(self._descriptor, self._flush)
        elif self._watching and not wanted:
            self._loop.remove_writer(self._descriptor)
        self._watching = wanted
