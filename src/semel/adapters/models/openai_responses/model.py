"""The model port over the Responses API."""

from typing import TYPE_CHECKING

from semel.adapters.models.http_model import Counting, HttpModel, Wire
from semel.adapters.models.openai_errors import OPENAI_ERRORS, refusal
from semel.adapters.models.openai_responses.decode import responses_decoder
from semel.adapters.models.openai_responses.options import OPENAI_RESPONSES, ResponsesOptions
from semel.adapters.models.openai_responses.render import ResponsesForm
from semel.core.values import JSON, Bundle
from semel.ports.world import Clock

if TYPE_CHECKING:
    from semel.adapters.models.transport import Transport

_COUNTED = frozenset({"model", "instructions", "input", "tools", "tool_choice", "parallel_tool_calls", "reasoning", "text"})


def build(*, bundle: Bundle, options: ResponsesOptions, transport: "Transport", clock: Clock) -> HttpModel:
    """One model of one server."""
    wire = Wire(
        path=OPENAI_RESPONSES.path,
        form=ResponsesForm(bundle, options),
        decoder=lambda: responses_decoder(options),
        refusal=refusal,
        errors=OPENAI_ERRORS,
        counting=Counting(path="/responses/input_tokens", body=_counted, answer="input_tokens"),
    )
    return HttpModel(bundle=bundle, wire=wire, transport=transport, clock=clock)


def _counted(body: dict[str, JSON]) -> dict[str, JSON]:
    return {name: value for name, value in body.items() if name in _COUNTED}
