"""A client that is slow, dead, in the way or hostile costs its own connection only (CONTROL-4, A23, A25, A26)."""

import asyncio
import json
import shutil
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from semel.adapters.control.client import UnixControl
from semel.adapters.control.lines import Bounds
from semel.adapters.control.place import RUNTIME_VARIABLE
from semel.adapters.control.server import Server
from semel.errors import KeyReuse, LogDamaged, SemelError
from semel.ports.control import Contact, Item, NotReached, Request

pytestmark = pytest.mark.anyio
SOON = 0.2
SMALL = Bounds(connections=4, request_bytes=4096, idle_seconds=SOON, stall_seconds=SOON, answer_seconds=SOON)
Conversation = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@pytest.fixture(autouse=True)
def short_names(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    place = tempfile.mkdtemp()
    monkeypatch.setenv(RUNTIME_VARIABLE, place)
    yield
    shutil.rmtree(place)


class Bench:
    """Leases that name a server, the server, and what it was asked."""

    def __init__(self, bounds: Bounds = SMALL) -> None:
        self.address: str | None = None
        self.asked: list[Request] = []
        self.left = asyncio.Event()
        self.given = 0
        self.control = UnixControl(self, bounds)
        self.server: Server

    def contact(self, _session: str) -> Contact | None:
        return Contact(owner="process 1", fence=7, lineage="ab", address=self.address)

    def answer_at(self, address: str | None) -> None:
        self.address = address

    async def handle(self, request: Request) -> Item | AsyncGenerator[Item, None]:
        self.asked.append(request)
        answers: dict[str, Callable[[], Awaitable[Item]]] = {"echo": self._echo, "never": self._never}
        if request.verb == "stream":
            return self._stream(**request.args)
        if request.verb == "refuse":
            raise KeyReuse("another payload")
        if request.verb == "damage":
            raise LogDamaged("wal.log", 3, 4, "it is torn")
        if request.verb == "bug":
            raise ZeroDivisionError("a bug")
        if request.verb == "gone":
            raise NotReached("not held")
        return await answers[request.verb]()

    async def _echo(self) -> Item:
        return {"said": self.asked[-1].args}

    async def _never(self) -> Item:
        await asyncio.Event().wait()
        return {}

    async def _stream(self, size: int = 1, count: int = 10**6, pause: bool = False) -> AsyncGenerator[Item, None]:
        try:
            for number in range(count):
                self.given = number + 1
                yield {"seq": number + 1, "text": "x" * size}
                await asyncio.sleep(0)
                if pause:
                    await asyncio.Event().wait()
        finally:
            self.left.set()

    async def ask(self, verb: str, **args: Any) -> Item:
        contact = self.contact("s")
        assert contact is not None
        return await self.control.ask(contact, "s", verb, args)

    async def connect(self) -> Conversation:
        return await asyncio.open_unix_connection(self.address, limit=2**24)


@asynccontextmanager
async def serving(bounds: Bounds = SMALL) -> AsyncGenerator[Bench, None]:
    bench, before = Bench(bounds), asyncio.all_tasks()
    bench.server = await bench.control.serve(bench.handle)
    try:
        yield bench
    finally:
        await bench.server.close()
        assert not Path(bench.server.address).exists()
        assert not asyncio.all_tasks() - before, "nothing of a server outlives it"


def line(**fields: Any) -> bytes:
    request = {"v": 1, "id": "1", "verb": "echo", "session": "s", "fence": 7, "lineage": "ab", "args": {}}
    return json.dumps({**request, **fields}).encode() + b"\n"


async def said(reader: asyncio.StreamReader) -> dict[str, Any]:
    return json.loads(await reader.readuntil())


async def test_a_request_and_its_answer_are_one_line_each_and_a_connection_takes_several() -> None:
    async with serving() as bench:
        reader, writer = await bench.connect()
        for name in ("1", "b"):
            writer.write(line(id=name, args={"text": name}))
            assert await said(reader) == {"id": name, "ok": {"said": {"text": name}}}
        writer.close()
        assert await bench.ask("echo", text="é\n") == {"said": {"text": "é\n"}}


async def test_a_refusal_is_raised_with_its_class_its_code_and_its_exit() -> None:
    async with serving() as bench:
        with pytest.raises(KeyReuse, match="another payload") as reused:
            await bench.ask("refuse")
        assert (reused.value.code, reused.value.exit) == ("key_reuse", 2)
        with pytest.raises(LogDamaged, match="damaged at byte 3") as damaged:
            await bench.ask("damage")
        assert damaged.value.exit == 6
        with pytest.raises(SemelError, match="a bug in semel: ZeroDivisionError") as bug:
            await bench.ask("bug")
        assert bug.value.code == "invariant_broken"
        with pytest.raises(NotReached, match="not held"):
            await bench.ask("gone")


HOSTILE = {
    "no_json": b"hello\n",
    "binary": bytes(range(256)).replace(b"\n", b"") + b"\n",
    "empty": b"\n",
    "no_object": b"[1]\n",
    "deep": b"[" * 2000 + b"]" * 2000 + b"\n",
    "nan": b'{"v":NaN}\n',
    "field_missing": b'{"v":1}\n',
    "wrong_type": line(fence="seven"),
    "newer_version": line(v=2),
    "lone_surrogate": b'{"v":1,"id":"\\ud800"}\n',
}


@pytest.mark.parametrize("hostile", HOSTILE.values(), ids=HOSTILE)
async def test_refuses_a23_what_is_no_request_in_words_and_answers_the_next_one(hostile: bytes) -> None:
    async with serving() as bench:
        reader, writer = await bench.connect()
        writer.write(hostile)
        refused = (await said(reader))["error"]
        assert (refused["code"], refused["exit"]) == ("usage", 2)
        assert bench.asked == []
        writer.write(line())
        assert "ok" in await said(reader)
        writer.close()


async def test_refuses_a25_a_line_that_is_too_long_and_ends_that_connection() -> None:
    async with serving() as bench:
        reader, writer = await bench.connect()
        writer.write(b"x" * (4 * SMALL.request_bytes))
        assert "4096 bytes at most" in (await said(reader))["error"]["message"]
        assert await reader.read() == b""
        writer.close()
        assert "said" in await bench.ask("echo")
        with pytest.raises(SemelError, match="4096 bytes at most"):
            await bench.ask("echo", text="x" * SMALL.request_bytes)


@pytest.mark.parametrize("begun", [b"", b'{"v":1,'])
async def test_refuses_a25_a_client_that_does_not_finish_a_request_is_left(begun: bytes) -> None:
    async with serving() as bench:
        reader, writer = await bench.connect()
        writer.write(begun)
        assert await asyncio.wait_for(reader.read(), 20) == b""
        writer.close()


async def test_refuses_a25_more_clients_than_it_bears_and_takes_others_when_some_have_gone() -> None:
    async with serving(Bounds(connections=4, idle_seconds=20)) as bench:
        waiting = [await bench.connect() for _ in range(4)]
        for reader, writer in waiting:
            writer.write(line())
            await said(reader)
        with pytest.raises(SemelError, match="as many clients as it may") as busy:
            await bench.ask("echo")
        assert busy.value.code == "session_busy"
        waiting[0][1].close()
        await waiting[0][1].wait_closed()
        while len(bench.server._clients) >= 4:
            await asyncio.sleep(0)
        assert "said" in await bench.ask("echo")
        for _, writer in waiting[1:]:
            writer.close()


async def test_refuses_a26_a_client_that_stops_reading_is_left_and_others_are_answered_meanwhile() -> None:
    async with serving() as bench:
        _, writer = await asyncio.open_unix_connection(bench.address, limit=1)  # it takes two bytes, and no more
        writer.write(line(verb="stream", args={"size": 2**16}))
        while not bench.left.is_set():
            assert "said" in await bench.ask("echo")
        assert bench.given < 100, "no more is kept for it than the buffers of a socket hold"
        writer.close()


async def test_a_client_that_leaves_a_stream_ends_it_though_nothing_comes() -> None:
    async with serving() as bench:
        reader, writer = await bench.connect()
        writer.write(line(verb="stream", args={"pause": True}))
        assert (await said(reader))["item"]["seq"] == 1
        writer.close()
        await asyncio.wait_for(bench.left.wait(), 20)


async def test_a_client_that_shuts_its_side_behind_a_command_is_answered() -> None:
    async with serving() as bench:
        reader, writer = await bench.connect()
        writer.write(line())
        writer.write_eof()
        assert "ok" in await said(reader)
        writer.close()


async def test_a_stream_ends_with_its_last_item_and_breaks_off_with_its_server() -> None:
    async with serving() as bench:
        contact = bench.contact("s")
        assert contact is not None
        async with aclosing(bench.control.stream(contact, "s", "stream", {"count": 3, "size": 70_000})) as items:
            assert [item["seq"] async for item in items] == [1, 2, 3]
        async with aclosing(bench.control.stream(contact, "s", "stream", {"pause": True})) as items:
            assert (await anext(items))["seq"] == 1
            await bench.server.close()
            with pytest.raises(NotReached):
                await anext(items)


async def test_an_owner_that_does_not_answer_is_not_waited_for() -> None:
    async with serving() as bench:
        with pytest.raises(NotReached, match="did not answer"):
            await bench.ask("never")


IMPOSTORS = {
    "silent": b"",
    "garbage": b"\xff\xfe\n",
    "another_protocol": b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "an_answer_to_another": b'{"id":"zzz","ok":{}}\n',
    "nothing_said": b'{"id":""}\n',
}


@pytest.mark.parametrize("words", IMPOSTORS.values(), ids=IMPOSTORS)
async def test_whatever_else_listens_at_the_address_is_as_good_as_nobody(words: bytes) -> None:
    async with serving() as bench:
        await bench.server.close()

        gone = asyncio.Event()

        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(words)
            with suppress(OSError):
                await reader.read()
            writer.close()
            gone.set()

        listener = await asyncio.start_unix_server(talk, bench.address)
        Path(bench.server.address).chmod(0o600)
        with pytest.raises(NotReached):
            await bench.ask("echo")
        listener.close()
        Path(bench.server.address).unlink()
        await asyncio.wait_for(gone.wait(), 20)
