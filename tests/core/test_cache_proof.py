"""What a proof of the cache compares with: the last request that was answered, and nothing that nobody asked (P4 in money)."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from semel.core.decide import send
from semel.core.effects import Decision
from semel.core.records import CompactionViewApplied, Config, Entry, OpaqueStateVoided, RunPaused, RunRefrozen
from semel.core.state import CacheProof
from semel.core.targets import asked_of, cache_words, prefix_of, target_of
from semel.core.values import AssistantMessage, Opaque, Text, UserMessage
from tests.core.driver import Driver
from tests.core.machine import BUNDLE, call, say, tool
from tests.core.scripts_gated import Tagger
from tests.core.writes import folded

THOUGHTS = (Opaque(format="openai.reasoning", data="{}"), Text(text="Fine."))


def ask(
    driver: Driver,
    key: str,
    *,
    model: str = "a",
    family: str = "openai_responses",
    instructions: str = "be good",
    bundle: dict[str, Any] | None = None,
    **config_changes: Any,
) -> None:
    command = driver.command(key, "go on")
    asked = replace(BUNDLE, **{"model": model, "family": family, **(bundle or {})})
    config = replace(command.config, bundle=asked, **config_changes)
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


OPTIONS = '{"dialect":{"max_tokens":9},"body":{"temperature":0.5}}'


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"options": OPTIONS}, ("options",)),
        ({"options": "not of this build"}, ("options",)),
        ({"max_output_tokens": 9}, ("options",)),
        ({"renderer": 2}, ("renderer",)),
        ({"renderer": 2, "options": OPTIONS}, ("options", "renderer")),
        ({"options": '{"price":{"currency":"USD","input":"1","output":"2"}}'}, ()),
        ({"options": '{"dialect":{"auth":"sigv4","region":"r","done_required":false}}'}, ()),
    ],
)
def test_options_that_a_request_shows_break_its_start_and_those_that_it_does_not_show_do_not(
    changes: dict[str, Any], expected: tuple[str, ...]
) -> None:
    driver = answered()
    ask(driver, "k1", bundle=changes)
    driver.answer(say("two"))
    assert broken(driver) == [expected]
    ask(driver, "k2", bundle=changes)
    driver.answer(say("three"))
    assert broken(driver) == [()]


@pytest.mark.parametrize("family", ["openai_responses", "anthropic_messages"])
@pytest.mark.parametrize("first", [True, False])
def test_tags_that_are_shown_or_hidden_from_now_on_change_what_was_said(family: str, first: bool) -> None:
    """And for models that sign what stands before their thinking it is left out, as behind other instructions."""
    driver = Tagger()
    ask(driver, "k0", family=family, render_tags=first)
    driver.answer(THOUGHTS)
    ask(driver, "k1", family=family, render_tags=first)
    driver.answer(say("two"))
    assert broken(driver) == [()]
    ask(driver, "k2", family=family, render_tags=not first)
    voided = [record for write in driver.writes for record in write.records if isinstance(record, OpaqueStateVoided)]
    assert [record.reason for record in voided] == (["prefix_changed"] if family == "anthropic_messages" else [])
    shown = [message.text for message in driver.sent[-1] if isinstance(message, UserMessage)]
    assert all(text.startswith("\u00a7") is not first for text in shown)
    driver.answer(say("three"))
    assert broken(driver) == [("tags",)]
    assert cache_words(proofs(driver)[0]).startswith("prefix broken by tags that are shown or hidden now, ")


def test_showing_tags_changes_nothing_where_nothing_that_was_said_has_one() -> None:
    driver = answered()
    ask(driver, "k1", render_tags=True)
    driver.answer(say("two"))
    assert broken(driver) == [()]


@pytest.mark.parametrize("planted", ["manner_of", "shows"])
def test_a_proof_that_looks_at_neither_options_nor_tags_is_caught(planted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: with the fault the same histories say that the prefix is identical."""
    if planted == "manner_of":
        monkeypatch.setattr("semel.core.fold_run.manner_of", lambda _config: "1\nalike")
    else:
        monkeypatch.setattr("semel.core.fold_run.asked_of", lambda state: (*asked_of(state)[:3], ""))
    driver = Tagger()
    ask(driver, "k0")
    driver.answer(say("one"))
    ask(driver, "k1", bundle={"options": OPTIONS}, render_tags=True)
    driver.answer(say("two"))
    assert broken(driver) == [("tags",) if planted == "manner_of" else ("options",)]


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


def shorter(config: Config) -> Config:
    return replace(config, bundle=replace(config.bundle, max_output_tokens=9))


@pytest.mark.parametrize("change", [elsewhere, typed, shorter])
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
    for change, expected in ((elsewhere, []), (shorter, []), (lambda config: config, [()])):
        driver = Driver(tools=[tool("read")])
        ask(driver, "k1")
        refrozen(driver, change)
        driver.requests.clear()  # this driver holds each attempt of a step to the bytes of the first
        driver.resume()
        driver.answer(call("read"))
        driver.back()
        driver.answer(say("done"))
        assert broken(driver) == expected
