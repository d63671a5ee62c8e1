"""The five families as the tests see them: a decoder, a table of errors and a renderer for each, and the recorded streams."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgspec
from models_support import FIXTURES, pieces

from semel.adapters.models.anthropic_messages.decode import messages_decoder
from semel.adapters.models.anthropic_messages.errors import MESSAGES_ERRORS
from semel.adapters.models.anthropic_messages.options import MessagesOptions
from semel.adapters.models.anthropic_messages.render import MessagesForm
from semel.adapters.models.bedrock_converse.decode import ConverseDecoder
from semel.adapters.models.bedrock_converse.errors import CONVERSE_ERRORS
from semel.adapters.models.bedrock_converse.options import ConverseOptions
from semel.adapters.models.bedrock_converse.render import ConverseForm
from semel.adapters.models.decoding import Decoded, Decoder, Undecodable
from semel.adapters.models.families import FAMILIES
from semel.adapters.models.gemini.decode import gemini_decoder
from semel.adapters.models.gemini.errors import GEMINI_ERRORS
from semel.adapters.models.gemini.options import GeminiOptions
from semel.adapters.models.gemini.render import GeminiForm
from semel.adapters.models.openai_chat.decode import chat_decoder
from semel.adapters.models.openai_chat.options import ChatOptions
from semel.adapters.models.openai_chat.render import ChatForm
from semel.adapters.models.openai_errors import OPENAI_ERRORS
from semel.adapters.models.openai_responses.decode import responses_decoder
from semel.adapters.models.openai_responses.options import ResponsesOptions
from semel.adapters.models.openai_responses.render import ResponsesForm
from semel.adapters.models.rendering import Form, Renderer
from semel.adapters.models.server_error import ErrorTable
from semel.core.values import Bundle, Opaque, Prompt, Text, ToolCall
from semel.ports.model import FailureClass


class Wire(NamedTuple):
    """What the tests need of a family."""

    options: type
    decoder: Callable[..., Decoder]
    errors: ErrorTable
    form: Callable[..., Form]


WIRES = {
    "anthropic_messages": Wire(MessagesOptions, messages_decoder, MESSAGES_ERRORS, MessagesForm),
    "openai_chat": Wire(ChatOptions, chat_decoder, OPENAI_ERRORS, ChatForm),
    "openai_responses": Wire(ResponsesOptions, responses_decoder, OPENAI_ERRORS, ResponsesForm),
    "gemini": Wire(GeminiOptions, gemini_decoder, GEMINI_ERRORS, GeminiForm),
    "bedrock_converse": Wire(ConverseOptions, ConverseDecoder, CONVERSE_ERRORS, ConverseForm),
}
ENDPOINT = "http://127.0.0.1:9/v1"
SIZES = (1, 7, None)
EXPECTED = json.loads((FIXTURES / "expected.json").read_text())


def family_of(path: str | Path) -> str:
    """The family of a recorded stream, from its folder or from its name."""
    text = str(path)
    words = {"anthropic": "anthropic_messages", "chat": "openai_chat", "responses": "openai_responses"}
    for word, family in {**{name: name for name in WIRES}, **words, "gemini": "gemini"}.items():
        if word in text:
            return family
    raise AssertionError(text)


def decoded(family: str, data: bytes, size: int | None = None, options=None) -> tuple[str, Decoded]:
    """The text shown live and the answer of a body cut into chunks."""
    wire = WIRES[family]
    decoder = wire.decoder(options or wire.options())
    shown = [text for chunk in pieces(data, size) for text in decoder.feed(chunk)]
    return "".join(shown), decoder.result()


def failure_of(family: str, problem: Undecodable) -> FailureClass | None:
    """The class of what went wrong in a body that came with status 200; None for what is no API's answer."""
    return problem.failure if problem.error is None else WIRES[family].errors.class_of(200, problem.error)


def row_of(family: str, data: bytes, size: int | None, options=None) -> dict:
    """What a body decodes to, in the words of expected.json."""
    try:
        shown, answer = decoded(family, data, size, options)
    except Undecodable as problem:
        failure = failure_of(family, problem)
        return {"outcome": "interrupted"} if failure is FailureClass.INTERRUPTED else {"outcome": "error", "class": str(failure)}
    text = "".join(block.text for block in answer.blocks if isinstance(block, Text))
    assert shown == text
    return {
        "outcome": "completed",
        "stop": str(answer.stop),
        "text": text,
        "calls": [[b.id, b.name, value_of(b.arguments)] for b in answer.blocks if isinstance(b, ToolCall)],
        "opaque": [b for b in answer.blocks if isinstance(b, Opaque)],
        "usage": {name: count for name, count in msgspec.to_builtins(answer.usage).items() if count is not None},
    }


def value_of(arguments: str):
    """The value of a call's arguments, or their text where a model was cut short."""
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments


def renderer(bundle: Bundle) -> Renderer:
    """A renderer for a bundle of any family."""
    return Renderer(WIRES[bundle.family].form(bundle, FAMILIES[bundle.family].decode(bundle.options)))


def rendered(bundle: Bundle, prompt: Prompt) -> bytes:
    return renderer(bundle).render(prompt).body


def bundle_of(family: str, **changes) -> Bundle:
    return Bundle(
        **{
            "family": family,
            "model": "m",
            "endpoint": ENDPOINT,
            "renderer": FAMILIES[family].renderer,
            "options": FAMILIES[family].encode(WIRES[family].options()),
            **changes,
        }
    )
