"""A driver whose models think, whose next run may ask another model or with other instructions, and an oracle of both.

Each piece of provider state names its author: the target and the instructions of the request that it answered. So each request
can be held against what it may show, and each proof of the cache against the requests themselves.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from msgspec.structs import replace

from semel.core.effects import CallModel, Send
from semel.core.records import ModelStepFinished, Record
from semel.core.targets import is_bound, target_of
from semel.core.values import AssistantMessage, Block, Message, Opaque, ToolSpec
from tests.core.driver import Driver
from tests.core.machine import BUNDLE


class Asked(NamedTuple):
    """A request: who was asked, what stood before the messages, and those."""

    target: str
    instructions: str
    tools: Sequence[ToolSpec]
    messages: list[Message]

    def goes_on_from(self, other: "Asked") -> bool:
        """Whether it starts with all of the other one."""
        return self[:3] == other[:3] and self.messages[: len(other.messages)] == other.messages


@dataclass
class Thinker(Driver):
    """`family`, `model` and `instructions` are those of the next run."""

    family: str = BUNDLE.family
    model: str = BUNDLE.model
    instructions: str = "be good"
    asked_for: dict[tuple[str, int], Asked] = field(default_factory=dict)

    def command(self, key: str, text: str, **more: Any) -> Send:
        command = super().command(key, text, **more)
        bundle = replace(BUNDLE, family=self.family, model=self.model)
        return replace(command, config=replace(command.config, bundle=bundle), instructions=self.instructions)

    @property
    def thought(self) -> Block:
        """Provider state of the model that is being asked."""
        run = self.state.run
        assert run is not None
        return Opaque(format="thought", data=json.dumps([target_of(run.config.bundle), run.instructions]))

    def _ask(self, effect: CallModel) -> None:
        super()._ask(effect)
        run = self.state.run
        assert run is not None
        asked = Asked(target_of(run.config.bundle), run.instructions, run.tools, self.sent[-1])
        self.asked_for[run.run_id, effect.step_id] = asked
        for author, instructions in map(json.loads, thoughts_in(asked.messages)):
            assert author == asked.target, "no model is shown the state of another one"
            bound = is_bound(run.config.bundle.family)
            assert not bound or instructions == asked.instructions, "no bound state is shown behind another start"


def thoughts_in(messages: Sequence[Message]) -> list[str]:
    """The provider state in these messages."""
    answers = [message for message in messages if isinstance(message, AssistantMessage)]
    return [block.data for answer in answers for block in answer.blocks if isinstance(block, Opaque)]


def assert_proofs_are_true(driver: Thinker, records: Sequence[Record | None]) -> int:
    """A request whose prefix is told to be identical starts with the last one that was answered. Returns how many were told."""
    last: Asked | None = None
    told = 0
    for record in records:
        if not isinstance(record, ModelStepFinished):
            continue
        asked = driver.asked_for[record.run_id, record.step_id]
        proofs = [one for one in driver.state.ended[record.run_id].cache if one.step_id == record.step_id]
        identical = bool(proofs) and not proofs[0].broken
        assert not identical or last is None or asked.goes_on_from(last), "a prefix that is told to be identical is not"
        told, last = told + identical, asked
    return told
