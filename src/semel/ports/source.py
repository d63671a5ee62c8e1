"""Somebody who says which tools there are: asked for every new run, and answered for by the log from then on.

SOURCE-1  `offered` acts on nothing. What it returns is frozen into the run that starts, each with the source's `module`.
SOURCE-2  `open` starts nothing: a kit that is never used leaves nothing behind.
SOURCE-3  A tool whose source does not offer it any more as it was frozen is not sent (NotSent), and says so.
SOURCE-4  `close` leaves no process of the source running.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

from semel.core.values import ToolSpec
from semel.ports.tool import ToolPort


class OpenSource(Protocol):
    """The tools of a source for one run."""

    @property
    def tools(self) -> Mapping[str, ToolPort]:
        """By the names under which the model knows them."""

    async def close(self) -> None:
        """End what runs for them; idempotent."""


@runtime_checkable
class ToolSource(Protocol):
    """Lists tools, and serves those that a run was frozen with."""

    @property
    def module(self) -> str:
        """Its name in the log: `ToolSpec.module` of its tools (R12)."""

    async def offered(self) -> Sequence[ToolSpec]:
        """What it offers now. Raises BadAgent if it cannot be asked."""

    def open(self, specs: Sequence[ToolSpec], run_id: str | None) -> OpenSource:
        """Serve a run that was frozen with these; `run_id` is that of a run which another process may have begun."""
