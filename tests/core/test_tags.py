"""Tags (C44-C52): numbers that only rise, shown in the request alone, and never on what a provider binds to its bytes."""

import pytest

from semel.core.tags import MARKED_ASSISTANT_FAMILY, marked
from semel.core.values import AssistantMessage, Media, Message, Opaque, Text, ToolCall, ToolMessage, UserMessage
from tests.core.test_prefixes import played
from tests.core.writes import logged_of

PICTURE = Media(media_type="image/png", sha256="a" * 64, size_bytes=3)
THOUGHT = Opaque(format="anthropic.thinking", data="{}")
SIGNATURE = Opaque(format="gemini.text", data="{}")
CALL = ToolCall(id="c", name="read", arguments="{}")


@pytest.mark.parametrize(
    ("message", "tags", "shown"),
    [
        (UserMessage(text="go"), (3,), UserMessage(text="§3§ go")),
        (
            UserMessage(text="look", parts=(PICTURE, Text(text="at it"))),
            (3, 4, 5),
            UserMessage(text="§3§ look", parts=(PICTURE, Text(text="§5§ at it"))),
        ),
        (ToolMessage(tool_call_id="c", text="ok"), (8,), ToolMessage(tool_call_id="c", text="§8§ ok")),
        (
            ToolMessage(tool_call_id="c", text="", parts=(PICTURE,)),
            (8,),
            ToolMessage(tool_call_id="c", text="", parts=(PICTURE,)),
        ),
        (
            AssistantMessage(blocks=(THOUGHT, Text(text="So."), CALL)),
            (1, 2, 3),
            AssistantMessage(blocks=(THOUGHT, Text(text="§2§ So."), CALL)),
        ),
        (
            AssistantMessage(blocks=(Text(text="§9§ §7§ So."),)),
            (2,),
            AssistantMessage(blocks=(Text(text="§2§ §7§ So."),)),
        ),
        (
            AssistantMessage(blocks=(Text(text="So."), SIGNATURE, Text(text="Then."))),
            (1, 2, 3),
            AssistantMessage(blocks=(Text(text="So."), SIGNATURE, Text(text="§3§ Then."))),
        ),
        (AssistantMessage(blocks=(Text(text="So."), CALL)), (1,), AssistantMessage(blocks=(Text(text="§1§ So."), CALL))),
    ],
)
def test_a_part_is_marked_with_its_own_tag_and_state_never_is(message: Message, tags: tuple[int, ...], shown: Message) -> None:
    assert marked(message, tags, MARKED_ASSISTANT_FAMILY) == shown


def test_other_families_keep_the_tags_of_answers_as_metadata() -> None:
    said = AssistantMessage(blocks=(Text(text="So."),))
    assert marked(said, (1,), "openai_chat") == said


def test_the_transcript_never_changes_and_a_request_shows_the_marks() -> None:
    d = played("gated")
    assert not any("§" in message.text for message in d.said if isinstance(message, UserMessage | ToolMessage))
    assert [message.text for message in d.sent[-1] if isinstance(message, UserMessage)] == ["§1§ look"]


def test_tags_rise_over_the_whole_log() -> None:
    numbers: list[int] = []
    for logged in logged_of(played("gated").writes):
        for tag in (*getattr(logged.record, "tags", ()), getattr(logged.record, "tag", None)):
            numbers += tag if isinstance(tag, tuple) else [] if tag is None else [tag]
    assert len(numbers) >= 10
    assert numbers == sorted(set(numbers))
