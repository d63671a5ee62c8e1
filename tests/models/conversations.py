"""Conversations that every family must be able to send: neutral ones, and those that hold the family's own state."""

import json

from models_support import CASES, FIXTURES, WEATHER
from wire_support import WIRES, decoded

from semel.core.values import AssistantMessage, Message, Opaque, Prompt, Text, ToolCall, ToolMessage, ToolSpec, UserMessage

BARE = ToolSpec(name="noop", description="", parameters='{"type":"object"}')
TOOLS = (WEATHER, BARE)
INSTRUCTIONS = "Be terse. Ünïcode 🌧\u2028stays."


def called(*calls: tuple[str, str, str], text: str = "") -> AssistantMessage:
    blocks = [Text(text=text)] if text else []
    return AssistantMessage(blocks=(*blocks, *(ToolCall(id=i, name=n, arguments=a) for i, n, a in calls)))


def result(call_id: str, text: str, *, is_error: bool = False) -> ToolMessage:
    return ToolMessage(tool_call_id=call_id, text=text, is_error=is_error)


def said(text: str) -> AssistantMessage:
    return AssistantMessage(blocks=(Text(text=text),))


def user(text: str) -> UserMessage:
    return UserMessage(text=text)


LONG_ID = "call_" + "x" * 80
NEUTRAL: dict[str, tuple[Message, ...]] = {
    "one question": (user("Grüße 🌧\u2028"),),
    "two parallel calls": (
        user("Weather in Paris and Zürich?"),
        called(("c1", "get_weather", '{"city":"Paris"}'), ("c2", "get_weather", '{ "city" : "Zürich" }'), text="Both. "),
        result("c1", "18C"),
        result("c2", "upstream timed out", is_error=True),
        said("18C; Zürich is unknown."),
        user("And now?"),
    ),
    "a steer behind the results": (
        user("go"),
        called(("c1", "noop", "{}")),
        result("c1", "ok"),
        user("stop that"),
        user("please"),
    ),
    "blank texts everywhere": (
        user(" "),
        called(("c1", "noop", ""), text="\n\n"),
        result("c1", ""),
        AssistantMessage(blocks=()),
        user(""),
        said("\n"),
        user("hi"),
    ),
    "arguments that are no JSON object": (
        user("go"),
        called(("c1", "get_weather", '{"city": "Pa'), ("c2", "noop", "null"), ("c3", "noop", "[1]"), ("c4", "noop", '{"a":NaN}')),
        *(result(f"c{n}", "the arguments are not valid JSON", is_error=True) for n in (1, 2, 3, 4)),
    ),
    "half a surrogate pair": (
        user("a\ud83db"),
        called(("c1", "noop", '{"q":"\\ud99c ok \\ud83d\\ude00 \\\\ud99c"}')),
        result("c1", "\udcb2"),
    ),
    "ids and names of other providers": (
        user("go"),
        called(("functions.get_weather:0", "get_weather", "{}"), (LONG_ID, "no such tool!", "{}"), ("id|with;é", "", "{}")),
        result("functions.get_weather:0", "a"),
        result(LONG_ID, "b", is_error=True),
        result("id|with;é", "c", is_error=True),
    ),
    "numbers that do not survive a reading": (
        user("go"),
        called(("c1", "noop", '{"n":1e3,"m":12345678901234567890123,"z":-0.0,"n":2}')),
        result("c1", "ok"),
    ),
    "state of another family": (
        user("go"),
        AssistantMessage(
            blocks=(
                Opaque(format="other.thinking", data='{"type":"thinking"}'),
                ToolCall(id="c1", name="noop", arguments="{}"),
                Opaque(format="other.call", data='{"signature":"s"}'),
            )
        ),
        result("c1", "ok"),
    ),
    "an answer at the end": (user("go"), said("I was cut")),
    "an answer at the start": (said("Earlier."), user("go on")),
}


IN_GOLDEN_REQUESTS = ("B13", "B14", "B19", "B22", "B24", "B25", "B27", "B29", "B30")


def own_state(family: str) -> dict[str, tuple[Message, ...]]:
    """Conversations whose answers came from the family's recorded streams."""
    found: dict[str, tuple[Message, ...]] = {}
    cases = [path for path in sorted(CASES.iterdir()) if path.name.startswith(IN_GOLDEN_REQUESTS)]
    for path in sorted((FIXTURES / family).glob("*.response.*")) + cases:
        if path.suffix not in (".sse", ".bin") or not belongs(family, path):
            continue
        try:
            answer = decoded(family, path.read_bytes())[1]
        except Exception:  # an interrupted stream leaves nothing to send
            continue
        message = AssistantMessage(blocks=tuple(with_ids(answer.blocks)))
        found[path.name] = (user("go"), message, *(result(call.id, "ok") for call in message.calls), user("and now?"))
    return found


def value_of_block(block: Opaque):
    """What an opaque block holds."""
    return json.loads(block.data)


def belongs(family: str, path) -> bool:
    words = {"anthropic_messages": "anthropic", "openai_chat": "chat", "openai_responses": "responses", "gemini": "gemini"}
    return path.parent.name == family or words.get(family, "-") in path.name


def with_ids(blocks):
    """As the core re-identifies calls without an id, or with a repeated one."""
    taken: set[str] = set()
    for n, block in enumerate(blocks):
        if not isinstance(block, ToolCall):
            yield block
            continue
        name = block.id if block.id and block.id not in taken else f"call_{n}"
        taken.add(name)
        yield ToolCall(id=name, name=block.name, arguments=block.arguments)


def prompt(messages, *, tools=TOOLS, instructions=INSTRUCTIONS) -> Prompt:
    return Prompt(instructions=instructions, tools=tools, messages=messages)


def everything(family: str) -> dict[str, Prompt]:
    """All prompts of a family, by name."""
    prompts = {name: prompt(messages) for name, messages in {**NEUTRAL, **own_state(family)}.items()}
    prompts["no tools, no instructions"] = prompt(NEUTRAL["two parallel calls"], tools=(), instructions="")
    return prompts


def strict(body: bytes):
    """Parse as a strict server does: no lone surrogate survives, nothing is NaN."""
    text = body.decode()
    value = json.loads(text, parse_constant=lambda constant: 1 / 0)
    json.dumps(value, ensure_ascii=False).encode()
    return value


FAMILY_NAMES = tuple(WIRES)
