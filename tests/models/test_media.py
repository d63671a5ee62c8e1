"""Images and documents, in messages and in tool results, as each family takes them (issue 6; gated by media-content/v1)."""

import base64
import json
import zlib

import msgspec
import pytest
from conversations import called, prompt, said, user
from models_support import GOLDEN
from wire_support import WIRES, bundle_of, rendered, renderer

from semel.adapters.models.families import FAMILIES
from semel.core.persistent import Chain
from semel.core.values import Document, Image, Message, ToolMessage, UserMessage

every_family = pytest.mark.parametrize("family", sorted(WIRES))


def png() -> str:
    """One red dot, as base64."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return len(data).to_bytes(4, "big") + kind + data + zlib.crc32(kind + data).to_bytes(4, "big")

    head = (1).to_bytes(4, "big") * 2 + bytes([8, 2, 0, 0, 0])
    parts = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"\x00\xff\x00\x00", 0)) + chunk(b"IEND", b"")
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + parts).decode()


DOT = Image(media_type="image/png", data=png())
BILL = Document(media_type="application/pdf", data=base64.b64encode(b"%PDF-1.4 tiny").decode(), name="bill 7.pdf")
ODD = Image(media_type="image/tiff", data="AAAA")
SHEET = Document(media_type="text/csv", data="YSxiCg==", name="sheet.csv")
TALK: tuple[Message, ...] = (
    UserMessage(text="What is this?", shown=(DOT, BILL)),
    called(("c1", "noop", "{}"), ("c2", "noop", "{}")),
    ToolMessage(tool_call_id="c1", text="a dot", shown=(DOT, ODD)),
    ToolMessage(tool_call_id="c2", text="", is_error=True, shown=(SHEET,)),
    said("A red dot."),
    user("thanks"),
)


@every_family
def test_images_and_documents_reach_the_model_where_its_api_takes_them_and_are_named_where_not(family):
    body = rendered(bundle_of(family), prompt(TALK)).decode()
    assert body.count(DOT.data) == 2
    assert body.count(BILL.data) == 1
    assert ODD.data + '"' not in body
    assert "image of type image/tiff is not shown" in body
    takes_sheets = family in ("gemini", "bedrock_converse")
    assert (SHEET.data in body) is takes_sheets
    assert ("document 'sheet.csv' of type text/csv is not shown" in body) is not takes_sheets


@every_family
def test_what_a_tool_shows_does_not_come_between_results_and_each_step_adds_to_the_last(family):
    grown, chain = renderer(bundle_of(family)), Chain()
    for message in TALK:
        chain = chain.plus(message)
        assert grown.render(prompt(chain)) == renderer(bundle_of(family)).render(prompt(list(chain)))
    if family == "openai_chat":
        roles = [message["role"] for message in json.loads(rendered(bundle_of(family), prompt(TALK[:4])))["messages"]]
        assert roles == ["system", "user", "assistant", "tool", "tool", "user"]


@every_family
def test_golden_requests_with_media_do_not_change(family):
    path = GOLDEN / f"{family}_v{FAMILIES[family].renderer}_media.jsonl"
    assert rendered(bundle_of(family), prompt(TALK)) == path.read_bytes()


def test_messages_without_media_keep_their_stored_bytes():
    """W40: a record without the new member is what it was."""
    assert msgspec.json.encode(UserMessage(text="hi")) == b'{"type":"user","text":"hi"}'
    assert msgspec.json.encode(ToolMessage(tool_call_id="c", text="x")) == b'{"type":"tool","tool_call_id":"c","text":"x"}'


if __name__ == "__main__":  # writes the goldens
    for each in sorted(WIRES):
        path = GOLDEN / f"{each}_v{FAMILIES[each].renderer}_media.jsonl"
        path.write_bytes(rendered(bundle_of(each), prompt(TALK)))
