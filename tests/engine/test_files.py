"""Files in messages and in results: durable before they are named, equal after a crash, told in words where not kept (M5-M14)."""

import base64
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from semel import Agent, Completed, File, PreUser, Runtime, tool
from semel.adapters.memory.blobs import MemoryBlobs
from semel.adapters.memory.store import MemoryStore
from semel.core.media import MEDIA_BYTES_MOST, kind_of
from semel.core.outcomes import Completed as Outcome
from semel.core.values import Media, Text
from semel.engine.media import Gave, kept, outcome_of
from semel.errors import BadSettings, BlobDamaged, KeyReuse
from semel.faces.preview import preview_of
from semel.testing.ground import memory_ground
from semel.testing.model_server import ModelServer
from tests.engine.fakes import call

pytestmark = pytest.mark.anyio
PNG = b"\x89PNG\r\n\x1a\n" + b"not much of a picture"
PDF = b"%PDF-1.4 a bill"
TWO_STEPS = {"answers": [{"calls": [call("look")]}, {"text": "A dot."}]}


def in_base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def needs(ground: Any, kind: str) -> list[tuple[str, ...]]:
    """What the frames of these records name as needed."""
    frames = ground.store.read("s").frames
    return [tuple(frame.requires) for frame in frames if f'"type":"{kind}"'.encode() in frame.payload]


def agent_at(server: ModelServer, family: str = "openai_responses", **given: Any) -> Agent[Any]:
    return Agent("a", model=f"{family}:m@{server.url}", **given)


async def result_of(ground: Any, agent: Agent[Any], text: str = "look", **given: Any) -> Any:
    async with Runtime(agents=[agent], ground=ground) as runtime:
        return await (await runtime.session("s", agent=agent).send(text, **given)).result()


FAMILIES = ["anthropic_messages", "bedrock_converse", "gemini", "openai_chat", "openai_responses"]


@pytest.mark.parametrize("family", FAMILIES)
async def test_files_of_a_message_and_of_a_result_reach_the_model_and_their_frames_need_media(
    family: str, tmp_path: Path
) -> None:
    (tmp_path / "bill.pdf").write_bytes(PDF)

    @tool(effect="read")
    def look() -> list[str | File]:
        return ["what I see:", File(PNG, name="dot.png")]

    ground = memory_ground()
    async with ModelServer(TWO_STEPS) as server:
        agent = agent_at(server, family, tools=[look])
        result = await result_of(ground, agent, files=[tmp_path / "bill.pdf", File(PNG)])
        first, second = (received.body.decode() for received in server.requests)
    assert isinstance(result, Completed)
    assert (in_base64(PDF) in first, first.count(in_base64(PNG)), second.count(in_base64(PNG))) == (True, 1, 2)
    assert "what I see:" in second
    text_state = ("provider-text-state/v1",) if family in ("gemini", "openai_responses") else ()
    assert needs(ground, "run_started") == [("media-content/v1", *text_state)]
    assert needs(ground, "tool_result") == [("media-content/v1",)]
    assert in_base64(PNG).encode() not in b"".join(frame.payload for frame in ground.store.read("s").frames)


async def test_a_run_without_files_keeps_its_frames_ungated() -> None:
    ground = memory_ground()
    async with ModelServer({"answers": [{"text": "hi"}]}) as server:
        await result_of(ground, agent_at(server, "openai_chat"))
    assert needs(ground, "run_started") == [()]


async def test_a_file_is_durable_before_the_record_that_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    ground = memory_ground()
    async with ModelServer({"answers": [{"text": "hi"}]}) as server:
        agent = agent_at(server)
        async with Runtime(agents=[agent], ground=ground) as runtime:
            opened = MemoryStore.open

            async def watched(store: Any, session: str, **given: Any) -> Any:
                writer = await opened(store, session, **given)
                put, append = writer.blobs.put, writer.append

                async def appended(batch: Any, *, at_ms: int | None = None) -> Any:
                    order.append("append")
                    return await append(batch, at_ms=at_ms)

                def kept(content: bytes) -> str:
                    order.append("put")
                    return put(content)

                writer.append = appended  # type: ignore[method-assign]  # a witness in front of it
                writer.blobs.put = kept  # type: ignore[method-assign]  # as above
                return writer

            monkeypatch.setattr(MemoryStore, "open", watched)
            await (await runtime.session("s", agent=agent).send("look", files=[File(PNG)])).result()
    assert order[0] == "put"
    assert "append" in order


async def test_a_resumed_run_sends_the_same_bytes_and_the_preview_shows_them() -> None:
    ground = memory_ground()
    fault = {"kind": "hold"}
    async with ModelServer({"answers": [{"text": "A dot.", "fault": {**fault, "times": 1}}]}) as server:
        agent = agent_at(server)
        async with Runtime(agents=[agent], ground=ground, recover="manual", drain_seconds=0) as runtime:
            await runtime.session("s", agent=agent).send("look", files=[File(PNG)])
            await server.reached.wait()
        shown = preview_of(ground.store, "s", ground.clock).request.body
        server.release.set()
        async with Runtime(agents=[agent], ground=ground, recover="manual") as runtime:
            run = await runtime.session("s", agent=agent).resume()
            assert run is not None
            await run.result()
        first, second = server.requests
    assert first.body == second.body == shown
    assert in_base64(PNG) in shown.decode()


async def test_a_file_that_is_gone_stops_the_run_by_name_and_leaves_it_open_for_a_copy_of_it() -> None:
    ground = memory_ground()
    async with ModelServer({"answers": [{"text": "A dot.", "fault": {"kind": "hold", "times": 1}}]}) as server:
        agent = agent_at(server)
        async with Runtime(agents=[agent], ground=ground, recover="manual", drain_seconds=0) as runtime:
            await runtime.session("s", agent=agent).send("look", files=[File(PNG)])
            await server.reached.wait()
        server.release.set()
        blobs = ground.store.medium.logs["s"].blobs  # type: ignore[attr-defined]  # the memory store's
        (name,) = blobs
        lost = blobs.pop(name)
        async with Runtime(agents=[agent], ground=ground, recover="manual") as runtime:
            run = await runtime.session("s", agent=agent).resume()
            assert run is not None
            with pytest.raises(BlobDamaged):
                await run.result()
        assert len(server.requests) == 1
        blobs[name] = lost
        async with Runtime(agents=[agent], ground=ground, recover="manual") as runtime:
            run = await runtime.session("s", agent=agent).resume()
            assert run is not None
            assert isinstance(await run.result(), Completed)


async def test_the_same_key_with_another_file_is_another_message() -> None:
    ground = memory_ground()
    async with ModelServer({"answers": [{"text": "hi"}]}) as server:
        agent = agent_at(server)
        async with Runtime(agents=[agent], ground=ground) as runtime:
            session = runtime.session("s", agent=agent)
            run = await session.send("look", key="k", files=[File(PNG)])
            await run.result()
            assert (await session.send("look", key="k", files=[File(PNG)])).run_id == run.run_id
            with pytest.raises(KeyReuse, match="another input"):
                await session.send("look", key="k", files=[File(PDF)])
            with pytest.raises(KeyReuse, match="another input"):
                await session.send("look", key="k")
        assert len(server.requests) == 1


async def test_what_cannot_be_kept_of_a_result_is_told_and_the_run_goes_on() -> None:
    @tool(effect="read")
    def look() -> list[Any]:
        return [File(b""), File(b"x" * (MEDIA_BYTES_MOST + 1), name="film.mp4"), {"ok": True}]

    async with ModelServer(TWO_STEPS) as server:
        assert isinstance(await result_of(memory_ground(), agent_at(server, tools=[look])), Completed)
        output = json.loads(server.requests[1].body)["input"][-1]["output"]
    said = [part["text"] for part in output]
    assert "is empty" in said[0]
    assert "20971520 is the most" in said[1]
    assert said[2] == '{"ok":true}'


def blobs() -> MemoryBlobs:
    return MemoryBlobs({}, lambda: None)


async def test_our_own_notices_do_not_use_up_what_the_texts_of_a_result_may_have() -> None:
    parts = (File(b""), math.nan, File("text"), "x" * 10, "y" * 1000)  # type: ignore[arg-type]  # as a careless tool would
    outcome = await kept(Gave(parts=parts), blobs(), 90)
    texts = [part.text for part in outcome.parts if isinstance(part, Text)]
    assert [len(text.encode()) for text in texts[3:]] == [10, 80]
    assert "is empty" in texts[0]
    assert "NaN" in texts[1]
    assert "is not bytes but str" in texts[2]


async def test_the_files_of_a_result_have_a_limit_together_and_what_does_not_fit_is_told() -> None:
    half = File(PNG.ljust(MEDIA_BYTES_MOST // 2, b"x"))
    outcome = await kept(Gave(parts=(half, half, File(PNG), "after")), blobs(), 1000)
    first, second, third, last = outcome.parts
    assert (first, last) == (second, Text(text="after"))
    assert isinstance(first, Media)
    assert third == Text(
        text="[A file was not kept: the files of one result have 20971520 bytes at most, and 0 are left for this one]"
    )


@dataclass
class Page:
    """Something of a user's own that holds a file."""

    shown: File


INNER = [{"file": File(PNG)}, [["a", File(PNG)]], {"a": [{"b": (File(PNG),)}]}, Page(File(PNG)), [Page(File(PNG))]]


@pytest.mark.parametrize("value", INNER, ids=lambda value: type(value).__name__)
async def test_a_file_inside_another_value_fails_the_call_by_name_and_never_reaches_the_model_as_text(value: Any) -> None:
    @tool(effect="read")
    def look() -> Any:
        return value

    async with ModelServer(TWO_STEPS) as server:
        assert isinstance(await result_of(memory_ground(), agent_at(server, tools=[look])), Completed)
        body = server.requests[1].body.decode()
    told = "the tool ran, but its result cannot be shown: a File is returned alone or directly in a list"
    assert told in body
    assert in_base64(PNG) not in body
    whole = outcome_of(value)
    assert isinstance(whole, Outcome)
    assert (whole.is_error, whole.text) == (True, told)
    beside = await kept(Gave(parts=(File(PNG), value)), blobs(), 1000)
    assert beside.parts[1] == Text(text=told)


def test_a_result_that_holds_itself_or_no_file_is_judged_as_before() -> None:
    endless: list[Any] = []
    endless.append(endless)
    failed, fine = outcome_of(endless), outcome_of({"a": [1, {"b": "c"}]})
    assert isinstance(failed, Outcome)
    assert failed.is_error
    assert "RecursionError" in failed.text
    assert fine == Outcome(text='{"a":[1,{"b":"c"}]}')


@pytest.mark.parametrize(
    ("files", "told"),
    [
        ([File(b"")], "is empty"),
        (["/nowhere/dot.png"], "/nowhere/dot.png cannot be read"),
        ([File(PNG)] * 21, "20 files at most"),
        ([File(PNG.ljust(MEDIA_BYTES_MOST // 2, b"x"))] * 2 + [File(PNG)], "20971520 bytes together at most"),
        ("a.pdf", "files is a list of files, not one str"),
        (Path("a.pdf"), "files is a list of files, not one PosixPath"),
        (File(PNG), "files is a list of files, not one File"),
        ([File("text")], "the content of the file is not bytes but str"),  # type: ignore[arg-type]  # as a careless caller would
        ([File(PNG, name=Path("a.png"))], "are texts, not PosixPath"),  # type: ignore[arg-type]  # as above
        (["a\0.pdf"], "cannot be read: embedded null byte"),
        ([7], "the file 7 cannot be read"),
    ],
)
async def test_a_file_that_cannot_be_sent_is_refused_and_nothing_is_written(files: Any, told: str) -> None:
    ground = memory_ground()
    async with ModelServer({"answers": [{"text": "hi"}]}) as server:
        agent = agent_at(server)
        async with Runtime(agents=[agent], ground=ground) as runtime:
            with pytest.raises(BadSettings, match=told):
                await runtime.session("s", agent=agent).send("look", files=files)
        assert (server.requests, ground.store.sessions()) == ([], [])


@pytest.mark.parametrize(
    ("content", "claimed", "name", "kind"),
    [
        (PNG, "image/jpeg", "a.jpg", "image/png"),
        (b"\xff\xd8\xff\xe0", None, None, "image/jpeg"),
        (b"RIFF0000WEBPVP8 ", None, None, "image/webp"),
        (PDF, None, "a.txt", "application/pdf"),
        (b"a,b\n", None, "a.csv", "text/csv"),
        (b"PK\x03\x04", None, "a.XLSX", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"),
        (b"plain words", None, None, "text/plain"),
        (b"\x00\x01", None, "a", "application/octet-stream"),
        (b"\x00\x01", "Image/TIFF", None, "image/tiff"),
        (b"\x00\x01", "image/png", None, "application/octet-stream"),
        (b"a,b\n", "image/webp", "a.csv", "text/csv"),
        (b"no page", "application/pdf", "a.pdf", "text/plain"),
        (b"no picture", " Image/JPG ", "a.jpg", "text/plain"),
        (b"\xff\xd8\xff\xe0", "image/jpg", None, "image/jpeg"),
        (b"a,b\n", "  ", "a.csv", "text/csv"),
    ],
)
def test_b18_the_bytes_outrank_what_is_claimed(content: bytes, claimed: str | None, name: str | None, kind: str) -> None:
    assert kind_of(content, claimed, name) == kind


@pytest.mark.parametrize("delivery", ["queue", "steer", "follow_up", "interrupt"])
async def test_a_file_goes_along_with_a_message_to_a_session_at_work(delivery: Any) -> None:
    """M7, M8: durable before its message, whatever way that takes; the request that takes the message up shows it."""
    hold = {"kind": "hold", "times": 1}
    script = {"answers": [{"text": "One.", "fault": hold}, {"text": "Two."}, {"text": "Three."}]}
    ground = memory_ground()
    async with ModelServer(script) as server:
        agent = agent_at(server, "openai_chat")
        async with Runtime(agents=[agent], ground=ground) as runtime:
            session = runtime.session("s", agent=agent)
            first = await session.send("go")
            await server.reached.wait()
            second = await session.send("look at this", key="k", delivery=delivery, files=[File(PNG)])
            server.release.set()
            await first.result()
            await second.result()
            assert (await session.send("look at this", key="k", delivery=delivery, files=[File(PNG)])).run_id == second.run_id
            with pytest.raises(KeyReuse, match="another input"):
                await session.send("look at this", key="k", delivery=delivery)
        bodies = [received.body.decode() for received in server.requests]
    assert [in_base64(PNG) in body for body in bodies] == [False, True]
    gated = [frame for frame in ground.store.read("s").frames if "media-content/v1" in frame.requires]
    assert gated


@pytest.mark.parametrize("delivery", [None, "queue"])
async def test_a_hook_that_changes_a_message_leaves_its_file_and_its_key(delivery: Any) -> None:
    """Q9, M7: the key stands for the message as it was sent, with its file, and the file is in the request all the same."""

    def louder(told: PreUser) -> str:
        return told.text.upper()

    ground = memory_ground()
    async with ModelServer({"answers": [{"text": "One."}, {"text": "Two."}]}) as server:
        agent = agent_at(server, "openai_chat", pre_user=louder)
        async with Runtime(agents=[agent], ground=ground) as runtime:
            session = runtime.session("s", agent=agent)
            run = await session.send("look", key="k", delivery=delivery, files=[File(PNG)])
            await run.result()
            assert (await session.send("look", key="k", delivery=delivery, files=[File(PNG)])).run_id == run.run_id
            with pytest.raises(KeyReuse, match="another input"):
                await session.send("look", key="k", delivery=delivery, files=[File(PDF)])
        (body,) = [received.body.decode() for received in server.requests]
    assert "LOOK" in body
    assert in_base64(PNG) in body
