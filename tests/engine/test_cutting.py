"""Why calls are cut short: a process that leaves stays the reason, whatever is asked of the run behind that."""

import pytest

from semel.engine.cutting import Cut, CutSignal

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("later", [Cut.CANCELLED, Cut.TIME_UP])
async def test_what_is_asked_behind_a_leaving_does_not_make_an_open_call_an_unknown_one(later: Cut) -> None:
    cut = CutSignal()
    cut.set(Cut.LEAVING)
    cut.set(later)
    assert cut.reason is Cut.LEAVING


async def test_a_process_that_leaves_outranks_a_run_that_was_to_end() -> None:
    cut = CutSignal()
    cut.set(Cut.CANCELLED)
    assert not cut.leaving.done()
    cut.set(Cut.LEAVING)
    assert cut.reason is Cut.LEAVING
    assert cut.leaving.done()
