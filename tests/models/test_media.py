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
from hypothesis import given, settings
from hypothesis import strategies as st
from models_support import GOLDEN
from wire_support import WIRES, bundle_of, rendered, renderer

from semel.adapters.models.catalog import ModelOptions, refused_file, resolve
from semel.adapters.models.families import FAMILIES
from semel.core.persistent import Chain
from semel.core.values import AssistantMessage, Media, Message, Prompt, Text, ToolMessage, UserMessage
from semel.errors import BadSettings

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
NOTES = media("text/plain", "\ufeffGr\u00fc\u00dfe \U0001f327\r\n\u2028end".encode(), "notes.txt")
DATA = media("application/json", b'{"n": 1e3, "n": "\\ud83d"}')
PAGE = media("text/markdown; charset=utf-8", b"# Title\n", "page.md")
LATIN = media("text/plain", "Z\u00fcrich".encode("latin-1"), "old.txt")
BLANK = media("text/plain", b" \n", "blank.txt")
TALK: tuple[Message, ...] = (
    UserMessage(text="What is this?", parts=(DOT, BILL)),
    called(("c1", "noop", "{}"), ("c2", "noop", "{}")),
    ToolMessage(tool_call_id="c1", text="a dot", parts=(DOT, ODD)),
    ToolMessage(tool_call_id="c2", text="", is_error=True, parts=(SHEET,)),
    said("A red dot."),
    user("thanks"),
)
TEXTS: tuple[Message, ...] = (
    UserMessage(text="Read these.", parts=(NOTES, DATA, PAGE, LATIN, BLANK, DOT)),
    called(("c1", "noop", "{}"), ("c2", "noop", "{}")),
    ToolMessage(tool_call_id="c1", text="", parts=(Text(text="before"), NOTES, Text(text="behind"))),
    ToolMessage(tool_call_id="c2", text="two files", parts=(LATIN, DATA, DOT)),
    said("Read."),
    UserMessage(text="And this?", parts=(SHEET, BILL)),
)


def texts_of(family: str, body: bytes) -> list[str]:
    """What a request shows of text files, in order: those in the family's own form, and the text parts that name one."""
    found: list[str] = []

    def walk(value: object) -> None:
        if isinstance(value, list):
            for item in value:
                walk(item)
        elif isinstance(value, dict):
            source = value.get("source")
            if isinstance(source, dict) and source.get("type") == "text":
                found.append(source["data"])
            elif value.get("format") in ("txt", "csv", "md", "html") and isinstance(source, dict):
                found.append(base64.b64decode(source["bytes"]).decode())
            for name, item in value.items():
                if name in ("text", "output", "content") and isinstance(item, str) and "of type" in item:
                    found.append(item)
                walk(item)

    walk(json.loads(body))
    return found


@every_family
def test_a_model_sees_the_text_of_text_files_in_messages_and_in_results(family):
    shown = "\n".join(texts_of(family, rendered(bundle_of(family), asked(TEXTS))))
    notes, data = "Gr\u00fc\u00dfe \U0001f327\r\n\u2028end", '{"n": 1e3, "n": "\\ud83d"}'
    assert (shown.count(notes), shown.count(data), shown.count("# Title\n"), shown.count("a,b\n")) == (2, 2, 1, 1)
    assert "\ufeff" not in shown
    body = rendered(bundle_of(family), asked(TEXTS)).decode()
    name = {"bedrock_converse": "notes-txt"}.get(family, "notes.txt")
    assert body.count(name) >= 2


@every_family
def test_a_text_file_that_is_no_utf_8_or_blank_is_named_and_says_why(family):
    body = rendered(bundle_of(family), asked(TEXTS)).decode()
    assert body.count("[document 'old.txt' of type text/plain is not shown: it is not UTF-8]") == 2
    assert body.count("[document 'blank.txt' of type text/plain is not shown: it is blank]") == 1
    assert "rich" not in body
    assert base64_of(LATIN) not in body


@every_family
def test_the_parts_of_a_result_keep_their_order_around_a_text_file(family):
    body = rendered(bundle_of(family), asked(TEXTS[:4]))
    tail = body.decode()[body.decode().rindex("before") :]
    if family == "bedrock_converse":
        content = json.loads(body)["messages"][2]["content"][0]["toolResult"]["content"]
        assert [next(iter(part)) for part in content] == ["text", "document", "text"]
    else:
        assert tail.index("before") < tail.index("Gr\u00fc\u00dfe") < tail.index("behind")


@every_family
def test_an_older_renderer_names_text_files_as_it_did(family):
    """Negative control, and P4: a run that was started before goes on with its own bytes."""
    older = bundle_of(family, renderer=FAMILIES[family].renderer - 1)
    body = rendered(older, asked(TEXTS)).decode()
    assert "1e3" not in body
    assert base64_of(DATA) not in body
    assert body.count("document of type application/json is not shown: this model's API does not take it") == 2
    path = GOLDEN / f"{family}_v{FAMILIES[family].renderer - 1}_media.jsonl"
    assert rendered(older, asked(TALK)) == path.read_bytes()


@every_family
def test_images_and_documents_reach_the_model_where_its_api_takes_them_and_are_named_where_not(family):
    body = rendered(bundle_of(family), asked(TALK)).decode()
    assert body.count(base64_of(DOT)) == 2
    assert body.count(base64_of(BILL)) == 1
    assert base64_of(ODD) + '"' not in body
    assert "image of type image/tiff is not shown" in body


@every_family
def test_what_a_tool_shows_does_not_come_between_results_and_each_step_adds_to_the_last(family):
    grown, chain = renderer(bundle_of(family)), Chain()
    for message in (*TALK, *TEXTS):
        chain = chain.plus(message)
        assert grown.render(asked(chain)) == renderer(bundle_of(family)).render(asked(list(chain)))
    if family == "openai_chat":
        roles = [message["role"] for message in json.loads(rendered(bundle_of(family), asked(TALK[:4])))["messages"]]
        assert roles == ["system", "user", "assistant", "tool", "tool", "user"]


GOLDENS = {"media": TALK, "texts": TEXTS}


@pytest.mark.parametrize("name", GOLDENS)
@every_family
def test_golden_requests_with_media_do_not_change(family, name):
    path = GOLDEN / f"{family}_v{FAMILIES[family].renderer}_{name}.jsonl"
    assert rendered(bundle_of(family), asked(GOLDENS[name])) == path.read_bytes()


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
    assert sorted(asked_for) == sorted(one.sha256 for one in (DOT, BILL, DOT, SHEET))


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
    bundle = resolve("bedrock_converse:m@http://127.0.0.1:9", ModelOptions(dialect={"documents_most": 20}))
    names = document_names(rendered(bundle, asked(talk)))
    assert names[:3] == ["bill-pdf", "bill-pdf 2", "bill-pdf 3"]
    assert names[3:8] == ["a-b c--d(1)[2]-pdf", "bill-pdf 4", "unnamed", "bill-pdf 5", "unnamed 2"]
    assert len(set(names)) == len(names) == 11
    assert all(re.fullmatch(r"[A-Za-z0-9()\[\]-]+( [A-Za-z0-9()\[\]-]+)*", name) and len(name) <= 200 for name in names)
    assert document_names(rendered(bundle, asked(talk[:1]))) == names[:6]


PICTURE_BYTES_MOST = {"anthropic_messages": 3_932_160, "bedrock_converse": 3_750_000}


def picture(size: int, name: str = "big.png") -> Media:
    """A file that starts as a PNG does."""
    return media("image/png", b"\x89PNG\r\n\x1a\n".ljust(size, b"x"), name)


@every_family
def test_a_picture_that_a_family_takes_for_too_large_is_told_in_words_instead_of_spoiling_the_session(family):
    """Anthropic takes 5 MiB as base64 at most, Bedrock 3.75 MB of the file; one byte more is not sent. Others name no limit."""
    most = PICTURE_BYTES_MOST.get(family, 3_932_160)
    fits, large = picture(most), picture(most + 1)
    body = rendered(bundle_of(family), asked((UserMessage(text="look", parts=(fits, large)),))).decode()
    limited = family in PICTURE_BYTES_MOST
    assert base64_of(fits) in body
    assert (base64_of(large) not in body) is limited
    why = f"it has {most + 1} bytes, and this model's API takes pictures of at most {most}"
    assert (f"[image 'big.png' of type image/png is not shown: {why}]" in body) is limited
    if family == "anthropic_messages":
        assert len(base64_of(fits)) == 5 * 1024 * 1024


def test_bedrock_shows_as_many_files_in_a_message_as_it_takes_and_text_beyond_as_text():
    """20 pictures and 5 documents, those of the results and of the words behind them together; an answer starts a new message."""
    pictures = tuple(media("image/png", png() + bytes([n])) for n in range(21))
    bills = tuple(media("application/pdf", b"%PDF-" + bytes([n]), f"{n}.pdf") for n in range(4))
    talk: tuple[Message, ...] = (
        UserMessage(text="look", parts=(*pictures, *bills[:3])),
        called(("c1", "noop", "{}")),
        ToolMessage(tool_call_id="c1", text="", parts=(*bills[:3], NOTES, DATA)),
        UserMessage(text="and", parts=(bills[3], pictures[0])),
    )
    body = rendered(bundle_of("bedrock_converse"), asked(talk))
    assert len(document_names(body)) == 3 + 5
    text = body.decode()
    assert text.count('{"image":') == 20 + 1
    assert text.count("image of type image/png is not shown: this model's API takes at most 20 pictures in one message") == 1
    assert text.count("document '3.pdf' of type application/pdf is not shown: this model's API takes at most 5 documents") == 1
    more = (*talk[:2], ToolMessage(tool_call_id="c1", text="", parts=(*bills, DATA, NOTES)))
    assert "Gr\u00fc\u00dfe" in rendered(bundle_of("bedrock_converse"), asked(more)).decode()
    older = rendered(bundle_of("bedrock_converse", renderer=1), asked(talk)).decode()
    assert older.count('{"image":') == 21 + 1


@every_family
def test_a_row_or_an_agent_tells_what_its_own_server_takes(family):
    """Negative control beside it: without a word about it the same files are sent."""
    parts = (DOT, DOT, BILL)
    asking = asked((UserMessage(text="look", parts=parts),))
    limits = {"pictures_most": 1, "document_bytes_most": 0}
    own = resolve(f"{family}:m@http://127.0.0.1:9", ModelOptions(dialect=limits))
    body = rendered(own, asking).decode()
    assert body.count(base64_of(DOT)) == 1
    assert "this model's API takes at most 1 pictures in one message" in body
    assert "document 'bill 7.pdf' of type application/pdf is not shown: this model takes no documents" in body
    assert rendered(bundle_of(family), asking).decode().count(base64_of(DOT)) == 2
    with pytest.raises(BadSettings, match="pictures_most"):
        resolve(f"{family}:m@http://127.0.0.1:9", ModelOptions(dialect={"pictures_most": -1}))


@pytest.mark.parametrize(
    ("family", "parts", "told"),
    [
        ("anthropic_messages", [3_932_161], "picture_bytes_most of anthropic_messages"),
        ("bedrock_converse", [3_750_001], "picture_bytes_most of bedrock_converse"),
        ("bedrock_converse", [9] * 21, "pictures_most of bedrock_converse"),
        ("openai_responses", [4_000_000], None),
        ("bedrock_converse", [3_750_000] * 2, None),
    ],
)
def test_what_is_too_much_for_a_server_is_found_before_a_message_is_taken(family, parts, told):
    found = refused_file(bundle_of(family), [picture(size) for size in parts])
    assert (found is None) if told is None else (told in str(found))


def test_text_is_never_too_much_for_a_server_of_documents():
    """It is shown as text behind the fifth document; a sixth that is no text is refused."""
    bundle = bundle_of("bedrock_converse")
    assert refused_file(bundle, [BILL] * 4 + [NOTES] * 9) is None
    assert refused_file(bundle, [BILL] * 4 + [NOTES, BILL]) is None
    assert "documents_most of bedrock_converse" in str(refused_file(bundle, [BILL] * 5 + [NOTES, BILL]))
    assert refused_file(bundle, [ODD]) is None
    assert refused_file(msgspec.structs.replace(bundle, family="of somebody's own"), [BILL] * 9) is None


@every_family
@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    files=st.lists(st.sampled_from((DOT, BILL, NOTES, DATA, PAGE, SHEET, LATIN, BLANK, ODD)), max_size=14),
    documents=st.integers(0, 4),
    pictures=st.integers(0, 3),
    size=st.sampled_from((8, 1000)),
)
def test_the_door_lets_in_what_the_request_then_shows_and_nothing_else(family, files, documents, pictures, size):
    """Text is in every request; a picture or a PDF is left out of one only if the door would have refused the message."""
    limits = {"documents_most": documents, "pictures_most": pictures, "document_bytes_most": size}
    bundle = resolve(f"{family}:m@http://127.0.0.1:9", ModelOptions(dialect=limits))
    body = rendered(bundle, asked((UserMessage(text="look", parts=tuple(files)),))).decode()
    refused = refused_file(bundle, files)
    left_out = [why for why in re.findall(r"is not shown: ([^]]*)]", body) if why.startswith(("this model takes no", "it has"))]
    left_out += re.findall("this model's API takes at most", body)
    assert (refused is not None) is bool(left_out), (refused, left_out)
    if refused is None:
        assert (body.count(base64_of(BILL)), body.count(base64_of(DOT))) == (files.count(BILL), files.count(DOT))
    read = "".join(texts_of(family, body.encode()))
    for one, words in ((NOTES, "Gr\u00fc\u00dfe"), (DATA, "1e3"), (PAGE, "# Title"), (SHEET, "a,b")):
        assert read.count(words) == files.count(one), one
    if family == "bedrock_converse":
        assert len(document_names(body.encode())) <= documents


if __name__ == "__main__":  # writes the goldens
    for each in sorted(WIRES):
        for title, talk in GOLDENS.items():
            path = GOLDEN / f"{each}_v{FAMILIES[each].renderer}_{title}.jsonl"
            path.write_bytes(rendered(bundle_of(each), asked(talk)))
