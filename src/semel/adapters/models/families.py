"""The wire families of this build, by name. Their models are imported when one is built, so that start-up stays light."""

from typing import TYPE_CHECKING, Any

from semel.adapters.models.anthropic_messages.options import ANTHROPIC_MESSAGES
from semel.adapters.models.bedrock_converse.options import BEDROCK_CONVERSE
from semel.adapters.models.family import Family
from semel.adapters.models.gemini.options import GEMINI
from semel.adapters.models.openai_chat.options import OPENAI_CHAT
from semel.adapters.models.openai_responses.options import OPENAI_RESPONSES
from semel.core.values import Bundle
from semel.errors import need
from semel.ports.model import ModelPort
from semel.ports.world import Clock

if TYPE_CHECKING:
    from semel.adapters.models.transport import Transport

FAMILIES: dict[str, Family[Any]] = {
    family.name: family for family in (ANTHROPIC_MESSAGES, OPENAI_CHAT, OPENAI_RESPONSES, GEMINI, BEDROCK_CONVERSE)
}


def built(bundle: Bundle, *, transport: "Transport", clock: Clock) -> ModelPort:
    """The model of a bundle whose family this build has."""
    options = need(FAMILIES.get(bundle.family), "the bundle was checked").decode(bundle.options)
    match bundle.family:
        case "anthropic_messages":
            from semel.adapters.models.anthropic_messages.model import build as messages

            return messages(bundle=bundle, options=options, transport=transport, clock=clock)
        case "openai_responses":
            from semel.adapters.models.openai_responses.model import build as responses

            return responses(bundle=bundle, options=options, transport=transport, clock=clock)
        case "gemini":
            from semel.adapters.models.gemini.model import build as gemini

            return gemini(bundle=bundle, options=options, transport=transport, clock=clock)
        case "bedrock_converse":
            from semel.adapters.models.bedrock_converse.model import build as converse

            return converse(bundle=bundle, options=options, transport=transport, clock=clock)
        case _:
            from semel.adapters.models.openai_chat.model import build as chat

            return chat(bundle=bundle, options=options, transport=transport, clock=clock)
