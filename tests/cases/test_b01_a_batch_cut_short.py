"""B01, a batch of which some results are there: each open call gets one result behind it, whatever dies how often."""

import pytest

from semel.core.values import ToolMessage, UserMessage
from tests.core.cast import driver
from tests.core.driver import Died, Driver
from tests.core.machine import call, good
from tests.core.quiet import quiesce


def cut_short() -> Driver:
    """Three calls are out; one has come back; the process dies."""
    d = driver()
    d.send("k1", "run the slow job")
    d.answer(call("pay", "read", "pay"))
    d.back({0: good("paid")})
    d.die()
    return d


def results(d: Driver) -> list[tuple[str, bool, str]]:
    """Of the last request: the results in order, and that the new text stands behind them."""
    said = d.sent[-1]
    found = [(m.tool_call_id, m.is_error, m.text) for m in said if isinstance(m, ToolMessage)]
    behind = said[max(at for at, m in enumerate(said) if isinstance(m, ToolMessage)) + 1]
    assert isinstance(behind, UserMessage)
    assert behind.text == "are you there?"
    return found


def close(d: Driver) -> None:
    d.resume()
    d.seal()


@pytest.mark.parametrize("again", [0, 1, 3])
def test_b01_a_result_that_is_there_stays_and_each_open_call_gets_one(again: int) -> None:
    d = cut_short()
    close(d)
    for _ in range(again):
        d.die()
        close(d)
    dispatched = dict(d.dispatched)
    d.send("k2", "are you there?")
    found = results(d)
    assert [(name, wrong) for name, wrong, _ in found] == [("pay-0", False), ("read-1", True), ("pay-2", True)]
    assert found[0][2] == "paid"
    assert "unknown" in found[2][2]
    assert dict(d.dispatched) == dispatched
    assert max(d.dispatched.values()) == 1


@pytest.mark.parametrize("kept", range(9))
def test_b01_a_repair_that_is_cut_off_is_finished_by_the_next_one_and_repeats_nothing(kept: int) -> None:
    d = cut_short()
    d.tear = kept
    try:
        d.resume()
    except Died:
        d.die()
        close(d)
    d.tear = None
    quiesce_run(d)
    d.send("k2", "are you there?")
    assert [name for name, _, _ in results(d)] == ["pay-0", "read-1", "pay-2"]
    quiesce(d)
    assert max(d.dispatched.values()) == 1


def quiesce_run(d: Driver) -> None:
    """The run ends; the model is not asked."""
    asked = len(d.sent)
    for _ in range(3):
        if d.state.run is not None:
            close(d)
    assert d.state.run is None
    assert len(d.sent) == asked
