"""The page on rules, approvals, hooks and limits is true: its agents run, and its tables are those of the code."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from semel import Agent, Completed, Runtime
from semel.core import condition
from semel.core.limits import WARNED_AT_PERCENT
from semel.core.values import ToolMessage
from semel.engine.hooks import HOOK_SECONDS
from semel.faces.agent import PHASES, Limits
from semel.faces.agentfile import load_agent_file
from semel.faces.views import view_of
from semel.testing.ground import memory_ground
from tests.docs.test_pages import DOCS, titled

pytestmark = pytest.mark.anyio
PAGE = (DOCS / "policy.md").read_text()


def agent_of(title: str, place: Path) -> Agent[Any]:
    """The agent of a Python block of the page."""
    (place / title).write_text(titled(PAGE, title))
    found: dict[str, Any] = {"__name__": title.removesuffix(".py")}
    exec(compile(titled(PAGE, title), title, "exec"), found)
    agent: Agent[Any] = found["agent"]
    return agent


async def carried(agent: Agent[Any], place: Path, *calls: dict[str, Any]) -> tuple[Any, list[str], bool]:
    """How a run with these calls ends, what the model reads of them, and whether it waits for a person."""
    (place / "answers.json").write_text(json.dumps({"answers": [{"calls": list(calls)}, {"text": "done"}]}))
    at = memory_ground()
    async with Runtime(agents=[agent], ground=at) as runtime:
        run = await runtime.session("s", agent=agent).send("go")
        await run.rest()
        state = view_of(at.store, "s").state
        waits = state.run is not None
        result = None if waits else await run.result()
    return result, [message.text for message in state.transcript if isinstance(message, ToolMessage)], waits


def refund(cents: int, order: str = "1") -> dict[str, Any]:
    return {"name": "refund", "args": {"order_id": order, "cents": cents}}


@pytest.mark.parametrize("title", ["shop.py", "agent.toml"])
async def test_the_rules_of_the_page_do_what_the_page_says(title: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    if title == "agent.toml":
        (tmp_path / title).write_text(titled(PAGE, title))
        agent: Agent[Any] = load_agent_file(tmp_path / title)
    else:
        agent = agent_of(title, tmp_path)
    result, told, waits = await carried(agent, tmp_path, refund(200_000), refund(5))
    assert isinstance(result, Completed)
    assert told[0].endswith("Refund at most 1000.00 at once.")
    assert "refunded 5" in told[1]
    _result, told, waits = await carried(agent, tmp_path, refund(6000))
    assert waits
    assert not told


async def test_the_function_of_the_page_asks_about_its_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    agent = agent_of("shop.py", tmp_path)
    assert (await carried(agent, tmp_path, refund(5, "17")))[2]
    assert not (await carried(agent, tmp_path, refund(5, "18"), {"name": "find_order", "args": {"order_id": "17"}}))[2]


async def test_the_hooks_of_the_page_do_what_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    agent = agent_of("hooks.py", tmp_path)
    calls = ({"name": "pay", "args": {"cents": cents}} for cents in (5, 200_000))
    _result, told, _waits = await carried(agent, tmp_path, *calls)
    assert told == ["paid 5 with card ****", "Not run: a check of this agent does not allow it. Pay less at once."]


def rows(heading: str) -> list[list[str]]:
    """The cells of the table behind a heading of the page."""
    part = PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in part.splitlines() if line.startswith("| ")][1:]


def test_every_limit_stands_on_the_page_with_its_default() -> None:
    told = {row[0].split("`")[1]: row[1].replace(",", "") for row in rows("Limits")}
    assert told.keys() == Limits.__dataclass_fields__.keys()
    ours = {name: getattr(Limits(), name) for name in told}
    assert {name: "none" if value is None else f"{value:.0f}" for name, value in ours.items()} == told
    assert f"When {WARNED_AT_PERCENT} %" in PAGE


def test_every_hook_stands_on_the_page() -> None:
    assert [row[0].strip("`") for row in rows("Hooks")] == list(PHASES)
    assert f"within {HOOK_SECONDS:.0f} seconds" in PAGE


def test_every_form_of_a_condition_on_the_page_is_one() -> None:
    forms = [form for row in rows("Conditions") for form in re.findall(r"`([^`]+)`", row[0]) if len(form.split()) > 2]
    assert len(forms) >= 6
    for form in forms:
        condition.parse_condition(form)
    assert f"{condition.CONDITION_CHARS_MOST:,} characters and {condition.DEPTH_MOST} levels" in PAGE


async def test_a_page_whose_rule_is_another_would_be_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    other = PAGE.replace('when="cents > 100000"', 'when="cents > 900000"')
    assert other != PAGE
    monkeypatch.setattr(sys.modules[__name__], "PAGE", other)
    assert (await carried(agent_of("shop.py", tmp_path), tmp_path, refund(200_000), refund(5)))[2], "it asks instead"
