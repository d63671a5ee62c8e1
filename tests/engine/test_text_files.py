"""Text files as what a model reads: shown whole, bounded like other texts of a tool, and refused where they are no text (B18)."""

from pathlib import Path
from typing import Any

import pytest

from semel import Completed, File, Runtime, tool
from semel.core.media import is_text_kind, text_of_file
from semel.core.values import Media, Text
from semel.engine.media import Gave, kept
from semel.errors import BadSettings
from semel.testing.ground import memory_ground
from semel.testing.model_server import ModelServer
from tests.engine.test_files import FAMILIES, PDF, PNG, TWO_STEPS, agent_at, blobs, needs, result_of

pytestmark = pytest.mark.anyio
WORDS = '{"order": 17, "note": "Grüße"}'


@pytest.mark.parametrize("family", ["openai_chat", "openai_responses", "anthropic_messages", "gemini"])
async def test_a_model_reads_the_text_files_of_a_message_and_of_a_result(family: str, tmp_path: Path) -> None:
    (tmp_path / "order.json").write_text(WORDS, encoding="utf-8")

    @tool(effect="read")
    def look() -> File:
        return File(b"id,cents\n17,500\n", name="refunds.csv")

    ground = memory_ground()
    async with ModelServer(TWO_STEPS) as server:
        agent = agent_at(server, family, tools=[look])
        assert isinstance(await result_of(ground, agent, files=[tmp_path / "order.json"]), Completed)
        first, second = (received.body.decode() for received in server.requests)
    said = WORDS.replace('"', '\\"')
    assert (said in first, "order.json" in first, "17,500" in first) == (True, True, False)
    assert (said in second, "id,cents\\n17,500\\n" in second, "refunds.csv" in second) == (True, True, True)
    assert needs(ground, "tool_result") == [("media-content/v1",)]


@pytest.mark.parametrize(
    ("file", "told"),
    [
        (
            File("Zürich".encode("latin-1"), name="old.txt"),
            "'old.txt' is taken for text/plain, and is not UTF-8; save it as UTF-8",
        ),
        (File("a,b".encode("utf-16"), name="sheet.csv"), "'sheet.csv' is taken for text/csv, and is not UTF-8"),
        (File("{}".encode("utf-16-le"), media_type="application/json"), "the file is taken for application/json"),
    ],
)
async def test_text_that_is_no_utf_8_is_refused_by_name_and_nothing_is_written(file: File, told: str) -> None:
    ground = memory_ground()
    async with ModelServer({"answers": [{"text": "hi"}]}) as server:
        agent = agent_at(server)
        async with Runtime(agents=[agent], ground=ground) as runtime:
            with pytest.raises(BadSettings, match=told):
                await runtime.session("s", agent=agent).send("read", files=[file])
        assert (server.requests, ground.store.sessions()) == ([], [])


BIG = File(PNG.ljust(3_932_161, b"x"), name="big.png")
LIMITS: dict[str, Any] = {
    "anthropic_messages": ([BIG], "'big.png' of type image/png: it has 3932161 bytes.* at most 3932160 .picture_bytes_most of"),
    "bedrock_converse": ([File(PDF, name=f"{n}.pdf") for n in range(6)], "at most 5 documents in one message .documents_most of"),
}


@pytest.mark.parametrize("family", FAMILIES)
async def test_what_is_more_than_a_server_takes_is_refused_before_it_is_admitted_by_the_limit_that_it_breaks(family: str) -> None:
    """Beside it the control: a family of no such limit takes the same files."""
    files, told = LIMITS.get(family, ([BIG, *LIMITS["bedrock_converse"][0]], None))
    ground = memory_ground()
    async with ModelServer({"answers": [{"text": "hi"}]}) as server:
        agent = agent_at(server, family)
        if told is None:
            assert isinstance(await result_of(ground, agent, files=files), Completed)
            return
        async with Runtime(agents=[agent], ground=ground) as runtime:
            with pytest.raises(BadSettings, match=told):
                await runtime.session("s", agent=agent).send("look", files=files)
        assert (server.requests, ground.store.sessions()) == ([], [])


async def test_the_text_of_a_file_counts_as_text_of_the_tool_and_a_longer_one_is_cut() -> None:
    """A tool that returns a huge file spoils the session no more than one that returns a huge text."""
    small, large = File(b"a" * 60, name="a.txt"), File(b"b" * 1000, name="b.txt")
    outcome = await kept(Gave(parts=(small, large, "c" * 50, File(PNG))), blobs(), 200)
    first, second, third, fourth = outcome.parts
    assert isinstance(first, Media)
    assert isinstance(fourth, Media)
    assert isinstance(second, Text)
    assert second.text.startswith("[b.txt, text/plain, 1000 bytes]\nbbb")
    assert second.text.endswith("[output cut: 1032 bytes, the limit is 140]")
    assert len(second.text) == 140
    assert third == Text(text="\n[output cut: 50 bytes, the limit is 0]")


async def test_a_file_of_a_tool_that_is_no_text_uses_none_of_what_its_texts_may_have() -> None:
    odd = File("Zürich".encode("latin-1"), name="old.txt")
    outcome = await kept(Gave(parts=(odd, "c" * 50)), blobs(), 50)
    assert isinstance(outcome.parts[0], Media)
    assert outcome.parts[1] == Text(text="c" * 50)


@pytest.mark.parametrize(
    ("kind", "is_text"),
    [
        ("text/plain", True),
        ("text/csv; charset=utf-8", True),
        ("application/json", True),
        ("application/geo+json", True),
        ("image/svg+xml", True),
        ("application/pdf", False),
        ("application/octet-stream", False),
        ("image/png", False),
    ],
)
def test_which_files_are_text(kind: str, is_text: bool) -> None:
    assert is_text_kind(kind) is is_text


def test_no_encoding_is_guessed() -> None:
    assert text_of_file("é\r\n".encode("utf-8-sig")) == "é\r\n"
    assert [text_of_file(one) for one in (b"Z\xfcrich", "a".encode("utf-16-le"), b"a\0b", b"\xed\xa0\x80")] == [None] * 4
