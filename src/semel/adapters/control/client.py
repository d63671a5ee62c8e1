"""The side that asks, and both sides together; implements `ports.control.Control`."""

import asyncio
import os
import secrets
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from semel.adapters.control.lines import ANSWER_BYTES_MOST, LEAVING, NOT_HELD, Bounds, Reply, decode_reply, encode_line, error_of
from semel.adapters.control.place import is_trusted, peer_is_us
from semel.adapters.control.server import Server
from semel.errors import UsageError
from semel.ports.control import PROTOCOL, Contact, Handler, Item, Leases, Leaving, NotReached, Request


class UnixControl:
    """Answers and asks over a Unix socket that only this user can reach."""

    def __init__(self, leases: Leases, bounds: Bounds | None = None) -> None:
        """`leases` says who holds what. Touches nothing yet."""
        self._leases, self._bounds = leases, bounds or Bounds()

    def contact(self, session: str) -> Contact | None:
        """Who holds a session, as its lease says."""
        return self._leases.contact(session)

    async def serve(self, handle: Handler) -> Server:
        """Answer with `handle`."""
        server = Server(handle, self._bounds)
        await server.start(os.environ)
        self._leases.answer_at(server.address)
        return server

    async def ask(self, contact: Contact, session: str, verb: str, args: Item) -> Item:
        """The answer of whoever holds the session."""
        async with self._asked(contact, session, verb, args) as (reader, name):
            try:
                async with asyncio.timeout(self._bounds.answer_seconds):
                    reply = await _next(reader, name)
            except TimeoutError:
                raise NotReached(f"{contact.owner} did not answer in {self._bounds.answer_seconds:.0f} s") from None
        if reply.ok is None:
            raise NotReached(f"{contact.owner} answered something else")
        return reply.ok

    async def stream(self, contact: Contact, session: str, verb: str, args: Item) -> AsyncGenerator[Item, None]:
        """The items of a stream."""
        async with self._asked(contact, session, verb, args) as (reader, name):
            while (reply := await _next(reader, name)).ok is None:
                if reply.item is not None:
                    yield reply.item

    @asynccontextmanager
    async def _asked(
        self, contact: Contact, session: str, verb: str, args: Item
    ) -> AsyncIterator[tuple[asyncio.StreamReader, str]]:
        """A connection over which a request was sent, to a process of this user."""
        line, name = self._request(contact, session, verb, args)
        path = Path(contact.address or "")
        if not path.is_absolute() or not is_trusted(path):
            raise NotReached(f"there is no socket of ours at {path}")
        try:
            reader, writer = await asyncio.open_unix_connection(path, limit=ANSWER_BYTES_MOST)
        except (OSError, ValueError) as error:
            raise NotReached(f"nobody answers at {path}: {error}") from None
        try:
            if not peer_is_us(writer.get_extra_info("socket")):
                raise NotReached(f"the process at {path} is another user's")
            try:
                writer.write(line)
                async with asyncio.timeout(self._bounds.stall_seconds):
                    await writer.drain()
            except (OSError, TimeoutError) as error:
                raise NotReached(f"the process at {path} does not listen: {error}") from None
            yield reader, name
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    def _request(self, contact: Contact, session: str, verb: str, args: Item) -> tuple[bytes, str]:
        if contact.fence is None or contact.lineage is None:
            raise NotReached("the lease does not say enough")
        name = secrets.token_hex(4)
        request = Request(
            v=PROTOCOL, id=name, verb=verb, session=session, fence=contact.fence, lineage=contact.lineage, args=args
        )
        line = encode_line(request)
        if len(line) > self._bounds.request_bytes:
            raise UsageError(
                f"a request to the process that runs the session has {self._bounds.request_bytes} bytes at most; "
                f"wait until it is done, or send less"
            )
        return line, name


async def _next(reader: asyncio.StreamReader, name: str) -> Reply:
    """The next line of the answer. Raises NotReached where it breaks off, and the error that it tells of."""
    try:
        line = await reader.readuntil()
    except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        raise NotReached(f"the answer broke off: {error}") from None
    reply = decode_reply(line)
    if reply is None or reply.id not in (name, ""):
        raise NotReached("the answer is none of this protocol")
    if reply.error is not None and reply.error.code == NOT_HELD:
        raise NotReached(reply.error.message)
    if reply.error is not None and reply.error.code == LEAVING:
        raise Leaving(reply.error.message)
    if reply.error is not None:
        raise error_of(reply.error)
    return reply
