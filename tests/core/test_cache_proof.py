"""What a proof of the cache compares with: the last request that was answered, and nothing that nobody asked (P4 in money)."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from semel.core.decide import send
from semel.core.effects import Decision
from semel.core.records import CompactionViewApplied, Config, Entry, RunPaused, RunRefrozen
from semel.core.state import CacheProof
from semel.core.targets import cache_words, prefix_of, target_of
from semel.core.values import AssistantMessage, Opaque, Text, UserMessage
from tests.core.driver import Driver
from tests.core.machine import BUNDLE, call, say, tool
from tests.core.writes import folded

THOUGHTS = (Opaque(format="openai.reasoning", data="{}"), Text(text="Fine."))


def ask(driver: Driver, key: str, *, model: str = "a", family: str = "openai_responses", instructions: str = "be good") -> None:
    command = driver.command(key, "go on")
    config = replace(command.config, bundle=replace(BUNDLE, model=model, family=family))
    driver._do(send(driver.state, replace(command, config=config, instructions=instructions)))
    driver.fresh = False


def proofs(driver: Driver) -> tuple[CacheProof, ...]:
    """Of the newest run, which is over; the log says the same."""
    assert driver.state == folded(driver.writes)
    return driver.state.ended[driver.state.newest or ""].cache


def broken(driver: Driver) -> list[tuple[str, ...]]:
    return [proof.broken for proof in proofs(driver)]


def answered(blocks: tuple[Opaque | Text, ...] = (Text(text="Fine."),)) -> Driver:
    """A session that model a has answered once."""
    driver = Driver()
    ask(driver, "k0")
    driver.answer(blocks)
    return driver


def test_the_first_run_behind_an_imported_conversation_went_on_from_nothing() -> None:
    driver = Driver()
    driver.supply([UserMessage(text="hi"), AssistantMessage(blocks=(Text(text="hello"),))])
    ask(driver, "k1")
    driver.answer(say("one"))
    assert proofs(driver) == ()
    ask(driver, "k2")
    driver.answer(say("two"))
    assert broken(driver) == [()]


def test_a_run_behind_one_that_no_model_answered_went_on_from_nothing() -> None:
    driver = Driver()
    ask(driver, "k1")
    driver.fail(retryable=False)
    ask(driver, "k2")
    driver.answer(say("one"))
    assert proofs(driver) == ()


def test_a_resume_of_the_first_run_went_on_from_its_own_request() -> None:
    driver = Driver()
    ask(driver, "k1")
    driver.die()
    driver.resume()
    driver.answer(say("one"))
    assert broken(driver) == [()]


@pytest.mark.parametrize(
    ("failed", "again", "expected"),
    [
        ({"model": "b"}, {"model": "b"}, [("model",)]),
        ({"model": "b"}, {}, [()]),
        ({"instructions": "be quick"}, {"instructions": "be quick"}, [("instructions",)]),
        ({"instructions": "be quick"}, {}, [()]),
    ],
)
def test_a_run_that_failed_is_not_what_the_next_one_is_compared_with(
    failed: dict[str, str], again: dict[str, str], expected: list[tuple[str, ...]]
) -> None:
    driver = answered()
    ask(driver, "k1", **failed)
    driver.fail(retryable=False)
    ask(driver, "k2", **again)
    driver.answer(say("two"))
    assert broken(driver) == expected
    ask(driver, "k3", **again)
    driver.answer(say("three"))
    assert broken(driver) == [()]


def test_state_that_was_refused_in_a_run_that_failed_is_told_by_the_next_one() -> None:
    driver = answered(THOUGHTS)
    ask(driver, "k1")
    driver.fail(failure="opaque_state_rejected", retryable=False)
    driver.fail(failure="opaque_state_rejected", retryable=False)
    assert driver.state.run is None
    ask(driver, "k2")
    driver.answer(say("two"))
    assert broken(driver) == [("provider_state",)]
    ask(driver, "k3")
    driver.answer(say("three"))
    assert broken(driver) == [()]


@pytest.mark.parametrize(
    ("family", "other"), [("openai_responses", {"model": "b"}), ("anthropic_messages", {"instructions": "be quick"})]
)
def test_state_that_a_failed_run_left_out_is_told_by_the_next_one_that_is_like_the_one_before(
    family: str, other: dict[str, str]
) -> None:
    driver = Driver()
    ask(driver, "k0", family=family)
    driver.answer(THOUGHTS)
    ask(driver, "k1", family=family, **other)
    driver.fail(retryable=False)
    ask(driver, "k2", family=family)
    driver.answer(say("two"))
    assert broken(driver) == [("provider_state_left_out",)]
    assert cache_words(proofs(driver)[0]).startswith("prefix broken by provider state that is left out, ")


def test_another_view_of_the_past_is_another_prefix() -> None:
    driver = answered()
    summary = (Entry(entry_id="v", content=UserMessage(text="All was fine.")),)
    view = CompactionViewApplied(
        version=1, start=0, end=2, replacement=summary, applied="as_published", digest="d", estimate_tokens=1
    )
    driver._do(Decision(records=(view,)))
    for key, expected in (("k1", ("view",)), ("k2", ())):
        ask(driver, key)
        driver.answer(say(key))
        assert broken(driver) == [expected]


def refrozen(driver: Driver, change: Callable[[Config], Config]) -> None:
    """The open run, left by a death, goes on with another config."""
    run = driver.state.run
    assert run is not None
    driver.die()
    entry = Entry(entry_id="refrozen", content=change(run.config))
    waits = RunPaused(run_id=run.run_id, reason="auth_required", ts_ms=1)
    driver._do(Decision(records=(waits, RunRefrozen(run_id=run.run_id, config="refrozen", entries=(entry,)))))


def elsewhere(config: Config) -> Config:
    return replace(config, bundle=replace(config.bundle, endpoint="http://127.0.0.1:9"))


def typed(config: Config) -> Config:
    return replace(config, output_schema='{"type":"object"}')


@pytest.mark.parametrize("change", [elsewhere, typed])
def test_a_run_that_is_frozen_anew_asks_another_target_behind_another_prefix(change: Callable[[Config], Config]) -> None:
    driver = Driver(tools=[tool("read")])
    ask(driver, "k1")
    refrozen(driver, change)
    run = driver.state.run
    assert run is not None
    assert driver.state.target == target_of(run.config.bundle)
    assert driver.state.prefix == prefix_of(run.instructions, run.tools, run.config)
    assert driver.state == folded(driver.writes)
    assert not run.asks_again


def test_what_a_run_asked_before_it_was_frozen_anew_is_no_earlier_attempt() -> None:
    for change, expected in ((elsewhere, []), (lambda config: config, [()])):
        driver = Driver(tools=[tool("read")])
        ask(driver, "k1")
        refrozen(driver, change)
        driver.requests.clear()  # this driver holds each attempt of a step to the bytes of the first
        driver.resume()
        driver.answer(call("read"))
        driver.back()
        driver.answer(say("done"))
        assert broken(driver) == expected
