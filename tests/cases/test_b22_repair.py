"""B22, wire 0.2: what a provider refuses of its own state is dropped once, by a record; so is what another start has voided."""

from typing import Any

import pytest
from msgspec.structs import replace

from semel.core.decide import send
from semel.core.effects import Decision
from semel.core.records import CompactionViewApplied, Entry, OpaqueStateVoided, RunFinished, StepStarted
from semel.core.state import CacheProof
from semel.core.transcript import holds_opaque
from semel.core.values import AssistantMessage, Effect, Message, Opaque, Text, UserMessage
from tests.core.driver import Driver
from tests.core.machine import BUNDLE, tool
from tests.core.writes import folded

THOUGHT = Opaque(format="anthropic.thinking", data='{"type":"thinking","thinking":"hm","signature":"x"}')
ANSWER = (THOUGHT, Text(text="Fine."))


def asked_as(
    driver: Driver, key: str, *, family: str = "anthropic_messages", model: str = "m", instructions: str = "be good"
) -> None:
    command = driver.command(key, "go on")
    config = replace(command.config, bundle=replace(BUNDLE, family=family, model=model))
    driver._do(send(driver.state, replace(command, config=config, instructions=instructions)))


def records(driver: Driver, kind: type) -> list[object]:
    return [record for write in driver.writes for record in write.records if isinstance(record, kind)]


def cache_of(driver: Driver) -> tuple[CacheProof, ...]:
    """What the newest run, which is over, says of the cache."""
    return driver.state.ended[driver.state.newest or ""].cache


def opaque_in(messages: list[Message]) -> int:
    return sum(message.opaque for message in messages if isinstance(message, AssistantMessage))


def thinker() -> Driver:
    """A session whose one answer has provider state, with its next run under way."""
    driver = Driver()
    asked_as(driver, "k1")
    driver.answer(ANSWER)
    asked_as(driver, "k2")
    return driver


def refuse(driver: Driver) -> None:
    driver.fail(failure="opaque_state_rejected", retryable=False)


def test_b22_a_refusal_is_repaired_once_and_the_record_stands_before_the_request_without_the_state() -> None:
    driver = thinker()
    assert opaque_in(driver.sent[-1]) == 1
    refuse(driver)
    assert records(driver, OpaqueStateVoided) == [
        OpaqueStateVoided(run_id=driver.state.newest or "", reason="rejected", step_id=1)
    ]
    assert [opaque_in(messages) for messages in driver.sent] == [0, 1, 0]
    driver.answer(ANSWER)
    asked_as(driver, "k3")
    assert opaque_in(driver.sent[-1]) == 1  # what came behind the repair is shown again
    assert driver.state == folded(driver.writes)


def test_b22_a_second_refusal_ends_the_run_by_name() -> None:
    driver = thinker()
    refuse(driver)
    refuse(driver)
    assert len(driver.sent) == 3
    end = records(driver, RunFinished)[-1]
    assert isinstance(end, RunFinished)
    assert end.error is not None
    assert (end.reason, end.error.code) == ("error", "opaque_state_rejected")
    asked_as(driver, "k3")
    driver.answer(ANSWER)


def test_b22_without_any_state_there_is_nothing_to_repair() -> None:
    driver = Driver()
    asked_as(driver, "k1")
    refuse(driver)
    assert (len(driver.sent), records(driver, OpaqueStateVoided)) == (1, [])


def test_b22_a_death_between_the_refusal_and_the_request_without_the_state_changes_nothing() -> None:
    driver = thinker()
    refuse(driver)
    repaired = driver.sent[-1]
    driver.die()
    driver.resume()
    assert driver.sent[-1] == repaired
    assert driver.asking is not None
    assert driver.asking.attempt == 2
    refuse(driver)  # the one repair of the run is in the log
    assert driver.state.run is None


def test_b22_a_death_before_the_repair_is_durable_asks_again_and_is_repaired_then() -> None:
    driver = thinker()
    driver.die()
    driver.resume()
    assert opaque_in(driver.sent[-1]) == 1
    refuse(driver)
    assert opaque_in(driver.sent[-1]) == 0


def test_state_that_is_bound_to_what_stood_before_it_is_not_shown_behind_another_start() -> None:
    for family, shown in (("anthropic_messages", 0), ("bedrock_converse", 0), ("openai_responses", 1), ("gemini", 1)):
        driver = Driver()
        asked_as(driver, "k1", family=family)
        driver.answer(ANSWER)
        asked_as(driver, "k2", family=family, instructions="be quick")
        assert opaque_in(driver.sent[-1]) == shown, family
        voided = [record for record in driver.writes[-1].records if isinstance(record, OpaqueStateVoided | StepStarted)]
        reasons = [record.reason for record in voided if isinstance(record, OpaqueStateVoided)]
        assert reasons == ([] if shown else ["prefix_changed"]), family
        assert driver.state == folded(driver.writes)


def test_an_equal_start_keeps_it() -> None:
    driver = thinker()
    assert opaque_in(driver.sent[-1]) == 1
    assert records(driver, OpaqueStateVoided) == []


SEEN = tool("look", Effect.READ, timeout_ms=1000)


@pytest.mark.parametrize(
    ("change", "shown"),
    [
        ({"effect": Effect.IDEMPOTENT}, 1),
        ({"timeout_ms": None}, 1),
        ({"reconciles": True, "sequential": True, "interruptible": False}, 1),
        ({"name": "see"}, 0),
        ({"description": "Look twice."}, 0),
        ({"parameters": '{"type":"object","properties":{}}'}, 0),
    ],
)
def test_it_is_bound_to_what_a_model_sees_of_the_tools_and_to_nothing_else_of_them(change: dict[str, Any], shown: int) -> None:
    driver = Driver(tools=[SEEN])
    asked_as(driver, "k1")
    driver.answer(ANSWER)
    driver.tools = [replace(SEEN, **change)]
    asked_as(driver, "k2")
    assert opaque_in(driver.sent[-1]) == shown
    driver.answer(ANSWER)
    assert [proof.broken for proof in cache_of(driver)] == [() if shown else ("tools",)]
    assert driver.state == folded(driver.writes)


def test_a_view_of_the_past_voids_what_is_bound_to_it() -> None:
    """The record of the view is the decision: what the models of these families thought before is behind another start now."""
    for family, shown in (("anthropic_messages", 0), ("openai_responses", 1)):
        driver = Driver()
        for key in ("k1", "k2"):
            asked_as(driver, key, family=family)
            driver.answer(ANSWER)
        summary = (Entry(entry_id="v", content=UserMessage(text="All was fine.")),)
        view = CompactionViewApplied(
            version=1, start=0, end=2, replacement=summary, applied="as_published", digest="d", estimate_tokens=1
        )
        driver._do(Decision(records=(view,)))
        asked_as(driver, "k3", family=family)
        assert opaque_in(driver.sent[-1]) == shown, family


def with_thoughts_in_a_view(family: str) -> Driver:
    """A session of one model whose past was replaced by a summary that carries provider state."""
    driver = Driver()
    asked_as(driver, "k1", family=family)
    driver.answer([Text(text="Fine.")])
    said = (
        UserMessage(text="All of it."),
        AssistantMessage(blocks=ANSWER),
    )
    replacement = tuple(Entry(entry_id=f"v{at}", content=message) for at, message in enumerate(said))
    view = CompactionViewApplied(
        version=1, start=0, end=2, replacement=replacement, applied="as_published", digest="d", estimate_tokens=1
    )
    driver._do(Decision(records=(view,)))
    return driver


def test_m4_provider_state_in_a_view_goes_to_its_own_model_only() -> None:
    for model, shown in (("m", 1), ("other", 0)):
        driver = with_thoughts_in_a_view("openai_responses")
        assert holds_opaque(driver.state)
        asked_as(driver, "k2", family="openai_responses", model=model)
        assert opaque_in(driver.sent[-1]) == shown, model
        answers = [message for message in driver.sent[-1] if isinstance(message, AssistantMessage)]
        assert [answer.blocks[-1] for answer in answers] == [Text(text="Fine.")]
        assert holds_opaque(driver.state) is bool(shown)
        assert driver.state == folded(driver.writes)


def test_b22_provider_state_in_a_view_that_is_refused_is_repaired() -> None:
    driver = with_thoughts_in_a_view("openai_responses")
    asked_as(driver, "k2", family="openai_responses")
    refuse(driver)
    assert [opaque_in(messages) for messages in driver.sent] == [0, 1, 0]


def test_provider_state_in_a_view_is_not_shown_to_a_model_that_binds_it_to_what_stood_before() -> None:
    driver = with_thoughts_in_a_view("anthropic_messages")
    asked_as(driver, "k2")
    assert opaque_in(driver.sent[-1]) == 0
