"""The model port over generateContent."""

from typing import TYPE_CHECKING
from urllib.parse import quote

from semel.adapters.models.gemini.decode import gemini_decoder
from semel.adapters.models.gemini.errors import GEMINI_ERRORS, refusal
from semel.adapters.models.gemini.options import GEMINI, GeminiOptions
from semel.adapters.models.gemini.render import GeminiForm
from semel.adapters.models.http_model import Counting, HttpModel, Wire
from semel.core.values import JSON, Bundle
from semel.ports.world import Clock

if TYPE_CHECKING:
    from semel.adapters.models.transport import Transport


def build(*, bundle: Bundle, options: GeminiOptions, transport: "Transport", clock: Clock) -> HttpModel:
    """One model of one server; its name is part of the path."""
    name = quote(bundle.model, safe="")

    def counted(body: dict[str, JSON]) -> dict[str, JSON]:
        return {"generateContentRequest": {"model": f"models/{bundle.model}", **body}}

    wire = Wire(
        path=GEMINI.path.format(model=name),
        form=GeminiForm(bundle, options),
        decoder=lambda: gemini_decoder(options),
        refusal=refusal,
        errors=GEMINI_ERRORS,
        counting=Counting(path=f"/models/{name}:countTokens", body=counted, answer="totalTokens"),
    )
    return HttpModel(bundle=bundle, wire=wire, transport=transport, clock=clock)
