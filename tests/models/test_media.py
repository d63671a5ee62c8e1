"""Images and documents, in messages and in tool results, as each family takes them (issue 6; gated by media-content/v1)."""

import base64
import hashlib
import json
import re
import zlib
from collections.abc import Sequence

import msgspec
import pytest
from conversations import called, prompt, said, user
from models_support import GOLDEN
from wire_support import WIRES, bundle_of, rendered, renderer

from semel.adapters.models.families import FAMILIES
from semel.core.persistent import Chain
from semel.core.values import AssistantMessage, Media, Message, Prompt, Text, ToolMessage, UserMessage

every_family = pytest.mark.parametrize("family", sorted(WIRES))


def png() -> bytes:
    """One red dot."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return len(data).to_bytes(4, "big") + kind + data + zlib.crc32(kind + data).to_bytes(4, "big")

    head = (1).to_bytes(4, "big") * 2 + bytes([8, 2, 0, 0, 0])
    parts = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"\x00\xff\x00\x00", 0)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + parts


BYTES: dict[str, bytes] = {}


def media(media_type: str, content: bytes, name: str | None = None) -> Media:
    """A reference; its bytes go into BYTES, as a session keeps them beside its log."""
    sha256 = hashlib.sha256(content).hexdigest()
    BYTES[sha256] = content
    return Media(media_type=media_type, sha256=sha256, size_bytes=len(content), name=name)


def base64_of(one: Media) -> str:
    """As a request carries it."""
    return base64.b64encode(BYTES[one.sha256]).decode()


def asked(messages: Sequence[Message]) -> Prompt:
    """The prompt of these messages, with the bytes that they name."""
    return msgspec.structs.replace(prompt(messages), media=BYTES)


DOT = media("image/png", png())
BILL = media("application/pdf", b"%PDF-1.4 tiny", "bill 7.pdf")
ODD = media("image/tiff", b"\0\0\0")
SHEET = media("text/csv", b"a,b\n", "sheet.csv")
TALK: tuple[Message, ...] = (
    UserMessage(text="What is this?", parts=(DOT, BILL)),
    called(("c1", "noop", "{}"), ("c2", "noop", "{}")),
    ToolMessage(tool_call_id="c1", text="a dot", parts=(DOT, ODD)),
    ToolMessage(tool_call_id="c2", text="", is_error=True, parts=(SHEET,)),
    said("A red dot."),
    user("thanks"),
)


@every_family
def test_images_and_documents_reach_the_model_where_its_api_takes_them_and_are_named_where_not(family):
    body = rendered(bundle_of(family), asked(TALK)).decode()
    assert body.count(base64_of(DOT)) == 2
    assert body.count(base64_of(BILL)) == 1
    assert base64_of(ODD) + '"' not in body
    assert "image of type image/tiff is not shown" in body
    takes_sheets = family in ("gemini", "bedrock_converse")
    assert (base64_of(SHEET) in body) is takes_sheets
    assert ("document 'sheet.csv' of type text/csv is not shown" in body) is not takes_sheets


@every_family
def test_what_a_tool_shows_does_not_come_between_results_and_each_step_adds_to_the_last(family):
    grown, chain = renderer(bundle_of(family)), Chain()
    for message in TALK:
        chain = chain.plus(message)
        assert grown.render(asked(chain)) == renderer(bundle_of(family)).render(asked(list(chain)))
    if family == "openai_chat":
        roles = [message["role"] for message in json.loads(rendered(bundle_of(family), asked(TALK[:4])))["messages"]]
        assert roles == ["system", "user", "assistant", "tool", "tool", "user"]


@every_family
def test_golden_requests_with_media_do_not_change(family):
    path = GOLDEN / f"{family}_v{FAMILIES[family].renderer}_media.jsonl"
    assert rendered(bundle_of(family), asked(TALK)) == path.read_bytes()


@every_family
def test_a_result_of_parts_alone_has_no_made_up_words_and_keeps_their_order(family):
    result = ToolMessage(tool_call_id="c1", text="", parts=(Text(text="before"), DOT, Text(text=" ")))
    body = rendered(bundle_of(family), asked((user("look"), called(("c1", "noop", "{}")), result))).decode()
    assert "(no output)" not in body
    assert body.index("before") < body.index(base64_of(DOT))


@every_family
def test_what_a_model_made_goes_back_as_words(family):
    answer = AssistantMessage(blocks=(Text(text="Here it is."),), parts=(DOT,))
    body = rendered(bundle_of(family), asked((user("paint a dot"), answer, user("thanks")))).decode()
    assert base64_of(DOT) not in body
    assert "[image of type image/png is not shown" in body


@every_family
def test_bytes_are_looked_up_for_what_is_new_alone(family):
    """A turn costs its own media, not those of all turns before it (P10)."""
    asked_for: list[str] = []

    class Loads(dict[str, bytes]):
        def __missing__(self, sha256: str) -> bytes:
            asked_for.append(sha256)
            return BYTES[sha256]

    grown, chain = renderer(bundle_of(family)), Chain[Message]()
    for message in TALK:
        chain = chain.plus(message)
        grown.render(msgspec.structs.replace(prompt(chain), media=Loads()))
    shown = [DOT, BILL, DOT, *([SHEET] if family in ("gemini", "bedrock_converse") else [])]
    assert asked_for == [one.sha256 for one in shown]


def test_messages_without_media_keep_their_stored_bytes():
    """W40: a record without the new member is what it was."""
    assert msgspec.json.encode(UserMessage(text="hi")) == b'{"type":"user","text":"hi"}'
    assert msgspec.json.encode(ToolMessage(tool_call_id="c", text="x")) == b'{"type":"tool","tool_call_id":"c","text":"x"}'


def document_names(body: bytes) -> list[str]:
    """The names of the documents of a request of bedrock_converse, in order."""
    blocks = [block for message in json.loads(body)["messages"] for block in message["content"]]
    inner = [part for block in blocks for part in (block, *block.get("toolResult", {}).get("content", []))]
    return [part["document"]["name"] for part in inner if "document" in part]


def test_no_two_documents_of_a_request_have_one_name_and_a_name_stays_when_the_conversation_grows():
    """Bedrock refuses the request otherwise, and then every later one of the session."""
    odd, long = "a_b  c\u00e9/d(1)[2].pdf", "n" * 300 + ".pdf"
    first = tuple(
        media("application/pdf", b"%PDF-1", name) for name in ("bill.pdf", "bill.pdf 2", "bill.pdf", odd, "bill.pdf", None)
    )
    later = tuple(media("application/pdf", b"%PDF-2", name) for name in ("bill.pdf", None, long, long, "_"))
    talk: tuple[Message, ...] = (
        UserMessage(text="look", parts=first),
        called(("c1", "noop", "{}")),
        ToolMessage(tool_call_id="c1", text="", parts=later),
    )
    bundle = bundle_of("bedrock_converse")
    names = document_names(rendered(bundle, asked(talk)))
    assert names[:3] == ["bill-pdf", "bill-pdf 2", "bill-pdf 3"]
    assert names[3:8] == ["a-b c--d(1)[2]-pdf", "bill-pdf 4", "unnamed", "bill-pdf 5", "unnamed 2"]
    assert len(set(names)) == len(names) == 11
    assert all(re.fullmatch(r"[A-Za-z0-9()\[\]-]+( [A-Za-z0-9()\[\]-]+)*", name) and len(name) <= 200 for name in names)
    assert document_names(rendered(bundle, asked(talk[:1]))) == names[:6]


@every_family
def test_a_picture_that_a_family_takes_for_too_large_is_told_in_words_instead_of_spoiling_the_session(family):
    """5 MiB as base64 is the most that Anthropic takes; one byte more of the file is not sent."""
    start = b"\x89PNG\r\n\x1a\n"
    fits, large = (media("image/png", start.ljust(size, b"x"), "big.png") for size in (3_932_160, 3_932_161))
    assert len(base64_of(fits)) == 5 * 1024 * 1024
    body = rendered(bundle_of(family), asked((UserMessage(text="look", parts=(fits, large)),))).decode()
    limited = family == "anthropic_messages"
    assert base64_of(fits) in body
    assert (base64_of(large) not in body) is limited
    told = "[image 'big.png' of type image/png is not shown: it has 3932161 bytes, and this model's API takes pictures of at most"
    assert (told in body) is limited


if __name__ == "__main__":  # writes the goldens
    for each in sorted(WIRES):
        path = GOLDEN / f"{each}_v{FAMILIES[each].renderer}_media.jsonl"
        path.write_bytes(rendered(bundle_of(each), asked(TALK)))
