"""What a run is performed with: the model and the tools of its agent in this process."""

from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import cast

from semel.core.policy import Policy, allow_all
from semel.core.records import Config
from semel.errors import InvariantBroken
from semel.ports.hook import Hooks
from semel.ports.model import GoesOn, ModelPort, Rendered
from semel.ports.source import OpenSource
from semel.ports.tool import ToolPort


@dataclass(frozen=True, kw_only=True)
class Kit:
    """Live objects of one agent; `deps` is handed to tools and never in the log.

    `policy` rules on each call before it is sent; `hooks` are asked around messages, answers and calls. `owns_model` says that
    the model was made for this run and ends with it; one that the caller made is the caller's. `sources` serve some of the tools.
    `refrozen` is the config that an open run goes on with, where that is not the one it has (P11).
    """

    model: ModelPort
    tools: Mapping[str, ToolPort]
    deps: object = None
    owns_model: bool = True
    policy: Policy = allow_all
    hooks: Hooks = field(default_factory=Hooks)
    sources: Sequence[OpenSource] = ()
    refrozen: Config | None = None

    def go_on_from(self, rendered: Rendered | None) -> Rendered | None:
        """Have the model take up what was rendered of the session before; returns what it renders from now on.

        None for a model that cannot, and for one that is the caller's and outlives the run.
        """
        if not self.owns_model or not isinstance(self.model, GoesOn):
            return None
        if rendered is not None:
            self.model.go_on_from(rendered)
        return self.model.rendered()

    async def close(self) -> None:
        """End what was made for this run; idempotent."""
        try:
            await self.close_sources()
        finally:
            if self.owns_model:
                await self.model.close()

    async def close_sources(self) -> None:
        """End what serves its tools, each one whatever another raises; idempotent."""
        async with AsyncExitStack() as closing:
            for source in self.sources:
                closing.push_async_callback(source.close)


class NoModel:
    """Stands in for the model where a run is only closed: nothing of it is asked any more."""

    def __getattr__(self, name: str) -> object:
        raise InvariantBroken(f"a run that is being closed asked its model for {name}")


def closing_kit() -> Kit:
    """What a cancelled run is closed with where its agent is not at hand: no model, and no tool to ask what became of a call."""
    return Kit(model=cast("ModelPort", NoModel()), tools={}, owns_model=False)
