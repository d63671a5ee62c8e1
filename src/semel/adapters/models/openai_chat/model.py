"""The model port over chat completions."""

from typing import TYPE_CHECKING

from semel.adapters.models.http_model import HttpModel, Wire
from semel.adapters.models.openai_chat.decode import chat_decoder
from semel.adapters.models.openai_chat.options import OPENAI_CHAT, ChatOptions
from semel.adapters.models.openai_chat.render import ChatForm
from semel.adapters.models.openai_errors import OPENAI_ERRORS, refusal
from semel.core.values import Bundle
from semel.ports.world import Clock

if TYPE_CHECKING:
    from semel.adapters.models.transport import Transport


def build(*, bundle: Bundle, options: ChatOptions, transport: "Transport", clock: Clock) -> HttpModel:
    """One model of one server. There is no endpoint that counts tokens."""
    wire = Wire(
        path=OPENAI_CHAT.path,
        form=ChatForm(bundle, options),
        decoder=lambda: chat_decoder(options),
        refusal=refusal,
        errors=OPENAI_ERRORS,
    )
    return HttpModel(bundle=bundle, wire=wire, transport=transport, clock=clock)
