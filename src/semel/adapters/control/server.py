"""The side that answers: one listener, a task for each client, and a bound on all that a client can cost (CONTROL-4)."""

import asyncio
import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing

from semel.adapters.control.lines import LEAVING, NOT_HELD, Bounds, Refusal, Reply, decode_request, encode_line, refusal_of
from semel.adapters.control.place import make_socket, peer_is_us, remove
from semel.errors import InvariantBroken, SemelError, SessionBusy, StoreError, UsageError
from semel.ports.control import Handler, Item, Leaving, NotReached

_BACKLOG = 64


class Server:
    """Answers at one socket, from `start` to `close`."""

    def __init__(self, handle: Handler, bounds: Bounds) -> None:
        """Touches nothing yet."""
        self.address = ""
        self._handle, self._bounds = handle, bounds
        self._clients: set[asyncio.Task[None]] = set()
        self._listening: asyncio.Server | None = None

    async def start(self, environ: Mapping[str, str]) -> None:
        """Listen. Raises StoreError where there is no place for a socket."""
        listener, self._path = make_socket(environ)
        self._ours = self._path.lstat()
        self.address = os.fspath(self._path)
        try:
            self._listening = await asyncio.start_unix_server(
                self._accept, sock=listener, limit=self._bounds.request_bytes, backlog=_BACKLOG
            )
        except OSError as error:
            listener.close()
            remove(self._path, self._ours)
            raise StoreError(f"this process cannot be reached by others: {self.address}: {error.strerror}") from error

    async def close(self) -> None:
        """Stop listening, cut off whoever is there, and take the socket away."""
        if self._listening is None:
            return
        self._listening.close()
        self._listening = None
        remove(self._path, self._ours)
        for client in self._clients:
            client.cancel()
        if self._clients:
            await asyncio.wait(self._clients)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        client = asyncio.ensure_future(self._serve(reader, writer))
        self._clients.add(client)
        client.add_done_callback(self._clients.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if peer_is_us(writer.get_extra_info("socket")):
                await self._converse(reader, writer)
            writer.close()
            async with asyncio.timeout(self._bounds.stall_seconds):
                await writer.wait_closed()
        except (OSError, TimeoutError):
            pass  # it went away, or it does not read what it asked for
        finally:
            writer.transport.abort()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request after the other."""
        if len(self._clients) > self._bounds.connections:
            busy = SessionBusy("this process answers as many clients as it may at once; try again when some have gone")
            await self._send(writer, Reply(id="", error=refusal_of(busy)))
            return
        while True:
            try:
                async with asyncio.timeout(self._bounds.idle_seconds):
                    line = await reader.readuntil()
            except (asyncio.IncompleteReadError, TimeoutError):
                return
            except asyncio.LimitOverrunError:
                long = UsageError(f"a request has {self._bounds.request_bytes} bytes at most")
                await self._send(writer, Reply(id="", error=refusal_of(long)))
                return
            await self._answer(line, reader, writer)

    async def _answer(self, line: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        name = ""
        try:
            request = decode_request(line)
            name = request.id
            found = await self._handle(request)
            if not isinstance(found, dict):
                await self._stream(name, found, reader, writer)
                found = {}
            end = Reply(id=name, ok=found)
        except NotReached as error:
            code = LEAVING if isinstance(error, Leaving) else NOT_HELD
            end = Reply(id=name, error=Refusal(code=code, message=str(error), exit=SessionBusy.exit))
        except SemelError as error:
            end = Reply(id=name, error=refusal_of(error))
        except (OSError, TimeoutError):
            raise
        except Exception as error:  # noqa: BLE001  a bug is the client's to hear of, and ends nobody's run
            bug = InvariantBroken(f"an unexpected error, which is a bug in semel: {type(error).__name__}: {error}")
            end = Reply(id=name, error=refusal_of(bug))
        await self._send(writer, end)

    async def _stream(
        self, name: str, items: AsyncGenerator[Item, None], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Send items until there are no more, or the client says something or goes away, which both end it."""
        sending = asyncio.ensure_future(self._send_all(name, items, writer))
        hearing = asyncio.ensure_future(reader.read(1))
        try:
            await asyncio.wait({sending, hearing}, return_when=asyncio.FIRST_COMPLETED)
            if not sending.done():
                raise ConnectionResetError("the client has left the stream")
            sending.result()
        finally:
            for task in (sending, hearing):
                task.cancel()
            await asyncio.wait({sending, hearing})

    async def _send_all(self, name: str, items: AsyncGenerator[Item, None], writer: asyncio.StreamWriter) -> None:
        async with aclosing(items):
            async for item in items:
                await self._send(writer, Reply(id=name, item=item))

    async def _send(self, writer: asyncio.StreamWriter, reply: Reply) -> None:
        writer.write(encode_line(reply))
        async with asyncio.timeout(self._bounds.stall_seconds):
            await writer.drain()
