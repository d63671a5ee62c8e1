"""Letting everything come to rest: models answer, calls succeed, people decide, the queue drains."""

from typing import Any

from tests.core.driver import Driver
from tests.core.machine import say

STEPS_MOST = 200


def quiesce(driver: Driver, verdict: Any = "happened") -> None:
    """Go on until nothing is left to do. Raises AssertionError where that never comes."""
    for _ in range(STEPS_MOST):
        if not _step(driver, verdict):
            return
    raise AssertionError("it never comes to rest")


def _step(driver: Driver, verdict: Any) -> bool:
    run = driver.state.run
    if driver.asking is not None:
        driver.answer(say("done"))
    elif driver.asked_about is not None:
        driver.asked(None)
    elif driver.flying:
        driver.back()
    elif run is not None:
        _unblock(driver)
    elif driver.state.unknown:
        driver.resolve(driver.state.unknown[0].call_key, verdict)
    else:
        return driver.drain(go_on=True)
    return True


def _unblock(driver: Driver) -> None:
    """The run waits, or was left by a death."""
    step = driver.state.run.step if driver.state.run is not None else None
    batch = step.batch if step is not None else None
    head = driver.state.head
    driver.seal() if _sealable(driver) else driver.resume()
    if driver.state.run is None or not driver.idle:
        return
    if step is not None and step.undecided:
        driver.answer_approval(step.undecided[0].call_key, "approved")
    elif batch is not None and not batch.finished and batch.held:
        driver.deliver(batch.calls[batch.held[0]].planned.call_key)
    else:
        assert driver.state.head > head, "nothing happens any more"


def _sealable(driver: Driver) -> bool:
    step = driver.state.run.step if driver.state.run is not None else None
    return step is not None and step.finished and step.batch is not None and bool(step.batch.unknown)
