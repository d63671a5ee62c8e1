"""What follows a complete turn: the order of the checks, what each compares, the warning in time, and the end by name."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from semel.core.limits import Limits
from semel.core.records import BudgetFired, RunCancelRequested, RunFinished, StepStarted
from semel.core.rules import Rulebook
from semel.core.state import Run, Session
from semel.core.turn import TurnFacts, after_turn
from semel.core.turn_view import TurnView
from semel.core.values import Effect, Money, Stop, ToolCall, Usage, UserMessage
from tests.core.driver import Died, Driver
from tests.core.machine import (
    Crashed,
    Machine,
    Script,
    World,
    call,
    crash_points,
    good,
    lives,
    say,
    tool,
    whole_run,
)
from tests.core.writes import folded

DOLLAR = Money(micros=1_000_000, currency="USD")


def reason_behind(cost: Money, limit: Money) -> str | None:
    """By which name a run ends that has cost so much; None if it goes on."""
    state, run = behind_a_turn(Limits(cost=limit))
    facts = TurnFacts(step_id=1, usage=Usage(cost=cost), output_misses=0, truncations=0)
    (*_fired, last), _effects = after_turn(state, run, facts)
    return last.reason if isinstance(last, RunFinished) else None


def behind_a_turn(limits: Limits, **more: Any) -> tuple[Session, Run]:
    script = Script(answers=[call("read"), say("done")], tools=[tool("read", Effect.READ)], limits=limits, **more)
    machine = Machine(World(), script, crash_at=1)
    with pytest.raises(Crashed):
        machine.start()
    assert machine.state.run is not None
    return machine.state, machine.state.run


@pytest.mark.parametrize(
    ("micros", "currency", "reason"),
    [
        (999_999, "USD", None),
        (1_000_000, "USD", "cost_limit"),
        (200_000_000, "JPY", "cost_currency"),
        (1, "JPY", "cost_currency"),
    ],
)
def test_a_cost_is_compared_in_its_own_currency_and_another_one_ends_the_run_by_name(
    micros: int, currency: str, reason: str | None
) -> None:
    assert reason_behind(Money(micros=micros, currency=currency), DOLLAR) == reason


def test_a_cost_limit_cannot_be_kept_where_an_answer_told_no_cost_and_the_run_says_so() -> None:
    def script(limits: Limits) -> Script:
        return Script(answers=[call("read"), say("done")], tools=[tool("read", Effect.READ)], limits=limits)

    limited = whole_run(script(Limits(cost=DOLLAR)))  # no answer of a script tells a cost
    assert (ended(limited), len(limited.requests)) == ("cost_unknown", 1)
    assert ended(whole_run(script(Limits()))) == "completed"


# the order of the checks (A2-A9)

Change = Callable[[Run, TurnFacts], tuple[Run, TurnFacts]]
LIMITS = Limits(steps=9, tokens=9, cost=DOLLAR, wall_ms=9, truncations=3, output_retries=3, repeated_calls=3)
CHECKS: list[tuple[str, str, Change]] = [
    ("cancelled", "", lambda run, facts: (replace(run, cancels=(RunCancelRequested(run_id=run.run_id, at="now"),)), facts)),
    ("error", "refusal", lambda run, facts: (run, replace(facts, stop=Stop.REFUSAL))),
    ("completed", "", lambda run, facts: (run, replace(facts, done=True))),
    ("max_steps", "stopped", lambda run, facts: (replace(run, stopping=True), facts)),
    ("error", "stop_condition", lambda run, facts: (run, replace(facts, ends="it broke"))),
    ("truncated", "truncated", lambda run, facts: (run, replace(facts, truncations=3))),
    ("cost_unknown", "cost_unknown", lambda run, facts: (run, replace(facts, unpriced=True))),
    ("repeated_calls", "repeated_calls", lambda run, facts: (replace(run, repeats=3), facts)),
    ("max_steps", "max_steps", lambda run, facts: (run, replace(facts, step_id=9))),
    ("token_limit", "token_limit", lambda run, facts: (run, replace(facts, usage=replace(facts.usage, input=9)))),
    ("cost_limit", "cost_limit", lambda run, facts: (run, replace(facts, usage=replace(facts.usage, cost=DOLLAR)))),
    ("time_limit", "time_limit", lambda run, facts: (replace(run, running_ms=9), facts)),
]


def ends_for(state: Session, run: Run, held: Sequence[bool]) -> tuple[str, str]:
    """How a run ends of which these checks are true."""
    facts = TurnFacts(step_id=1, usage=Usage(), output_misses=0, truncations=0)
    for (_reason, _code, change), holds in zip(CHECKS, held, strict=True):
        run, facts = change(run, facts) if holds else (run, facts)
    (*_fired, last), effects = after_turn(state, run, facts)
    if isinstance(last, StepStarted):
        return "next step", ""
    assert isinstance(last, RunFinished)
    assert not effects
    return last.reason, last.error.code if last.error is not None else ""


def first_of(held: Sequence[bool], order: Sequence[int] = range(len(CHECKS))) -> tuple[str, str]:
    """What the documented order says."""
    return next(((CHECKS[at][0], CHECKS[at][1]) for at in order if held[at]), ("next step", ""))


def test_a9_of_every_set_of_checks_that_hold_the_first_in_order_ends_the_run() -> None:
    state, run = behind_a_turn(LIMITS)
    run = replace(run, repeats=0, running_ms=0, unpriced=False)
    sets = list(itertools.product([False, True], repeat=len(CHECKS)))
    assert len(sets) == 4096
    wrong = [held for held in sets if ends_for(state, run, held) != first_of(held)]
    assert not wrong


@pytest.mark.parametrize("at", range(len(CHECKS) - 1))
def test_a9_two_checks_the_other_way_round_would_be_caught(at: int) -> None:
    state, run = behind_a_turn(LIMITS)
    run = replace(run, repeats=0, running_ms=0, unpriced=False)
    swapped = [*range(at), at + 1, at, *range(at + 2, len(CHECKS))]
    both = [place in (at, at + 1) for place in range(len(CHECKS))]
    assert ends_for(state, run, both) != first_of(both, swapped)


def stopping_at(step: int, seen: list[TurnView] | None = None) -> Rulebook:
    def condition(turn: TurnView) -> bool:
        if seen is not None:
            seen.append(turn)
        return turn.step_id >= step

    return Rulebook(stop_after_turn=condition)


def pending(d: Driver) -> set[str]:
    return {item.kind for item in d.state.pending}


@pytest.mark.parametrize("message", ["steer", "follow_up"])
@pytest.mark.parametrize("calls", [("pay",), ()])
def test_a7_the_condition_is_asked_before_steering_is_polled_and_leaves_the_message_unanswered(
    message: str, calls: tuple[str, ...]
) -> None:
    seen: list[TurnView] = []
    d = Driver(tools=[tool("pay")], policy=stopping_at(1, seen))
    d.send()
    d.message("m1", "and this", message)
    d.answer([*say("half"), *call(*calls)])
    if calls:
        d.back()
    ended = d.state.ended[d.state.newest or ""]
    assert (ended.reason, ended.output, ended.unanswered) == ("completed", "half", ("m1",))
    assert len(d.sent) == 1
    assert [(turn.step_id, turn.text, [one.text for one in turn.calls]) for turn in seen] == [(1, "half", ["ok"] * len(calls))]


def test_a8_without_calls_and_with_nothing_pending_the_run_ends_and_a_message_makes_one_more_step() -> None:
    for message, steps in ((None, 1), ("steer", 2), ("follow_up", 2)):
        d = Driver(tools=[tool("pay")])
        d.send()
        if message is not None:
            d.message("m1", "and this", message)
        d.answer(say("one"))
        if d.state.run is not None:
            d.answer(say("two"))
        assert (d.state.run, len(d.sent)) == (None, steps)


def test_a6_every_result_of_a_batch_has_to_ask_for_the_end_not_any() -> None:
    for wishes in itertools.product([False, True], repeat=3):
        d = Driver(tools=[tool("pay")])
        d.send()
        d.answer(call("pay", "pay", "pay"))
        d.back({at: good(terminate=wish) for at, wish in enumerate(wishes)})
        assert (d.state.run is None) is all(wishes)


def test_a10_a_cut_answer_runs_nothing_and_does_not_stop_the_loop() -> None:
    d = Driver(tools=[tool("pay")])
    d.send()
    d.answer(call("pay", "pay"), Stop.MAX_TOKENS)
    assert not d.dispatched
    assert [message.text for message in d.sent[-1][-2:]] == [  # type: ignore[union-attr]  # two results
        "Not run: your answer hit its output limit, so the call may be incomplete. Make it shorter."
    ] * 2


def test_con18_a_death_behind_the_turn_asks_the_condition_again_and_ends_the_run_alike() -> None:
    for tear in (1, 2, 3):
        d = Driver(tools=[tool("pay")], policy=stopping_at(1))
        d.send()
        d.answer([*say("half"), *call("pay")])
        d.tear = tear
        with pytest.raises(Died):
            d.back()
        d.die()
        d.resume()
        assert d.state.ended[d.state.newest or ""].reason == "completed"
        assert len(d.sent) == 1
        assert folded(d.writes) == d.state


@pytest.mark.parametrize("broken", [lambda _turn: 1 / 0, lambda _turn: "yes", lambda _turn: (_ for _ in ()).throw(SystemExit(1))])
def test_a14_a_condition_that_cannot_be_evaluated_ends_the_run_by_name(broken: Any) -> None:
    for blocks in ([*call("pay")], say("done")):
        d = Driver(tools=[tool("pay")], policy=Rulebook(stop_after_turn=broken))
        d.send()
        d.message("m1", "and this", "steer")
        d.answer(blocks)
        if d.flying:
            d.back()
        ended = d.state.ended[d.state.newest or ""]
        assert ended.error is not None
        assert (ended.reason, ended.error.kind, ended.error.code) == ("error", "policy", "stop_condition")


def test_a_typed_run_that_its_own_condition_ends_without_an_output_has_failed_by_name() -> None:
    schema = '{"type":"object","properties":{"n":{"type":"integer"}}}'
    d = Driver(tools=[tool("pay")], policy=stopping_at(1), output_schema=schema)
    d.send()
    d.answer(call("pay"))
    d.back()
    assert d.state.ended[d.state.newest or ""].reason == "output_invalid"


# budgets

ENDLESS = [call("read")] * 30
FRESH = [[ToolCall(id=f"c{n}", name="read", arguments=f'{{"n":{n}}}')] for n in range(30)]
BUDGETS: list[tuple[str, Limits, Sequence[Any], int, int]] = [
    # the end, the limits, the answers, behind which step it warns, behind which it ends
    ("max_steps", Limits(steps=5), FRESH, 4, 5),
    ("max_steps", Limits(steps=10), FRESH, 8, 10),
    ("token_limit", Limits(tokens=110), FRESH, 8, 10),
    ("repeated_calls", Limits(repeated_calls=5), ENDLESS, 4, 5),
    ("repeated_calls", Limits(), ENDLESS, 20, 25),
    ("time_limit", Limits(wall_ms=60), FRESH, 0, 0),
]


def fired(world: World) -> list[BudgetFired]:
    return [record for write in world.writes for record in write if isinstance(record, BudgetFired)]


def ended(world: World) -> str:
    state = world.state()
    return state.ended[state.newest or ""].reason


@pytest.mark.parametrize(("name", "limits", "answers", "warns", "ends"), BUDGETS)
def test_a_budget_warns_once_in_words_that_the_model_reads_and_then_ends_the_run_by_name(
    name: str, limits: Limits, answers: Sequence[Any], warns: int, ends: int
) -> None:
    world = whole_run(Script(answers=answers, tools=[tool("read", Effect.READ)], limits=limits))
    assert ended(world) == name
    (record,) = [record for record in fired(world) if record.budget == name]
    if warns:
        assert (record.step_id, len(world.requests)) == (warns, ends)
    assert record.notice is not None
    assert isinstance(record.notice.content, UserMessage)
    told = record.notice.content.text
    assert told.startswith("Notice: ")
    assert [told.encode() in request for request in world.requests].count(True) == len(world.requests) - record.step_id


@pytest.mark.parametrize(("name", "limits", "answers", "warns", "ends"), BUDGETS[:5])
def test_a_resume_honours_a_budget_wherever_the_run_is_cut_and_warns_no_second_time(
    name: str, limits: Limits, answers: Sequence[Any], warns: int, ends: int
) -> None:
    script = Script(answers=answers, tools=[tool("read", Effect.READ)], limits=limits)
    whole = whole_run(script)
    for crash in crash_points(whole):
        world = lives(script, [crash])
        assert ended(world) == name, crash
        assert len(fired(world)) == len(fired(whole)) == 1, crash
        assert set(world.requests) == set(whole.requests), crash


def test_a_turn_that_jumps_over_the_warning_fires_at_the_end_and_a_run_that_comes_to_no_budget_never() -> None:
    world = whole_run(Script(answers=FRESH, tools=[tool("read", Effect.READ)], limits=Limits(steps=3)))
    (record,) = fired(world)
    assert (record.budget, record.used, record.limit, record.notice) == ("max_steps", 3, 3, None)
    assert not fired(whole_run(Script(answers=[*FRESH[:3], say("done")], tools=[tool("read", Effect.READ)])))


def test_calls_that_differ_in_one_character_or_in_number_are_not_repeated() -> None:
    answers = [call("read"), call("read", "read"), call("read"), FRESH[3]] * 4
    world = whole_run(Script(answers=[*answers, say("done")], tools=[tool("read", Effect.READ)], limits=Limits(repeated_calls=2)))
    assert ended(world) == "completed"


def test_a_budget_that_is_forgotten_by_a_resume_would_be_caught() -> None:
    script = Script(answers=ENDLESS, tools=[tool("read", Effect.READ)], limits=Limits(repeated_calls=5))

    class Forgetful(Machine):
        """Counts from zero in every life."""

        def __post_init__(self) -> None:
            super().__post_init__()
            if self.state.run is not None:
                self.state = replace(self.state, run=replace(self.state.run, repeats=0, budgets=()))

    whole = whole_run(script)
    crash = crash_points(whole)[-4]
    world = lives(script, [crash], kind=Forgetful)
    assert len(world.requests) > len(whole.requests) + 1
