"""B05: a steer that comes while calls run stands behind all of their results, is there once, and is never lost."""

from contextlib import suppress

import pytest

from semel.core.outcomes import SentButOutcomeUnknown, settle
from semel.core.uncertainty import LostReason
from semel.core.values import Effect, Message, ToolMessage, UserMessage
from tests.core.cast import driver
from tests.core.driver import Died, Driver
from tests.core.machine import call, good, say
from tests.core.quiet import quiesce

STEER = "use gamma instead"


def kinds(said: list[Message]) -> list[str]:
    return [
        f"tool {message.tool_call_id}" if isinstance(message, ToolMessage) else STEER if message.text == STEER else "…"
        for message in said
    ]


def steered(*names: str) -> Driver:
    d = driver()
    d.send()
    d.answer(call(*names))
    d.message("s1", STEER, "steer")
    return d


def test_b05_both_calls_finish_and_the_steer_stands_behind_them() -> None:
    d = steered("deploy", "read")  # one at a time: read waits for deploy
    d.back({0: good("a")})
    d.back({1: good("b")})
    assert kinds(d.sent[-1])[2:] == ["tool deploy-0", "tool read-1", STEER]


def test_b05_a_call_that_is_cancelled_for_the_steer_has_its_result_before_it() -> None:
    d = steered("read", "put")
    d.back({0: good("a")})
    cut = SentButOutcomeUnknown(text="the call was cancelled before it answered", reason=LostReason.CANCELLED)
    d.back({1: settle(Effect.IDEMPOTENT, cut, after_crash=False)})
    assert kinds(d.sent[-1])[2:] == ["tool read-0", "tool put-1", STEER]
    assert d.sent[-1][3].text.startswith("No result: the call was cancelled")


@pytest.mark.parametrize("times", [1, 3])
def test_b05_a_steer_that_was_recorded_before_the_process_died_is_delivered_once(times: int) -> None:
    d = steered("read", "put")
    for _ in range(times):
        d.die()
        d.resume()
    d.back()
    assert kinds(d.sent[-1])[2:] == ["tool read-0", "tool put-1", STEER]
    quiesce(d)
    assert [message.text for message in d.said].count(STEER) == 1


def test_b05_a_steer_that_was_recorded_before_its_run_was_interrupted_is_in_the_next_request() -> None:
    d = steered("pay", "read")
    d.die()
    d.resume()
    d.seal()
    assert d.state.ended[d.state.newest or ""].unanswered
    d.send("k2", "are you there?")
    assert kinds(d.sent[-1])[2:5] == ["tool pay-0", "tool read-1", STEER]
    assert d.sent[-1][-1] == UserMessage(text="are you there?")


@pytest.mark.parametrize("kept", [0, 1, 2, 3, 4, None])
def test_b05_a_steer_during_the_last_answer_makes_one_more_step(kept: int | None) -> None:
    d = driver()
    d.send()
    d.message("s1", STEER, "steer")
    d.tear = kept
    with suppress(Died):
        d.answer(say("done"))
    if kept is not None:
        d.die()
        d.resume()
    if len(d.requests) == 1:
        d.answer(say("done"))
    assert kinds(d.sent[-1])[-1] == STEER
    d.answer(say("with gamma"))
    assert d.state.ended[d.state.newest or ""].unanswered == ()
    assert d.state.ended[d.state.newest or ""].output == "with gamma"
