"""The model port over the Messages API."""

from typing import TYPE_CHECKING

from semel.adapters.models.anthropic_messages.decode import messages_decoder
from semel.adapters.models.anthropic_messages.errors import MESSAGES_ERRORS, refusal
from semel.adapters.models.anthropic_messages.options import ANTHROPIC_MESSAGES, MessagesOptions
from semel.adapters.models.anthropic_messages.render import MessagesForm
from semel.adapters.models.http_model import Counting, HttpModel, Wire
from semel.core.values import JSON, Bundle
from semel.ports.world import Clock

if TYPE_CHECKING:
    from semel.adapters.models.transport import Transport

_COUNTED = frozenset({"model", "messages", "system", "tools", "tool_choice", "thinking", "output_config", "cache_control"})


def build(*, bundle: Bundle, options: MessagesOptions, transport: "Transport", clock: Clock) -> HttpModel:
    """One model of one server. Version and betas are headers, frozen with the options."""
    dialect = options.dialect
    betas = {"anthropic-beta": ",".join(dialect.betas)} if dialect.betas else {}
    wire = Wire(
        path=ANTHROPIC_MESSAGES.path,
        form=MessagesForm(bundle, options),
        decoder=lambda: messages_decoder(options),
        refusal=refusal,
        errors=MESSAGES_ERRORS,
        headers={"anthropic-version": dialect.version, **betas},
        counting=Counting(path="/messages/count_tokens", body=_counted, answer="input_tokens"),
    )
    return HttpModel(bundle=bundle, wire=wire, transport=transport, clock=clock)


def _counted(body: dict[str, JSON]) -> dict[str, JSON]:
    return {name: value for name, value in body.items() if name in _COUNTED}
