"""Rules from an agent, its tools and the operator, in a whole run: what is sent, what is asked, what ends the run."""

import os
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from semel import Agent, Completed, Failed, Rule, Runtime, tool
from semel.engine.resume import Ground
from semel.errors import BadAgent, BadSettings, UsageError
from semel.faces.policies import POLICY_VARIABLE, operator_rules, rules_of
from semel.faces.views import view_of
from tests.engine.fakes import call, events_of, ground, script_file

pytestmark = pytest.mark.anyio


class Till:
    """A tool that pays, and what it was given."""

    def __init__(self, **declared: Any) -> None:
        self.paid: list[int] = []

        @tool(name="pay", **declared)
        def pay(cents: int) -> str:
            self.paid.append(cents)
            return f"paid {cents}"

        self.tool = pay


def clerk(tmp_path: Path, till: Till, *cents: int, **more: Any) -> Agent[str]:
    calls = [call("pay", cents=one) for one in cents or (6000,)]
    return Agent("a", model=script_file(tmp_path / "m.json", {"calls": calls}, {"text": "done"}), tools=[till.tool], **more)


async def carry(agent: Agent[str], at: Ground) -> Any:
    async with Runtime(agents=[agent], ground=at) as runtime:
        run = await runtime.session("s", agent=agent).send("go")
        await run.rest()
        return None if view_of(at.store, "s").state.run is not None else await run.result()


def records(at: Ground, kind: str) -> list[dict[str, Any]]:
    return [event["record"] for event in events_of(at.store) if event["type"] == kind]


@pytest.fixture
def operator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "operator.toml"
    monkeypatch.setenv(POLICY_VARIABLE, str(path))
    return path


async def test_a_rule_of_the_agent_keeps_a_call_from_being_sent_and_its_siblings_are(tmp_path: Path) -> None:
    at, till = ground(), Till()
    result = await carry(clerk(tmp_path, till, 6000, 7, policy=[Rule("deny", "pay", when="cents > 5000", why="Less.")]), at)
    assert isinstance(result, Completed)
    assert till.paid == [7]
    (refused,) = records(at, "tool_no_dispatch")
    assert (refused["reason"], refused["message"]) == (
        "policy_blocked",
        "Not run: the rules of this agent do not allow it. Less.",
    )


@pytest.mark.parametrize("ask", [True, "cents > 5000", lambda a: a.cents > 5000, lambda a: a["cents"] > 5000])
async def test_a_tool_that_asks_makes_its_batch_wait_and_says_until_when(tmp_path: Path, ask: Any) -> None:
    at, till = ground(), Till(ask=ask, ask_expires=60)
    assert await carry(clerk(tmp_path, till, 6000, 7, policy=[Rule("allow")]), at) is None
    assert not till.paid
    asked = records(at, "approval_requested")
    assert [one["ordinal"] for one in asked] == ([0, 1] if ask is True else [0])
    written = [event["at_ms"] for event in events_of(at.store) if event["type"] == "approval_requested"]
    assert all(0 <= written[0] + 60_000 - one["expires_at_ms"] < 10_000 for one in asked)


async def test_a_tool_that_asks_only_about_large_sums_is_sent_for_small_ones(tmp_path: Path) -> None:
    at, till = ground(), Till(ask="cents > 5000")
    assert isinstance(await carry(clerk(tmp_path, till, 5000), at), Completed)
    assert till.paid == [5000]


async def test_a_rule_that_cannot_be_evaluated_ends_the_run_and_the_next_send_works(tmp_path: Path) -> None:
    at, till = ground(), Till()

    def broken(arguments: dict[str, Any]) -> bool:
        return bool(arguments["euros"] > 5)

    result = await carry(clerk(tmp_path, till, policy=[Rule("ask", when=broken)]), at)
    assert isinstance(result, Failed)
    assert result.error is not None
    assert result.error.code == "policy_undecidable"
    assert "KeyError: 'euros'" in result.error.message
    assert not till.paid
    assert isinstance(await carry(clerk(tmp_path, till), at), Completed)


async def test_a_tool_that_asks_for_an_argument_it_does_not_have_ends_the_run_and_nothing_is_sent(tmp_path: Path) -> None:
    at, till = ground(), Till(ask=lambda a: a.euros > 50)
    result = await carry(clerk(tmp_path, till), at)
    assert isinstance(result, Failed)
    assert result.error is not None
    assert result.error.code == "policy_undecidable"
    assert "has no attribute 'euros'" in result.error.message
    assert not till.paid


async def test_a_call_whose_arguments_do_not_convert_is_refused_also_where_a_person_put_them_in_place(tmp_path: Path) -> None:
    asked: list[date] = []

    def later(a: Any) -> bool:
        asked.append(a.day)
        return bool(a.day > date(2026, 1, 1))

    @tool(ask=later)
    def book(day: date) -> str:
        return f"booked {day}"

    calls = [call("book", day="2026-02-30"), call("book", day="2026-02-03")]
    script = script_file(tmp_path / "m.json", {"calls": calls}, {"text": "done"})
    at = ground()
    async with Runtime(agents=[agent := Agent("a", model=script, tools=[book])], ground=at) as runtime:
        await (await runtime.session("s", agent=agent).send("go")).rest()
        (waiting,) = records(at, "approval_requested")
        with pytest.raises(UsageError, match="do not convert"):
            await runtime.approve(waiting["call_key"], arguments='{"day":"2026-02-31"}')
        handle = await runtime.approve(waiting["call_key"], arguments='{"day":"2026-02-28"}')
        assert handle is not None
        assert isinstance(await handle.result(), Completed)
    assert set(asked) == {date(2026, 2, 3), date(2026, 2, 28)}
    (refused,) = records(at, "tool_no_dispatch")
    assert (refused["ordinal"], refused["reason"]) == (0, "schema_invalid")
    assert "They do not convert: " in refused["message"]


async def test_an_agent_cannot_loosen_what_the_operator_says(tmp_path: Path, operator: Path) -> None:
    operator.write_text('[[policy]]\ndecision = "deny"\ntool = "pay"\nwhen = "cents > 5000"\nwhy = "Ask accounting."\n')
    at, till = ground(), Till()
    await carry(clerk(tmp_path, till, 6000, 7, policy=[Rule("allow")]), at)
    assert till.paid == [7]
    assert records(at, "tool_no_dispatch")[0]["message"].endswith("Ask accounting.")


async def test_an_operator_who_allows_a_call_has_nobody_asked_about_it(tmp_path: Path, operator: Path) -> None:
    operator.write_text('[[policy]]\ndecision = "allow"\ntool = "pay"\n')
    at, till = ground(), Till(ask=True)
    assert isinstance(await carry(clerk(tmp_path, till), at), Completed)
    assert till.paid == [6000]


BROKEN = {
    "missing": (None, "operator.toml cannot be read: No such file or directory; no run starts without it"),
    "no TOML": ("[[policy", "operator.toml: Expected"),
    "a key that nothing reads": ("polici = []", "operator.toml: Object contains unknown field `polici`"),
    "a rule of another word": ('[[policy]]\ndecision = "maybe"', "Invalid enum value 'maybe'"),
    "a condition that cannot be read": (
        '[[policy]]\ndecision = "deny"\nwhen = "x >"',
        "policy rule 1: deny * when x >: the condition",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
async def test_an_operator_file_that_cannot_be_used_refuses_the_run_and_writes_nothing(
    tmp_path: Path, operator: Path, name: str
) -> None:
    text, why = BROKEN[name]
    if text is not None:
        operator.write_text(text)
    at, till = ground(), Till()
    with pytest.raises(BadSettings) as caught:
        await carry(clerk(tmp_path, till), at)
    assert why in str(caught.value)
    assert not at.store.exists("s")
    assert not till.paid


async def test_the_operators_rules_of_today_act_on_what_a_dead_process_had_not_planned(tmp_path: Path, operator: Path) -> None:
    operator.write_text("")
    at, till = ground(), Till(ask=True)
    agent = clerk(tmp_path, till)
    assert await carry(agent, at) is None
    operator.unlink()
    async with Runtime(agents=[agent], ground=at, recover="manual") as runtime:
        with pytest.raises(BadSettings, match="no run starts without it"):
            await runtime.resume("s")
    assert records(at, "approval_requested")
    assert not records(at, "tool_batch_started")


def test_without_the_variable_there_are_no_operator_rules_and_a_pipe_is_not_read(tmp_path: Path) -> None:
    assert operator_rules({}) == []
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(BadSettings, match="it is no regular file"):
        operator_rules({POLICY_VARIABLE: str(tmp_path / "pipe")})


async def test_rules_that_cannot_hold_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    at, till = ground(), Till()
    with pytest.raises(BadAgent, match="agent 'a': deny pay when cent > 1: the tool pay, of which it speaks too"):
        await carry(clerk(tmp_path, till, policy=[Rule("deny", "pay", when="cent > 1")]), at)
    assert not at.store.exists("s")
    with pytest.raises(BadAgent, match="the policy of agent 'a' is a list of Rule"):
        Agent("a", model="scripted:x", policy=["deny pay"])  # type: ignore[list-item]  # that is the point


def test_a_table_says_all_that_a_rule_says() -> None:
    table = {"decision": "ask", "tool": "pay", "effect": "once", "when": "cents > 1", "why": "Large.", "expires": 5.0}
    assert rules_of([table]) == [Rule("ask", "pay", effect="once", when="cents > 1", why="Large.", expires=5.0)]


async def test_a_policy_that_nobody_asks_would_be_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from semel.core import plan
    from semel.core.policy import Allow

    monkeypatch.setattr(plan, "ruling_on", lambda *_call: Allow())
    till = Till()
    await carry(clerk(tmp_path, till, policy=[Rule("deny")]), ground())
    assert till.paid == [6000]
