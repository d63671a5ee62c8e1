"""The wire formats in which a script is served, and the paths under which a client asks for each (wire 1 to 5)."""

import re
from dataclasses import dataclass

from semel.adapters.models.script_chat import ChatFormat
from semel.adapters.models.script_steps import Format
from semel.testing.formats.converse import ConverseFormat
from semel.testing.formats.gemini import GeminiFormat
from semel.testing.formats.messages import MessagesFormat
from semel.testing.formats.responses import ResponsesFormat


@dataclass(frozen=True)
class Served:
    """A format and its paths. `counted` names the count in a reply, `base` is what a client's base URL ends with."""

    format: Format
    path: re.Pattern[str]
    count_path: re.Pattern[str] | None
    counted: str
    base: str


FORMATS: dict[str, Served] = {
    "openai_chat": Served(ChatFormat(), re.compile(r".*/chat/completions"), None, "", "/v1"),
    "anthropic_messages": Served(
        MessagesFormat(), re.compile(r".*/messages"), re.compile(r".*/messages/count_tokens"), "input_tokens", "/v1"
    ),
    "openai_responses": Served(
        ResponsesFormat(), re.compile(r".*/responses"), re.compile(r".*/responses/input_tokens"), "input_tokens", "/v1"
    ),
    "gemini": Served(
        GeminiFormat(),
        re.compile(r".*/models/[^/]+:streamGenerateContent"),
        re.compile(r".*/models/[^/]+:countTokens"),
        "totalTokens",
        "/v1beta",
    ),
    "bedrock_converse": Served(
        ConverseFormat(),
        re.compile(r".*/model/[^/]+/converse-stream"),
        re.compile(r".*/model/[^/]+/count-tokens"),
        "inputTokens",
        "",
    ),
}
