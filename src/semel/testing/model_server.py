"""The scripted model over real HTTP, and an outside witness of every request (design 14).

    python -m semel.testing.model_server SCRIPT [--format FAMILY] [--journal FILE] [--port N]

prints the base URL, then serves the script on 127.0.0.1 until it is ended: in the wire format that a request's path asks for, or
in that of FAMILY only. Each request body is appended to the journal, one JSON line {n, sha256, body}, and synced *before* the
first byte of its answer leaves: whatever a client made of the answer, the journal shows what it asked. Faults are part of the
script, so a client can be killed, cut or kept waiting at a chosen byte. Where a format has a path that counts tokens, the answer
is a quarter of the bytes asked about.
"""

import argparse
import asyncio
import hashlib
import json
import os
import signal
import socket
import struct
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

from semel.adapters.models.script import Script, parse_script
from semel.adapters.models.script_steps import End, Head, HoldHere, Pause, ScriptServer, Send, Silence, Step
from semel.adapters.models.scripted import load_script
from semel.core.values import JSON, Frozen
from semel.errors import UsageError
from semel.testing.formats import FORMATS

_BODY_BYTES_MAX = 256 * 1024 * 1024
_POLL_SECONDS = 0.005
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)  # SO_LINGER on, for 0 seconds: close sends RST

Reply = Callable[[bytes], Iterable[Step]]


class Received(Frozen, frozen=True, kw_only=True):
    """One request as it arrived. `headers` have lower-case names."""

    n: int
    sha256: str
    body: bytes
    headers: dict[str, str]
    path: str = ""


class ModelServer:
    """A model server on 127.0.0.1. `async with` it; `url` is the base URL to give to a client.

    `script` is a Script, its JSON value, or a function from request body to the steps of the reply. `reached` is set at a hold
    without a file, which `release` ends. `requests`, `connections` (open now) and `accepted` (ever) are for a test to look at.
    """

    def __init__(
        self,
        script: "Script | Mapping[str, JSON] | Reply",
        *,
        journal: Path | None = None,
        port: int = 0,
        formats: Iterable[str] = tuple(FORMATS),
        counts: "Reply | None" = None,
    ) -> None:
        """`journal` is appended to; `port` 0 takes a free one. `counts` replies to requests that count tokens."""
        self._formats = tuple(formats)
        self._replies = _replies_of(script, self._formats)
        self._counts = counts
        self._journal, self._port = journal, port
        self._server: asyncio.Server | None = None
        self.connections: set[asyncio.Task[None]] = set()
        self.accepted = 0
        self._count = len(journal.read_bytes().splitlines()) if journal is not None and journal.exists() else 0
        self.requests: list[Received] = []
        self.reached, self.release = asyncio.Event(), asyncio.Event()

    @property
    def url(self) -> str:
        """The base URL, for `FAMILY:NAME@URL`."""
        return f"{self.origin}/v1"

    @property
    def origin(self) -> str:
        """The start of every URL of this server."""
        return f"http://127.0.0.1:{self._port}"

    async def __aenter__(self) -> Self:
        """Listen."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_exc: object) -> None:
        """Stop listening and drop every connection."""
        assert self._server is not None
        self._server.close()
        for task in self.connections:
            task.cancel()
        await asyncio.gather(*self.connections, return_exceptions=True)
        await self._server.wait_closed()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.connections.add(task)
        self.accepted += 1
        try:
            while await self._serve_one(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the client went away, or the server is being closed
        finally:
            self.connections.discard(task)
            writer.close()

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """One request; True if the connection can carry another."""
        start = await reader.readline()
        if not start.strip():
            return False
        method, path, _ = start.decode("latin-1").split(" ", 2)
        headers = await _read_headers(reader)
        body = await _read_body(reader, headers)
        steps = self._steps(method, path, body, headers)
        return await self._perform(iter(steps), reader, writer)

    def _steps(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> Iterable[Step]:
        for name in self._formats if method == "POST" else ():
            served = FORMATS[name]
            if served.path.fullmatch(path.split("?", maxsplit=1)[0]):
                self._witness(path, body, headers)
                return self._replies[name](body)
            if served.count_path is not None and served.count_path.fullmatch(path.split("?", maxsplit=1)[0]):
                self._witness(path, body, headers)
                return self._counts(body) if self._counts is not None else _json(200, {served.counted: len(body) // 4})
        return _json(404, {"error": {"message": f"no {method} {path} here", "type": "invalid_request_error"}})

    def _witness(self, path: str, body: bytes, headers: dict[str, str]) -> None:
        self._count += 1
        received = Received(n=self._count, sha256=hashlib.sha256(body).hexdigest(), body=body, headers=headers, path=path)
        if self._journal is not None:
            line = {"n": received.n, "sha256": received.sha256, "body": body.decode(errors="replace")}
            append_line(self._journal, line)
        self.requests.append(received)

    async def _perform(self, steps: Iterator[Step], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        for step in steps:
            if isinstance(step, Head):
                lines = [
                    f"HTTP/1.1 {step.status} ",
                    "transfer-encoding: chunked",
                    *(f"{k}: {v}" for k, v in step.headers.items()),
                ]
                writer.write("\r\n".join([*lines, "", ""]).encode("latin-1"))
            elif isinstance(step, Send):
                if step.body:
                    writer.write(b"%x\r\n%s\r\n" % (len(step.body), step.body))
            elif isinstance(step, Pause):
                await asyncio.sleep(step.ms / 1000)
            elif isinstance(step, HoldHere):
                await writer.drain()
                await self._hold(step, reader)
            elif isinstance(step, Silence):
                await _stay_silent(step, reader, writer)
            else:
                return await _end(step, writer)
            await writer.drain()
        return False

    async def _hold(self, step: HoldHere, reader: asyncio.StreamReader) -> None:
        if step.reached is not None:
            Path(step.reached).touch()  # noqa: ASYNC240  # a test server; the file system is local
        self.reached.set()
        while not (self._released(step) or reader.at_eof() or reader.exception()):  # noqa: ASYNC110  # a file has no event
            await asyncio.sleep(_POLL_SECONDS)

    def _released(self, step: HoldHere) -> bool:
        return self.release.is_set() if step.release is None else Path(step.release).exists()


def append_line(path: Path, value: JSON) -> None:
    """Append one JSON line to a witness file and sync it."""
    with path.open("ab") as file:
        file.write(json.dumps(value, ensure_ascii=False).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def serve_in_thread(
    script: "Script | Mapping[str, JSON] | Reply", *, journal: Path | None = None, port: int = 0
) -> Iterator[ModelServer]:
    """A ModelServer on a loop of its own, for tests and demos that are not async themselves."""
    started: list[ModelServer] = []
    failed: list[OSError] = []
    ready, loop = threading.Event(), asyncio.new_event_loop()
    stop = asyncio.Event()

    async def serve() -> None:
        async with ModelServer(script, journal=journal, port=port) as server:
            started.append(server)
            ready.set()
            await stop.wait()

    def run() -> None:
        try:
            loop.run_until_complete(serve())
        except OSError as error:
            failed.append(error)
        finally:
            ready.set()
            loop.close()

    thread = threading.Thread(target=run, name="model-server", daemon=True)
    thread.start()
    ready.wait()
    if failed:
        thread.join()
        raise failed[0]
    try:
        yield started[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()


def _replies_of(script: "Script | Mapping[str, JSON] | Reply", formats: Iterable[str]) -> dict[str, Reply]:
    """A reply function for each format; each counts for itself how often an answer was asked for."""
    if isinstance(script, Mapping):
        script = parse_script(json.dumps(script), "given in code")
    if isinstance(script, Script):
        return {name: ScriptServer(script, FORMATS[name].format).reply for name in formats}
    return dict.fromkeys(formats, script)


def _json(status: int, value: JSON) -> list[Step]:
    head = Head(status=status, headers={"content-type": "application/json"})
    return [head, Send(body=json.dumps(value).encode()), End()]


async def _read_headers(reader: asyncio.StreamReader) -> dict[str, str]:
    headers: dict[str, str] = {}
    while (line := await reader.readline()).strip():
        name, _, value = line.decode("latin-1").partition(":")
        headers[name.strip().lower()] = value.strip()
    return headers


async def _read_body(reader: asyncio.StreamReader, headers: Mapping[str, str]) -> bytes:
    if headers.get("transfer-encoding", "").lower() == "chunked":
        parts: list[bytes] = []
        while size := int((await reader.readline()).split(b";")[0], 16):
            parts.append(await reader.readexactly(min(size, _BODY_BYTES_MAX)))
            await reader.readline()
        await reader.readline()
        return b"".join(parts)
    return await reader.readexactly(min(int(headers.get("content-length", "0")), _BODY_BYTES_MAX))


async def _stay_silent(step: Silence, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Until the client goes away."""
    gone = asyncio.ensure_future(reader.read(1))
    try:
        while not gone.done():
            await asyncio.wait({gone}, timeout=None if step.ping_ms is None else step.ping_ms / 1000)
            if step.ping_ms is not None and not gone.done():
                writer.write(b"%x\r\n%s\r\n" % (len(step.ping), step.ping))
                await writer.drain()
    finally:
        gone.cancel()
        with suppress(asyncio.CancelledError, ConnectionError):
            await gone


async def _end(step: End, writer: asyncio.StreamWriter) -> bool:
    if step.how == "complete":
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True
    await writer.drain()
    if step.how == "reset":
        sock: socket.socket = writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        writer.transport.abort()
    return False


async def _main(script: Script, journal: Path | None, port: int, served: str | None) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    formats = tuple(FORMATS) if served is None else (served,)
    async with ModelServer(script, journal=journal, port=port, formats=formats) as server:
        sys.stdout.write(server.origin + ("/v1" if served is None else FORMATS[served].base) + "\n")
        sys.stdout.flush()
        await stop.wait()


def main(arguments: list[str] | None = None) -> None:
    """The command line of this module."""
    parser = argparse.ArgumentParser(prog="semel.testing.model_server", description="Serve a scripted model over HTTP.")
    parser.add_argument("script", help="JSON file with the answers")
    parser.add_argument("--format", choices=sorted(FORMATS), help="the wire family to speak; by default what a path asks for")
    parser.add_argument("--journal", type=Path, help="file that each request body is appended to")
    parser.add_argument("--port", type=int, default=0, help="port on 127.0.0.1; a free one by default")
    given = parser.parse_args(arguments)
    try:
        asyncio.run(_main(load_script(given.script), given.journal, given.port, given.format))
    except (UsageError, OSError) as error:
        parser.exit(2, f"semel: {error}\n")


if __name__ == "__main__":
    main()
