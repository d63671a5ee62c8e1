"""What a child writes, read as it comes and kept in bounded memory (T25)."""

import asyncio
import codecs
import os
from collections.abc import Callable

from semel.core.values import clean_text

READ_BYTES = 1 << 16
PIPE_BYTES_MAX = 1 << 20  # what a pipe can hold; so much is read after the writer has ended


class Capture:
    """The first and the last bytes of a stream, each at most half of `bytes_max`."""

    def __init__(self, bytes_max: int) -> None:
        """Keep at most `bytes_max` bytes."""
        self._half = bytes_max // 2
        self._head = bytearray()
        self._tail = bytearray()
        self._count = 0

    def add(self, data: bytes) -> None:
        """Take the next bytes of the stream."""
        self._count += len(data)
        room = self._half - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        if len(self._tail) > 2 * self._half:
            del self._tail[: -self._half]

    @property
    def text(self) -> str:
        """Clean text, without newlines at its end; a notice stands where the middle was cut, between whole code points (B19)."""
        tail = bytes(self._tail[-self._half :])
        cut = self._count - len(self._head) - len(tail)
        if not cut:
            return clean_text((self._head + tail).decode("utf-8", "replace")).rstrip("\r\n")
        # Without `final`, a code point that the cut has left incomplete is held back instead of replaced.
        head = codecs.getincrementaldecoder("utf-8")("replace").decode(self._head)
        whole = next((start for start in range(min(4, len(tail))) if tail[start] & 0xC0 != 0x80), 0)
        rest = tail[whole:].decode("utf-8", "replace")
        return clean_text(f"{head}\n[... {cut} bytes cut ...]\n{rest}").rstrip("\r\n")


class PipeReader:
    """Reads a pipe until its end, without a thread. `ended` is done when every writer has closed it, or reading was given up."""

    def __init__(self, descriptor: int, take: Callable[[bytes], None]) -> None:
        """Own `descriptor`, the reading end of a pipe, from now on. `take` gets what comes, piece by piece."""
        self._descriptor = descriptor
        self._take = take
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[None] = self._loop.create_future()
        os.set_blocking(descriptor, False)
        self._loop.add_reader(descriptor, self._read)

    def drain(self) -> None:
        """Read what is in the pipe now."""
        for _ in range(PIPE_BYTES_MAX // READ_BYTES):
            if self.ended.done() or not self._read():
                return

    def close(self) -> None:
        """Stop reading; idempotent. A process that writes on gets SIGPIPE."""
        if self._descriptor >= 0:
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1
        if not self.ended.done():
            self.ended.set_result(None)

    def _read(self) -> bool:
        """Read once; whether there may be more."""
        try:
            data = os.read(self._descriptor, READ_BYTES)
        except BlockingIOError:
            return False
        if data:
            self._take(data)
        else:
            self.close()
        return not self.ended.done()  # what took it may have given up reading
