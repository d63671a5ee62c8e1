"""The model port over ConverseStream."""

from typing import TYPE_CHECKING
from urllib.parse import quote

from semel.adapters.models.bedrock_converse.decode import ConverseDecoder
from semel.adapters.models.bedrock_converse.errors import CONVERSE_ERRORS, refusal
from semel.adapters.models.bedrock_converse.options import BEDROCK_CONVERSE, ConverseOptions
from semel.adapters.models.bedrock_converse.render import ConverseForm
from semel.adapters.models.http_model import Counting, HttpModel, Wire
from semel.core.values import JSON, Bundle
from semel.ports.world import Clock

if TYPE_CHECKING:
    from semel.adapters.models.transport import Transport

_COUNTED = frozenset({"messages", "system", "toolConfig", "additionalModelRequestFields"})


def build(*, bundle: Bundle, options: ConverseOptions, transport: "Transport", clock: Clock) -> HttpModel:
    """One model of one region; its name is part of the path, with `:` and `/` escaped."""
    name = quote(bundle.model, safe="")
    wire = Wire(
        path=BEDROCK_CONVERSE.path.format(model=name),
        form=ConverseForm(bundle, options),
        decoder=lambda: ConverseDecoder(options),
        refusal=refusal,
        errors=CONVERSE_ERRORS,
        headers={"accept": "application/vnd.amazon.eventstream"},
        counting=Counting(path=f"/model/{name}/count-tokens", body=_counted, answer="inputTokens"),
    )
    return HttpModel(bundle=bundle, wire=wire, transport=transport, clock=clock)


def _counted(body: dict[str, JSON]) -> dict[str, JSON]:
    return {"input": {"converse": {name: value for name, value in body.items() if name in _COUNTED}}}
