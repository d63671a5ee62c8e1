"""One connection to a server: requests go out under ids of ours, and each reply finds its request or is dropped by name.

What a server sends can neither grow without bound nor take the place of an answer. A line has a longest length; a reply with an
unknown id, a second reply, one that comes behind the cancel of its call, and what is no message at all are counted and dropped,
and too many of them end the connection (T25).
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from semel.adapters.tools.execution import PIPE_GRACE_SECONDS
from semel.adapters.tools.mcp.messages import ID_BYTES_MAX, Message, RpcError, answer, notification, parse, request, rpc_error
from semel.adapters.tools.mcp.pipes import LineReader, LineWriter, Outgoing
from semel.adapters.tools.mcp.process import ServerProcess
from semel.adapters.tools.waits import undisturbed, within
from semel.core.values import JSON, printable
from semel.errors import CallNotSent, ToolFailed
from semel.ports.world import Clock

STRAYS_MAX = 1000
REPLIES_BYTES_MAX = 64 * 1024  # of answers to requests of the server that it does not read
PROGRESS_MAX = 1000  # texts of one call
PROGRESS_CHARS_MAX = 400
ABANDON_SECONDS = 1.0  # between telling a server that a call is cancelled and no longer waiting for its word
PATIENCE_SECONDS = 1.0  # between closing a server's input and asking it to end

UNKNOWN_ID, SECOND_REPLY, LATE_REPLY = "a reply with an unknown id", "a second reply to one request", "a reply behind a cancel"
NO_MESSAGE, UNSERVED = "a line that is no message", "a request while it did not read the replies"
LIST_CHANGED, PROGRESS = "notifications/tools/list_changed", "notifications/progress"


class ServerLost(ConnectionError):
    """The connection ended while a request was out: what became of it is not known (design 6)."""


class _Progress(msgspec.Struct, frozen=True):
    progressToken: msgspec.Raw = msgspec.Raw()  # noqa: N815 - the protocol's own name
    message: str = ""


@dataclass
class _Waiting:
    """A request that is out."""

    answered: "asyncio.Future[Message]"
    progress: Callable[[str], None] = field(default=lambda _text: None)
    told: int = 0


class Connection:
    """Speaks with one server process. `over` says why nothing can be asked of it any more, `strays` what was dropped."""

    def __init__(self, name: str, process: ServerProcess, clock: Clock, *, line_bytes_max: int) -> None:
        """`name` is that of the server, for what is told to people."""
        self.process = process
        self.over: str | None = None
        self.strays: Counter[str] = Counter()
        self.list_changed = False
        self._name = name
        self._clock = clock
        self._line_bytes_max = line_bytes_max
        self._last = 0
        self._pending: dict[bytes, _Waiting] = {}
        self._left: dict[bytes, _Waiting] = {}
        self._deaf = False
        self._reader = LineReader(process.stdout, line_bytes_max=line_bytes_max, take=self._take, too_long=self._too_long)
        self._writer = LineWriter(process.stdin, broken=self._not_read)
        self._watching = asyncio.ensure_future(self._watch())

    async def ask(self, method: str, params: JSON) -> msgspec.Raw:
        """The result of a request that acts on nothing. Raises CallNotSent in words for people if there is none."""
        key, waiting, _line = self._post(method, params, _Waiting(self._future()))
        try:
            reply = await waiting.answered
        except ServerLost as error:
            raise CallNotSent(f"it {self.over}{self.dropped()}") from error
        finally:
            self._forget(key)
        if reply.error:
            raise CallNotSent(f"it refused {method!r}: {_words(rpc_error(reply.error))}")
        return reply.result

    def tell(self, method: str, params: JSON = None) -> None:
        """Send a notification."""
        self._writer.send(notification(method, params))

    async def call(self, tool: str, arguments: dict[str, JSON], progress: Callable[[str], None]) -> msgspec.Raw:
        """Call a tool. Raises ToolFailed for an error reply, CallNotSent while no byte has left, ServerLost behind that.

        A cancel tells the server, waits for its word, and ends the process of a server that gives none, once no other call is
        out. Whatever comes behind the cancel is not the result.
        """
        params: JSON = {"name": tool, "arguments": arguments, "_meta": {"progressToken": self._last + 1}}
        key, waiting, line = self._post("tools/call", params, _Waiting(self._future(), progress))
        try:
            await asyncio.wait({waiting.answered})
        except asyncio.CancelledError:
            if not waiting.answered.done():
                await undisturbed(self._abandon(key, waiting, line))
                raise
        finally:
            self._forget(key)
            if self.over is not None or (self._deaf and not self._pending):
                await self.close(0)
        if waiting.answered.exception() is not None and not line.started:
            raise CallNotSent(str(waiting.answered.exception()))
        reply = waiting.answered.result()
        if reply.error:
            raise ToolFailed(f"the MCP server {self._name} refused the call: {_words(rpc_error(reply.error))}")
        return reply.result

    @property
    def closing(self) -> bool:
        """Whether it takes no more calls: it is over, or it goes when the calls that are out have come back."""
        return self.over is not None or self._deaf

    def dropped(self) -> str:
        """What was dropped, as the end of a sentence; empty if nothing was."""
        counted = ", ".join(f"{count} x {what}" for what, count in self.strays.items())
        return f"; it had sent {counted}" if counted else ""

    async def gone(self) -> None:
        """Wait until the calls that are out have come back or were given up, then end its processes."""
        while out := [waiting.answered for waiting in self._pending.values() if not waiting.answered.done()]:
            await asyncio.wait(out)
        await self.close(0)

    async def close(self, patience_seconds: float = PATIENCE_SECONDS) -> None:
        """Close the server's input, and end its processes; idempotent, and not cut short by a cancel."""
        self._fail("was closed")
        await self.process.end(patience_seconds)

    def _future(self) -> "asyncio.Future[Any]":
        return asyncio.get_running_loop().create_future()

    def _post(self, method: str, params: JSON, waiting: _Waiting) -> tuple[bytes, _Waiting, Outgoing]:
        if self.over is not None:
            raise CallNotSent(f"the MCP server {self._name} {self.over}")
        self._last += 1
        key = str(self._last).encode()
        self._pending[key] = waiting
        return key, waiting, self._writer.send(request(self._last, method, params))

    def _forget(self, key: bytes) -> None:
        waiting = self._pending.pop(key, None)
        if waiting is None or waiting.answered.cancel() or waiting.answered.cancelled():
            return
        waiting.answered.exception()  # where the caller was cancelled, nobody is missing it

    async def _abandon(self, key: bytes, waiting: _Waiting, line: Outgoing) -> None:
        """Give a call up. Raises CallNotSent if no byte of it had left."""
        self._forget(key)
        if self._writer.withdraw(line):
            raise CallNotSent(f"it was cancelled before the MCP server {self._name} took it")
        last_word = self._future()
        self._left[key] = _Waiting(last_word, waiting.progress)
        self.tell("notifications/cancelled", {"requestId": int(key), "reason": "the call was cancelled"})
        await within(ABANDON_SECONDS, [last_word], self._clock)
        self._deaf = self._deaf or not last_word.done()

    def _take(self, line: bytes) -> None:
        if not line.strip():
            return
        message = parse(line)
        if message is None:
            self._stray(NO_MESSAGE)
        elif message.is_reply:
            self._reply(message)
        elif message.method is None:
            self._stray(NO_MESSAGE)
        elif message.key:
            self._serve(message)
        elif message.method == LIST_CHANGED:
            self.list_changed = True
        elif message.method == PROGRESS:
            self._progress(message.params)

    def _reply(self, message: Message) -> None:
        key = message.key
        waiting = self._pending.get(key)
        if waiting is not None and not waiting.answered.done():
            waiting.answered.set_result(message)
        elif key in self._left:
            left = self._left[key]
            if not left.answered.done():
                left.answered.set_result(message)
            self._stray(LATE_REPLY, [left])
        else:
            ours = key.isdigit() and len(key) <= len(str(self._last)) and 0 < int(key) <= self._last
            self._stray(SECOND_REPLY if ours else UNKNOWN_ID)

    def _serve(self, message: Message) -> None:
        if len(message.key) > ID_BYTES_MAX or self._writer.waiting_bytes > REPLIES_BYTES_MAX:
            self._stray(UNSERVED)
        else:
            self._writer.send(answer(message))

    def _progress(self, params: msgspec.Raw) -> None:
        try:
            found = msgspec.json.decode(params, type=_Progress)
        except (msgspec.MsgspecError, RecursionError):
            return
        waiting = self._pending.get(bytes(found.progressToken))
        if waiting is not None and found.message and waiting.told < PROGRESS_MAX:
            waiting.told += 1
            waiting.progress(printable(found.message, limit=PROGRESS_CHARS_MAX))

    def _stray(self, what: str, concerns: Iterable[_Waiting] = ()) -> None:
        """Count what is dropped; the first of each kind is told beside the calls that it may concern."""
        self.strays[what] += 1
        if self.strays[what] == 1:
            for waiting in concerns or list(self._pending.values()):
                waiting.progress(f"the MCP server {self._name} sent {what}; it was dropped")
        if self.strays.total() >= STRAYS_MAX:
            self._fail(f"sent {STRAYS_MAX} things that fit no request")

    def _too_long(self) -> None:
        self._fail(f"sent a message of more than {self._line_bytes_max} bytes; allow more with `message_bytes_max`")

    def _not_read(self) -> None:
        if not self.process.exited.done():
            self._fail("closed its input")

    async def _watch(self) -> None:
        """Notice the end of the process, or of its output, and read first what it has left."""
        ends: list[asyncio.Future[Any]] = [self.process.exited, self._reader.ended]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        self._reader.drain()
        await within(PIPE_GRACE_SECONDS, ends, self._clock)
        self._fail(self.process.fate())

    def _fail(self, why: str) -> None:
        if self.over is not None:
            return
        self.over = why
        told = f"the MCP server {self._name} {why}{self.dropped()}"
        for waiting in self._pending.values():
            if not waiting.answered.done():
                waiting.answered.set_exception(ServerLost(told))
        self._reader.close()
        self._writer.close()
        self._watching.cancel()


def _words(error: RpcError) -> str:
    return f"{printable(error.message, limit=1000)} (code {error.code})"
