"""Calls of tools that an MCP server serves: what is sent, what comes back, what is dropped by name, and when the server ends."""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from mcp_support import ACT, MARK, a_served_call, run_of, server
from tool_support import alive

from semel import Completed
from semel.adapters.tools.mcp import connection as connections
from semel.adapters.tools.mcp.server import RunServer
from semel.adapters.tools.mcp.source import McpServer
from semel.core.outcomes import NotSent, classify_exception
from semel.core.values import Effect
from semel.errors import CallNotSent, ToolFailed
from semel.ports.tool import File, ProcessMark
from tests.support.frames import frames_of

pytestmark = pytest.mark.anyio
ECHO = "mcp__box__echo"


async def opened(found: McpServer) -> RunServer:
    return found.open(await found.offered(), None)


async def called(served: RunServer, name: str = ACT, key: str = "key-1", progress: list[str] | None = None, **args: Any) -> Any:
    return await served.tools[name].run(args, a_served_call([] if progress is None else progress, key=key))


def strays_of(served: RunServer) -> dict[str, int]:
    assert served._connection is not None
    return dict(served._connection.strays)


async def until(path: Path) -> None:
    while not path.exists():
        await asyncio.sleep(0.005)


@pytest.mark.parametrize(
    ("mode", "kind", "count"),
    [
        ("a reply with an unknown id", connections.UNKNOWN_ID, 6),
        ("two replies to one id", connections.SECOND_REPLY, 1),
    ],
)
async def test_what_answers_nothing_is_counted_by_name_and_answers_no_later_call(mode: str, kind: str, count: int) -> None:
    served, progress = await opened(server(mode)), list[str]()
    assert await called(served, progress=progress) in ("this one", "first")
    assert await called(served, ECHO, "key-2", progress, text="mine") == "mine"
    assert strays_of(served) == {kind: count}
    assert progress == [f"the MCP server box sent {kind}; it was dropped"]
    await served.close()


async def test_a_reply_behind_the_cancel_is_counted_as_late_and_the_server_goes_on_serving(tmp_path: Path) -> None:
    served, progress, note = await opened(server("a reply after the cancel", tmp_path / "note")), list[str](), tmp_path / "note"
    running = asyncio.ensure_future(called(served, progress=progress))
    await until(note)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert progress == ["the MCP server box sent a reply behind a cancel; it was dropped"]
    assert await called(served, ECHO, "key-2", text="on") == "on"
    assert strays_of(served) == {connections.LATE_REPLY: 1}
    assert note.read_text().count("\n") == 1, "one process has served both"
    await served.close()


async def test_a_call_that_is_given_up_takes_no_other_call_with_it_and_the_server_ends_behind_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "ABANDON_SECONDS", 0.05)
    note, marks = tmp_path / "note", list[ProcessMark]()
    served = await opened(server("waits for the other call", note))
    first = asyncio.ensure_future(called(served))
    await until(note)
    second = asyncio.ensure_future(called(served, ECHO, "key-2", text="x"))
    await asyncio.sleep(0.05)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert alive(MARK), "the other call is still out"
    assert await second == "the other one"
    assert alive(MARK) == {}
    marks += [served._connection.process.mark] if served._connection is not None else []
    assert await called(served, ECHO, "key-3", text="again") == "again", "another server was started"
    assert served._connection is not None
    assert served._connection.process.mark.pid != marks[0].pid
    await served.close()
    assert alive(MARK) == {}


async def test_a_call_that_is_cancelled_before_the_server_is_ready_was_not_sent() -> None:
    specs = await server("answers").offered()
    served = server("start: says nothing").open(specs, None)
    running = asyncio.ensure_future(called(served))
    while not alive(MARK):
        await asyncio.sleep(0.005)
    waiting = asyncio.ensure_future(called(served, key="key-2"))
    await asyncio.sleep(0)
    for task in (running, waiting):
        task.cancel()
    for problem in await asyncio.gather(running, waiting, return_exceptions=True):
        assert isinstance(problem, CallNotSent)
        assert isinstance(classify_exception(problem), NotSent)
    assert alive(MARK) == {}


async def test_each_call_says_which_process_serves_it_before_it_is_sent() -> None:
    served, marks = await opened(server("answers")), list[ProcessMark]()
    for key in ("key-1", "key-2"):
        await served.tools[ACT].run({}, a_served_call([], key=key, spawned=marks.append))
    assert len(marks) == 2
    assert marks[0] == marks[1]
    assert marks[0].call_key == MARK
    await served.close()


async def test_a_call_whose_process_cannot_be_noted_is_not_sent(tmp_path: Path) -> None:
    def refuse(_mark: ProcessMark) -> None:
        raise OSError("the log is full")

    served, note = await opened(server("answers", tmp_path / "note")), tmp_path / "note"
    for _ in range(2):
        with pytest.raises(CallNotSent, match="the log is full"):
            await served.tools[ACT].run({}, a_served_call([], key="key-9", spawned=refuse))
    await called(served, ECHO, text="x")
    with pytest.raises(CallNotSent, match="cannot be noted: OSError: the log is full"):
        await served.tools[ACT].run({}, a_served_call([], key="key-9", spawned=refuse))
    assert not note.exists()
    await served.close()


async def test_a_call_of_which_no_byte_has_left_was_not_sent_and_one_that_is_half_out_is_in_doubt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "ABANDON_SECONDS", 0.05)
    served = await opened(server("never reads its input", tmp_path / "note"))
    first = asyncio.ensure_future(called(served))
    await until(tmp_path / "note")
    half = asyncio.ensure_future(called(served, ECHO, "key-2", text="x" * 300_000))
    behind = asyncio.ensure_future(called(served, ECHO, "key-3", text="y"))
    for _ in range(20):
        await asyncio.sleep(0)
    behind.cancel()
    with pytest.raises(CallNotSent, match="cancelled before the MCP server box took it"):
        await behind
    half.cancel()
    with pytest.raises(asyncio.CancelledError):
        await half
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert alive(MARK) == {}


async def test_a_call_to_a_server_that_has_closed_its_input_was_not_sent_and_the_next_one_starts_another() -> None:
    served = await opened(server("closes its input"))
    assert await called(served) == "done"
    with pytest.raises(CallNotSent, match="the MCP server box closed its input"):
        await called(served, ECHO, "key-2", text="x")
    assert await called(served, ECHO, "key-3", text="y") == "y"
    await served.close()


async def test_no_call_goes_out_while_it_is_not_known_what_a_changed_server_offers() -> None:
    source = server("changes its tools and is silent")
    served = source.open(list(await server("answers").offered()), None)
    assert await called(served) == "changed"
    source.declaration = msgspec.structs.replace(source.declaration, start_timeout=0.3)
    for _ in range(2):
        with pytest.raises(CallNotSent, match=r"did not say within 0\.3 s which tools it has"):
            await called(served, ECHO, "key-2", text="x")
    await served.close()


async def test_a_look_up_that_is_lost_is_an_error_and_the_run_goes_on_with_a_new_server(tmp_path: Path) -> None:
    steps = [{"calls": [{"name": name, "args": {}}]} for name in (ACT, ECHO)]
    result, told, _at = await run_of(tmp_path, server("exits before the reply", effect=Effect.READ), *steps, {"text": "done"})
    assert isinstance(result, Completed)
    assert told[0].startswith(
        "No result: the connection failed before a whole answer had come (ServerLost: the MCP server box ended"
    )
    assert told[1] == "None"


async def test_requests_of_the_server_are_answered_and_none_is_served_but_a_ping() -> None:
    served = await opened(server("pings and waits"))
    assert await called(served) == "{} -32601"
    await served.close()


async def test_a_server_that_asks_and_does_not_read_is_left_unanswered_in_bounded_memory(tmp_path: Path) -> None:
    served = await opened(server("pings and does not read", tmp_path / "note"))
    with pytest.raises(connections.ServerLost, match="1000 x a request while it did not read the replies"):
        await called(served)
    await served.close()


async def test_progress_is_told_beside_its_own_call_in_printable_words() -> None:
    served, progress = await opened(server("says how far it is")), list[str]()
    assert await called(served, progress=progress) == "done"
    assert progress == ["half [31mdone", "nearly"]
    await served.close()


async def test_every_kind_of_content_is_shown_or_named() -> None:
    served = await opened(server("gives everything"))
    text, image, audio, inner, blob, link, other = await called(served)
    png = b"\x89PNG\r\n\x1a\n"
    assert (text, image) == ("a\ufffdb", File(png, media_type="image/png"))
    assert (audio, inner, blob) == ("[a file that is not base64]", "inside", File(png))
    assert (link, other) == ("file:///c", "[a part of the unknown type 'hologram']")
    await served.close()


@pytest.mark.parametrize(
    ("mode", "said"),
    [
        ("an error reply", "the MCP server box refused the call: no such order (code -32602)"),
        ("an error result", "the tool reports an error"),
        ("a result that is none", "the tool ran, but its result is not what MCP says: ValidationError"),
    ],
)
async def test_an_error_that_the_server_tells_is_a_known_outcome(mode: str, said: str) -> None:
    served = await opened(server(mode))
    with pytest.raises(ToolFailed) as caught:
        await called(served)
    assert str(caught.value).startswith(said)
    assert caught.value.output == ("no such order" if mode == "an error result" else "")
    await served.close()


async def test_a14_the_server_gets_no_secret_and_no_open_file(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SHOP_TOKEN", "OPENAI_API_KEY"):
        monkeypatch.setenv(name, "secret")
    served = await opened(server("an environment", env=("SHOP_TOKEN",)))
    told = json.loads(await called(served))
    assert told.pop("SHOP_TOKEN") == "secret"
    assert told.pop("SEMEL_CALL_KEY") == MARK
    allowed = {"HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "LANG", "TMPDIR", "LC_CTYPE"}
    assert {name for name in told if not name.startswith("LC_")} <= allowed
    await served.close()
    files = await opened(server("open files"))
    assert await called(files) == "0 1 2 3", "its three, and the one that looks"
    await files.close()


@pytest.mark.parametrize("secret", ["s3cr3t", "s3cr3t" * 100, "-----BEGIN-----\nMIIEpAIBAAKCAQEA\n-----END-----"])
async def test_a13_what_a_server_was_handed_over_is_in_no_word_that_is_told_of_its_end(
    secret: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_TOKEN", secret)
    result, told, at = await run_of(tmp_path, server("prints its token and exits", env=("SHOP_TOKEN",), effect=Effect.READ))
    assert isinstance(result, Completed)
    assert "it had said: bad token: [SHOP_TOKEN]" in told[0]
    log = b"".join(frame.payload for frame in frames_of(at.store, "s"))
    assert not any(part.encode() in log for part in {secret[:20], *secret.split("\n")})


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc: it tells the open descriptors")
async def test_no_descriptor_and_no_process_is_left_of_a_run(tmp_path: Path) -> None:
    await run_of(tmp_path, server("answers"))
    before = set(os.listdir("/proc/self/fd"))
    for mode in ("answers", "exits before the reply", "1 GiB on one line"):
        result, _told, _at = await run_of(tmp_path, server(mode))
        assert isinstance(result, Completed) is (mode == "answers")
    assert set(os.listdir("/proc/self/fd")) == before
