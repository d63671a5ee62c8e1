"""What a model thought is bound to what stood before it: over real HTTP, what another start voids, by a record, and what not.

Some providers sign it together with instructions and tools, the tool of a typed output among them, and refuse it behind
anything else (wire 1). Their requests hold the tools in order, so another order is another start.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from semel import Agent, Completed, Limits, Runtime, tool
from semel.core.values import JSON
from semel.ports.tool import ToolPort
from semel.testing.ground import memory_ground
from semel.testing.model_server import ModelServer
from tests.engine.fakes import call, events_of

pytestmark = pytest.mark.anyio
THOUGHT = {
    "anthropic_messages": b'"type":"thinking"',
    "bedrock_converse": b'"reasoningContent":',
    "openai_responses": b'"encrypted_content":"',
    "openai_chat": b'"reasoning_content":"',
}
BOUND = ("anthropic_messages", "bedrock_converse")


@dataclass
class Report:
    note: str


@dataclass
class LongReport:
    note: str
    pages: int = 1


def same_again() -> type[Any]:
    """A type of its own that asks a model for the same."""

    @dataclass
    class Report:
        note: str

    return Report


def look(description: str = "Look.", **declared: Any) -> ToolPort:
    def look(place: str = "") -> str:
        return place

    look.__doc__ = description
    return tool(effect="read", **declared)(look)


@tool(effect="read")
def listen() -> str:
    """Listen."""
    return ""


PLAIN: Mapping[str, Any] = {"tools": [look(), listen], "instructions": "Work."}
TYPED: Mapping[str, Any] = {**PLAIN, "output": Report}
VOIDS: dict[str, tuple[Mapping[str, Any], Mapping[str, Any]]] = {
    "other instructions": (PLAIN, {**PLAIN, "instructions": "Work well."}),
    "one tool more": ({**PLAIN, "tools": [look()]}, PLAIN),
    "one tool less": (PLAIN, {**PLAIN, "tools": [listen]}),
    "the tools in another order": (PLAIN, {**PLAIN, "tools": [listen, look()]}),
    "a tool that is described otherwise": (PLAIN, {**PLAIN, "tools": [look("Look twice."), listen]}),
    "an output where there was none": (PLAIN, TYPED),
    "no output any more": (TYPED, PLAIN),
    "another output": (TYPED, {**PLAIN, "output": LongReport}),
}
KEEPS: dict[str, tuple[Mapping[str, Any], Mapping[str, Any]]] = {
    "nothing": (PLAIN, PLAIN),
    "limits": (PLAIN, {**PLAIN, "limits": Limits(steps=7, tokens=70_000)}),
    "what recovery knows of a tool": (PLAIN, {**PLAIN, "tools": [look(timeout=7.0, sequential=True), listen]}),
    "an output type that asks for the same": (TYPED, {**PLAIN, "output": same_again()}),
    "how its work is limited, typed": (TYPED, {**TYPED, "limits": Limits(output_retries=2)}),
}


def thinking(n: int, *, typed: bool) -> JSON:
    said: JSON = {"calls": [call("submit_output", note=f"note {n}")]} if typed else {"text": f"Note {n}."}
    return {"thinking": f"Thought {n}.", **said}  # type: ignore[dict-item]  # JSON


async def voided(family: str, first: Mapping[str, Any], second: Mapping[str, Any]) -> tuple[bool, list[str]]:
    """Two runs of a session: whether the second one's request shows what the first one thought, and the reasons recorded."""
    script = {"answers": [thinking(1, typed="output" in first), thinking(2, typed="output" in second)]}
    ground = memory_ground()
    async with ModelServer(script) as server:
        for given, text in ((first, "go"), (second, "go on")):
            agent = Agent("a", model=f"{family}:m@{server.url}", **given)
            async with Runtime(agents=[agent], ground=ground) as runtime:
                result = await (await runtime.session("s", agent=agent).send(text)).result()
                assert isinstance(result, Completed), result
        bodies = [received.body for received in server.requests]
    assert len(bodies) == 2
    assert b"note 1" in bodies[1].lower()  # what was said stays in any case
    records = [event["record"] for event in events_of(ground.store) if event["type"] == "opaque_state_voided"]
    return THOUGHT[family] in bodies[1], [record["reason"] for record in records]


@pytest.mark.parametrize("family", BOUND)
@pytest.mark.parametrize("change", VOIDS)
async def test_another_start_voids_it_by_a_record_before_the_request(family: str, change: str) -> None:
    assert await voided(family, *VOIDS[change]) == (False, ["prefix_changed"])


@pytest.mark.parametrize("family", BOUND)
@pytest.mark.parametrize("change", KEEPS)
async def test_what_a_model_does_not_see_voids_nothing(family: str, change: str) -> None:
    """Negative control: an equal start keeps it, whatever else changed."""
    assert await voided(family, *KEEPS[change]) == (True, [])


@pytest.mark.parametrize("family", sorted(THOUGHT.keys() - set(BOUND)))
@pytest.mark.parametrize("change", ["other instructions", "one tool more", "another output"])
async def test_state_of_a_family_that_does_not_bind_it_stays(family: str, change: str) -> None:
    assert await voided(family, *VOIDS[change]) == (True, [])


def test_the_tables_have_not_shrunk() -> None:
    assert (len(VOIDS), len(KEEPS), len(BOUND)) == (8, 5, 2)
