"""Settings to ports: the only module that names adapters. Imports them when they are needed, so that start-up stays light."""

import os
from collections.abc import Callable, Mapping

from semel.core.features import KNOWN
from semel.core.values import Bundle
from semel.engine.resume import Ground
from semel.ports.model import ModelPort
from semel.ports.tool import ToolPort
from semel.ports.world import Clock
from semel.settings import Settings


def ground_of(settings: Settings) -> Ground:
    """The embedded default: one directory, system clock, random ids."""
    from semel.adapters.file.store import FileStore
    from semel.adapters.system import SystemClock, SystemIds

    clock = SystemClock()
    store = FileStore(settings.state, clock, known=KNOWN, inline_sync=settings.inline_sync)
    return Ground(store=store, clock=clock, ids=SystemIds())


def model_named(spec: str, options: Mapping[str, object], clock: Clock) -> ModelPort:
    """The model that a name stands for today. Raises UnknownModel, BadSettings."""
    from semel.adapters.models.catalog import build_model, parse_options

    return build_model(spec, clock=clock, environ=os.environ, options=parse_options(options))


def model_frozen(bundle: Bundle, options: Mapping[str, object], clock: Clock) -> ModelPort:
    """The model of a run that is resumed, from what it froze (P4). Raises BundleRefused."""
    from semel.adapters.models.catalog import parse_options, restore_model

    return restore_model(bundle, clock=clock, environ=os.environ, options=parse_options(options))


def key_missing(bundle: Bundle, options: Mapping[str, object]) -> str | None:
    """What to do about a key that a model needs and that is not there; None if all is well."""
    from semel.adapters.models.catalog import key_problem, parse_options

    return key_problem(bundle, environ=os.environ, options=parse_options(options))


def priced(bundle: Bundle) -> bool:
    """Whether a cost limit can hold for this model."""
    from semel.adapters.models.catalog import has_price

    return has_price(bundle)


def as_tool(given: "ToolPort | Callable[..., object]") -> ToolPort:
    """A tool as it is; a plain function as a tool with the default effect, `once`. Raises BadAgent."""
    from semel.adapters.tools.function import tool

    return tool(given) if not hasattr(given, "spec") else given  # type: ignore[return-value]  # what has a spec is a port
