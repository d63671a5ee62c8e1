"""A server over real TLS that breaks off: no close_notify, no last chunk, as when a cut is to look like an end."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
from test_addresses import certificate

from semel.testing.formats import FORMATS

HOST = "localhost"


def contexts(place: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """For the server, and for a client that trusts it; the certificate is made in `place`."""
    pem, secret = certificate(HOST)
    for name, content in (("cert.pem", pem), ("key.pem", secret)):
        (place / name).write_bytes(content)
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(place / "cert.pem", place / "key.pem")
    return serving, ssl.create_default_context(cafile=str(place / "cert.pem"))


@asynccontextmanager
async def broken_off(
    family: str, body: bytes, *, breaks: Callable[[int], bool], serving: ssl.SSLContext, trust: ssl.SSLContext
) -> AsyncIterator[tuple[str, httpx2.AsyncHTTPTransport, list[bytes]]]:
    """Its URL, a connector that trusts it, and the bodies that arrived.

    `breaks` says which requests, counted from 0, get half of `body`; the others get all of it and a proper end.
    """
    requests: list[bytes] = []
    kind = FORMATS[family].format.content_type.encode()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        size = next(line.split(b":")[1] for line in head.lower().splitlines() if line.startswith(b"content-length"))
        requests.append(await reader.readexactly(int(size)))
        broken = breaks(len(requests) - 1)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: " + kind + b"\r\ntransfer-encoding: chunked\r\n\r\n")
        piece = body[: len(body) // 2] if broken else body
        writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        if not broken:
            writer.write(b"0\r\n\r\n")
        await writer.drain()
        if broken:
            writer.transport.abort()
        else:
            writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0, ssl=serving) as server:
        url = f"https://{HOST}:{server.sockets[0].getsockname()[1]}/v1"
        yield url, httpx2.AsyncHTTPTransport(verify=trust, trust_env=False), requests
