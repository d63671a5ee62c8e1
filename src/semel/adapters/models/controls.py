"""What a caller may ask of a model whatever its family. Each family writes it in its own words, or says that it cannot.

All of it is frozen into the run's bundle (P4). None means: leave it to the server.
"""

from dataclasses import dataclass
from typing import Literal

from semel.core.values import JSON, Frozen
from semel.errors import BadSettings

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]


class NamedTool(Frozen, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The one tool that must be called."""

    tool: str


ToolChoice = Literal["auto", "none", "required"] | NamedTool


class Reasoning(Frozen, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much a model thinks before it answers: an effort, or a budget in tokens; `show` asks for a summary of it."""

    effort: Effort | None = None
    budget_tokens: int | None = None
    show: bool | None = None


class Controls(Frozen, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The choices. `output_schema` is a JSON Schema that the text of the answer must fit; `cache` how long prefixes are kept."""

    tool_choice: ToolChoice | None = None
    parallel_calls: bool | None = None
    reasoning: Reasoning | None = None
    output_schema: dict[str, JSON] | None = None
    cache: Literal["off", "short", "long"] | None = None


NEUTRAL = Controls()
LONG_TTL = "1h"  # of what the cache keeps; the short one is what providers take where nothing is said


@dataclass(frozen=True, kw_only=True)
class Abilities:
    """Which choices a family has words for."""

    tool_choices: frozenset[str] = frozenset({"auto", "none", "required", "tool"})
    parallel_switch: bool = True
    efforts: frozenset[str] = frozenset({"none", "minimal", "low", "medium", "high", "xhigh", "max"})
    budget: bool = True
    show: bool = True
    output_schema: bool = True
    cache: bool = True

    def check(self, controls: Controls, family: str) -> None:
        """Raise BadSettings for a choice that the family cannot pass on; it is never dropped in silence."""
        for what in self._refused(controls):
            raise BadSettings(f"{family} has no words for the model option {what}; remove it")
        reasoning = controls.reasoning or Reasoning()
        if reasoning.effort is not None and reasoning.budget_tokens is not None:
            raise BadSettings("the model option reasoning has both an effort and budget_tokens; keep one")

    def _refused(self, controls: Controls) -> list[str]:
        reasoning = controls.reasoning or Reasoning()
        choice = controls.tool_choice
        kind = "tool" if isinstance(choice, NamedTool) else choice
        asked = [
            (kind is not None and kind not in self.tool_choices, f"tool_choice = {kind!r}"),
            (controls.parallel_calls is not None and not self.parallel_switch, "parallel_calls"),
            (
                reasoning.effort is not None and reasoning.effort not in self.efforts,
                f"reasoning.effort = {reasoning.effort!r}",
            ),
            (reasoning.budget_tokens is not None and not self.budget, "reasoning.budget_tokens"),
            (reasoning.show is not None and not self.show, "reasoning.show"),
            (controls.output_schema is not None and not self.output_schema, "output_schema"),
            (controls.cache is not None and not self.cache, "cache"),
        ]
        return [what for wrong, what in asked if wrong]
