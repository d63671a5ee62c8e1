"""Rules: the first that matches, whose list comes first, what no list may loosen, and what becomes of a call by each decision."""

import itertools
import re
from collections.abc import Callable
from typing import Any

import pytest

from semel.core.policy import Allow, Ask, Deny, Ruling, Undecidable
from semel.core.records import ApprovalRequested
from semel.core.rules import EXPIRES_SECONDS_MOST, Rule, Rulebook, UnfitArguments, ask_rule, check_rules
from semel.core.values import JSON, Effect, ToolCall, ToolSpec
from semel.errors import ApprovalClosed, BadAgent, UsageError
from tests.core.driver import Died, Driver
from tests.core.machine import call, good, say, tool
from tests.core.writes import folded

PAY = ToolSpec(
    name="pay",
    description="Pay.",
    parameters='{"type":"object","properties":{"cents":{"type":"integer"},"to":{"type":"string"}},"required":["cents"]}',
)
READ = tool("read_file", Effect.READ)
BROKEN = Rule("deny", when="to > 3")
RULE_OF = {
    "allow": Rule("allow"),
    "deny": Rule("deny"),
    "ask": Rule("ask"),
    "broken": BROKEN,
    "none": None,
    "other": Rule("deny", "x"),
}


def word(ruling: Ruling) -> str:
    return {Allow: "allow", Deny: "deny", Ask: "ask", Undecidable: "broken"}[type(ruling)]


def ruled(operator: str, agent: str, own: str) -> str:
    """What three lists of one rule each come to, for a call of `pay`."""
    lists = [[rule] if (rule := RULE_OF[name]) is not None else [] for name in (operator, agent, own)]
    book = Rulebook(operator=lists[0], agent=lists[1], tools=lists[2])
    return word(book(PAY, {"cents": 1}))


def expected(operator: str, agent: str, own: str) -> str:
    """The rule in words: the operator, else the agent, whose allow does not silence the tool; else allowed."""
    silent = {"none", "other"}
    if operator not in silent:
        return operator
    if agent not in silent | {"allow"}:
        return agent
    return own if own not in silent else "allow"


CELLS = list(itertools.product(RULE_OF, RULE_OF, ["none", "ask", "broken"]))


@pytest.mark.parametrize(("operator", "agent", "own"), CELLS)
def test_the_operator_comes_first_then_the_agent_and_no_allow_of_the_agent_silences_a_tool(
    operator: str, agent: str, own: str
) -> None:
    assert ruled(operator, agent, own) == expected(operator, agent, own)


def test_the_table_has_all_its_cells_and_an_agent_that_comes_first_would_be_caught() -> None:
    assert len(CELLS) == 108
    agent_first = [cell for cell in CELLS if ruled(cell[1], cell[0], cell[2]) != expected(*cell)]
    assert len(agent_first) > 20


MATCHES = [
    (Rule("deny", "pay"), True),
    (Rule("deny", "p*"), True),
    (Rule("deny", "P*"), False),
    (Rule("deny", "p?y"), True),
    (Rule("deny", "pa"), False),
    (Rule("deny", effect="once"), True),
    (Rule("deny", effect=Effect.READ), False),
    (Rule("deny", "pay", effect="read"), False),
    (Rule("deny", when="cents > 5000"), True),
    (Rule("deny", when="cents > 6000"), False),
    (Rule("deny", when=lambda a: a["cents"] > 5000), True),
    (Rule("deny", when=lambda a: a["cents"] > 6000), False),
    (Rule("deny", "read*", when="nothing > 3"), False),
]


@pytest.mark.parametrize(("rule", "found"), MATCHES, ids=[rule.told() for rule, _ in MATCHES])
def test_a_rule_speaks_of_a_tool_an_effect_and_arguments(rule: Rule, found: bool) -> None:
    assert rule.matches(PAY, {"cents": 6000}) is found


@pytest.mark.parametrize("order", list(itertools.permutations(["allow", "deny", "ask"])))
def test_within_a_list_the_first_rule_that_matches_decides(order: tuple[Any, ...]) -> None:
    rules = [Rule("deny", "other"), *(Rule(decision) for decision in order)]
    assert word(Rulebook(agent=rules)(PAY, {"cents": 1})) == order[0]


def raising(_arguments: dict[str, JSON]) -> bool:
    raise KeyError("cents")


def leaving(_arguments: dict[str, JSON]) -> bool:
    raise SystemExit(3)


@pytest.mark.parametrize("when", ["to > 3", raising, leaving, lambda _arguments: "yes", lambda _arguments: None])
@pytest.mark.parametrize("decision", ["allow", "deny", "ask"])
def test_con4_a_rule_that_cannot_be_evaluated_is_no_no_and_no_yes(decision: Any, when: Any) -> None:
    ruling = Rulebook(agent=[Rule(decision, when=when), Rule("allow")])(PAY, {"cents": 1})
    assert isinstance(ruling, Undecidable)
    assert ruling.why.startswith(f"rule 1 of the agent ({decision} *")


def test_a_condition_that_is_a_function_cannot_change_the_arguments() -> None:
    def greedy(arguments: dict[str, JSON]) -> bool:
        arguments["cents"] = 0
        return False

    arguments = {"cents": 6000}
    Rulebook(agent=[Rule("deny", when=greedy)])(PAY, arguments)
    assert arguments == {"cents": 6000}


ODD: list[tuple[Callable[[], Rule | None], str]] = [
    (lambda: Rule("refuse"), "a rule is allow, deny, ask, not 'refuse'"),  # type: ignore[arg-type]  # that is the point
    (lambda: Rule("deny", ""), "a rule names a tool, or a pattern like 'git_*', not ''"),
    (lambda: Rule("deny", effect="twice"), "effect is once, idempotent, read, not 'twice'"),  # type: ignore[arg-type]  # as above
    (lambda: Rule("deny", when="cents >"), "deny * when cents >: the condition cannot be read: at character 8"),
    (lambda: Rule("deny", when=5), "a condition is a text or a function of the arguments, not 5"),  # type: ignore[arg-type]  # as above
    (lambda: Rule("deny", why="x" * 501), "why is a text of at most 500 characters"),
    (lambda: Rule("deny", expires=5), "only `ask` expires"),
    (lambda: Rule("ask", expires=0), "only `ask` expires, after a number of seconds"),
    (lambda: Rule("ask", expires=True), "only `ask` expires"),
    (lambda: Rule("ask", expires=EXPIRES_SECONDS_MOST * 2), "only `ask` expires"),
    (lambda: ask_rule("pay", ask=False, expires=5), "tool 'pay': ask_expires is for a tool that asks"),
    (lambda: ask_rule("pay", ask="cents >", expires=None), "tool 'pay': ask pay when cents >: the condition cannot be read"),
]


@pytest.mark.parametrize(("odd", "why"), ODD, ids=[why for _, why in ODD])
def test_a_rule_that_makes_no_sense_is_refused_by_name(odd: Callable[[], Rule | None], why: str) -> None:
    with pytest.raises(BadAgent, match=re.escape(why)):
        odd()


def test_a_condition_on_an_argument_that_no_tool_of_the_rule_has_is_refused() -> None:
    fits = [Rule("deny", "pay", when="cents > 1"), Rule("deny", "*", "read", when="n > 1"), Rule("deny", "gone", when="x")]
    check_rules(fits, [PAY, READ])
    with pytest.raises(BadAgent, match="the tool pay, of which it speaks too, has no argument cent; there are cents, to"):
        check_rules([Rule("deny", when="cents > 1 and cent > 1")], [PAY, READ])


# what becomes of a call


def one_call(policy: Rulebook, arguments: str = '{"cents":6000}') -> Driver:
    d = Driver(tools=(PAY, tool("look", Effect.READ)), policy=policy)
    d.send()
    d.answer([ToolCall(id="a", name="pay", arguments=arguments), *call("look")])
    return d


def test_a_denied_call_tells_the_model_why_and_its_siblings_run() -> None:
    d = one_call(Rulebook(agent=[Rule("deny", "pay", when="cents > 5000", why="Pay in parts of 50.00.")]))
    d.back()
    said = [message.text for message in d.sent[-1][-2:]]  # type: ignore[union-attr]  # two results
    assert said == ["Not run: the rules of this agent do not allow it. Pay in parts of 50.00.", "ok"]
    assert {d.tool_of[key] for key in d.dispatched} == {"look"}


def test_a_rule_that_does_not_say_why_is_told_itself() -> None:
    d = one_call(Rulebook(operator=[Rule("deny", "pay", when="cents > 5000")]))
    d.back()
    assert d.sent[-1][-2].text.endswith("The rule is: deny pay when cents > 5000.")  # type: ignore[union-attr]  # a result


def test_con4_an_undecidable_rule_ends_the_run_by_name_and_nothing_of_the_batch_is_sent() -> None:
    d = one_call(Rulebook(agent=[BROKEN]))
    ended = d.state.ended[d.state.newest or ""]
    assert ended.error is not None
    assert (ended.reason, ended.error.kind, ended.error.code) == ("error", "policy", "policy_undecidable")
    assert "call 0 of pay: rule 1 of the agent (deny * when to > 3) cannot be evaluated: to is null" in ended.error.message
    assert not d.dispatched


def asking(**more: Any) -> Rulebook:
    return Rulebook(agent=[Rule("ask", "pay", when="cents > 5000", **more)], now_ms=lambda: 1_000)


def asked_of(d: Driver) -> ApprovalRequested:
    (asked,) = [record for write in d.writes for record in write.records if isinstance(record, ApprovalRequested)]
    return asked


def test_a_batch_waits_for_its_answers_and_the_question_says_the_rule_and_when_silence_is_a_no() -> None:
    d = one_call(asking(why="Large.", expires=3600))
    asked = asked_of(d)
    assert (asked.rule, asked.expires_at_ms) == ("ask pay when cents > 5000: Large.", 3_601_000)
    assert not d.dispatched
    d.expire(3_600_999)
    assert not d.dispatched
    d.expire(3_601_000)
    d.back()
    assert d.sent[-1][-2].text == "Not run: nobody approved this call in time."  # type: ignore[union-attr]  # a result
    assert {d.tool_of[key] for key in d.dispatched} == {"look"}


@pytest.mark.parametrize("died", [False, True])
def test_an_approval_stands_whatever_the_rules_say_by_now_and_a_new_rule_acts_on_what_is_not_planned(died: bool) -> None:
    d = one_call(asking())
    d.policy = Rulebook(operator=[Rule("deny", "pay"), Rule("deny", "look")])
    if died:
        d.die()
        d.answer_approval(asked_of(d).call_key, "approved")
        d.resume()
    else:
        d.answer_approval(asked_of(d).call_key, "approved")
    assert {d.tool_of[key] for key in d.dispatched} == {"pay"}


def test_changed_arguments_are_a_new_digest_are_recorded_and_are_what_leaves() -> None:
    d = one_call(asking())
    key = asked_of(d).call_key
    d.answer_approval(key, "approved", '{"cents":4000}')
    intents = [record for record in d.writes[-1].records if type(record).__name__ == "ToolDispatchIntent"]
    assert [intent.args for intent in intents] == ['{"cents":4000}', None]  # type: ignore[attr-defined]  # intents
    assert intents[0].args_digest != asked_of(d).args_digest  # type: ignore[attr-defined]  # as above
    assert d.state.run is not None
    assert d.state.run.step is not None
    assert d.state.run.step.arguments(0) == '{"cents":4000}'
    with pytest.raises(ApprovalClosed):
        d.answer_approval(key, "approved", '{"cents":4001}')
    assert folded(d.writes) == d.state


@pytest.mark.parametrize("arguments", ['{"cents":9000}', '{"cents":7000,"to":"x"}'])
def test_what_a_rule_forbids_a_person_cannot_put_in_place_of_what_was_asked(arguments: str) -> None:
    rules = [
        Rule("deny", "pay", when="cents > 8000"),
        Rule("deny", "pay", when="to != null"),
        Rule("ask", "pay", when="cents > 5000"),
    ]
    d = one_call(Rulebook(operator=rules))
    with pytest.raises(UsageError, match="are not allowed: The rule is: deny"):
        d.answer_approval(asked_of(d).call_key, "approved", arguments)
    d.policy = Rulebook()  # the one who answers has no rules, as where nobody carries the run
    d.tear = 1
    with pytest.raises(Died):
        d.answer_approval(asked_of(d).call_key, "approved", arguments)
    d.die()
    d.policy = Rulebook(operator=rules)
    d.resume()
    assert {d.tool_of[key] for key in d.dispatched} == {"look"}


def test_a_person_cannot_put_in_place_what_the_tool_would_not_take() -> None:
    def large(arguments: dict[str, JSON]) -> bool:
        if arguments["cents"] == 13:
            raise UnfitArguments("it brings bad luck")
        return arguments["cents"] > 5000  # type: ignore[no-any-return,operator]  # a number, by the schema

    d = one_call(Rulebook(agent=[Rule("ask", "pay", when=large)]))
    with pytest.raises(UsageError, match=r"cannot be used\. They do not convert: it brings bad luck"):
        d.answer_approval(asked_of(d).call_key, "approved", '{"cents":13}')
    d.answer_approval(asked_of(d).call_key, "approved", '{"cents":12}')


def test_a_person_who_changes_arguments_is_not_asked_about_them_again() -> None:
    d = one_call(asking())
    d.answer_approval(asked_of(d).call_key, "approved", '{"cents":5500}')
    d.back()
    d.answer(say("done"))
    assert d.state.run is None
    assert good().text == d.sent[-1][-2].text  # type: ignore[union-attr]  # a result
