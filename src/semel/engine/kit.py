"""What a run is performed with: the model and the tools of its agent in this process."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from semel.core.state import Run
from semel.ports.model import ModelPort
from semel.ports.tool import ToolPort


@dataclass(frozen=True, kw_only=True)
class Kit:
    """Live objects of one agent; `deps` is handed to tools and never in the log."""

    model: ModelPort
    tools: Mapping[str, ToolPort]
    deps: object = None


Binder = Callable[[Run], Kit]
"""Finds the kit of an open run. Raises BadAgent where its agent is not to be found, or its tools are not those of the log."""
