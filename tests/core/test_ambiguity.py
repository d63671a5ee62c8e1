"""T24 on the core: one call, cut wherever its records can be cut, for each kind of tool; and what the model and the operator get.

What the log cannot tell apart is one cut here. `tests/sweep/test_ambiguity_matrix.py` has the eight points of a real process.
"""

from collections import Counter
from collections.abc import Callable
from contextlib import suppress

import pytest

from semel.core.values import Effect
from tests.core.cast import driver
from tests.core.driver import Died, Driver
from tests.core.machine import call, good
from tests.core.quiet import quiesce
from tests.core.writes import folded

TOOL = {Effect.ONCE: "pay", Effect.IDEMPOTENT: "put", Effect.READ: "read"}


def cut_write(kept: int) -> Callable[[Driver, str], None]:
    """Dies in the write of the plan and the intent, of which `kept` records survive."""

    def cut(d: Driver, name: str) -> None:
        d.tear = kept
        with suppress(Died):
            d.answer(call(name))

    return cut


def in_flight(d: Driver, name: str) -> None:
    """Dies while the call is out: whether it was started or has acted makes no difference to the log."""
    d.answer(call(name))


def cut_result(kept: int) -> Callable[[Driver, str], None]:
    """Dies in the write of the result."""

    def cut(d: Driver, name: str) -> None:
        d.answer(call(name))
        d.tear = kept
        with suppress(Died):
            d.back({0: good()})

    return cut


POINTS: dict[str, Callable[[Driver, str], None]] = {
    "before the intent": cut_write(3),
    "behind the intent, and nothing was dispatched": cut_write(99),
    "in flight": in_flight,
    "before the result": cut_result(0),
    "behind the result": cut_result(1),
}
IN_DOUBT = set(POINTS) - {"before the intent", "behind the result"}


@pytest.mark.parametrize("effect", TOOL)
@pytest.mark.parametrize("point", POINTS)
def test_t24_a_call_that_is_cut_anywhere(point: str, effect: Effect) -> None:
    d = driver()
    d.send()
    POINTS[point](d, TOOL[effect])
    before = Counter(d.dispatched)
    d.die()
    d.resume()
    again = d.dispatched.total() - before.total()
    doubtful = point in IN_DOUBT
    if effect is Effect.ONCE:
        d.seal()
        assert d.dispatched.total() <= 1
        assert again == (0 if doubtful or point == "behind the result" else 1)
        assert bool(d.state.unknown) == doubtful
        assert (d.state.run is None) == doubtful
    else:
        assert again == (0 if point == "behind the result" else 1)
        assert len(d.dispatched) == 1, "it runs again under the same key"
        assert not d.state.unknown
    quiesce(d)
    assert folded(d.writes) == d.state


def test_t24_has_all_its_cells() -> None:
    assert len(POINTS) * len(TOOL) == 15
    assert len(IN_DOUBT) == 3
