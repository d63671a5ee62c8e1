"""B22, wire 0.2: what a provider refuses of its own state is dropped once, by a record; so is what another start has voided."""

from msgspec.structs import replace

from semel.core.decide import send
from semel.core.effects import Decision
from semel.core.records import CompactionViewApplied, Entry, OpaqueStateVoided, RunFinished, StepStarted
from semel.core.values import AssistantMessage, Message, Opaque, Text, UserMessage
from tests.core.driver import Driver
from tests.core.machine import BUNDLE
from tests.core.writes import folded

THOUGHT = Opaque(format="anthropic.thinking", data='{"type":"thinking","thinking":"hm","signature":"x"}')
ANSWER = (THOUGHT, Text(text="Fine."))


def asked_as(driver: Driver, key: str, *, family: str = "anthropic_messages", instructions: str = "be good") -> None:
    command = driver.command(key, "go on")
    config = replace(command.config, bundle=replace(BUNDLE, family=family))
    driver._do(send(driver.state, replace(command, config=config, instructions=instructions)))


def records(driver: Driver, kind: type) -> list[object]:
    return [record for write in driver.writes for record in write.records if isinstance(record, kind)]


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
