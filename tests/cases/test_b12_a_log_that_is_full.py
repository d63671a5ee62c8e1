"""B12, part a: a session at its ceiling refuses by name, ends by name, and still takes what a person has to say."""

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semel.core.decide import resolve, too_large
from semel.core.effects import Decision, Resolve
from semel.core.fold import ahead
from semel.core.outcomes import RefusalReason, Settlement, refuse
from semel.core.records import ToolNoDispatch, ToolResult
from semel.core.reserve import CEILING_BYTES, closing_records, reserve_bytes, size_of
from semel.core.state import Session
from semel.core.values import ToolCall
from tests.core.cast import asks_for, driver
from tests.core.driver import Driver, Full
from tests.core.machine import call, good, say
from tests.core.scripts import SCRIPTS


def used(d: Driver) -> int:
    """The log as the reserve counts it: a little more than it is."""
    return size_of(record for write in d.writes for record in write.records)


def test_b12_the_ceiling_is_exactly_one_gibibyte() -> None:
    assert CEILING_BYTES == 1_073_741_824


def filled(d: Driver) -> dict[int, Settlement]:
    """Turns with long results, until one does not fit; what came back then and is not in the log."""
    for _ in range(1000):
        try:
            d.answer(call("read", "pay"))
        except Full:
            return {}
        back = {0: good("x" * 2000), 1: good("y" * 2000)}
        try:
            d.back(back)
        except Full:
            return back
    raise AssertionError("it never fills up")


@pytest.mark.parametrize("ceiling", range(60_000, 76_000, 1_000))
def test_b12_a_session_that_fills_up_ends_by_name_and_its_end_fits(ceiling: int) -> None:
    d = driver(ceiling_bytes=ceiling)
    d.send()
    came_back = filled(d)
    before = len(d.writes)
    end = too_large(d.state, came_back)
    assert used(d) + size_of(end.records) <= ceiling
    d.ceiling_bytes = None
    d.asking = None
    d.flying.clear()
    d._do(end)
    assert used(d) <= ceiling
    ended = d.state.ended[d.state.newest or ""]
    assert (ended.reason, ended.error.code if ended.error else "") == ("error", "session_too_large")
    results = [r for write in d.writes[before:] for r in write.records if isinstance(r, ToolResult)]
    assert [str(r.outcome) for r in results] == ["completed"] * len(came_back)


def test_b12_what_is_refused_is_not_written_and_the_writer_goes_on() -> None:
    d = driver(ceiling_bytes=60_000)
    d.send()
    d.message("q1", "short", "queue")
    head = d.state.head
    with pytest.raises(Full):
        d.message("q2", "x" * 60_000, "queue")
    assert (d.state.head, "q2" in d.state.keys) == (head, False)
    d.message("q2", "short, too", "queue")
    assert d.state.head == head + 1


def test_b12_a_full_session_still_takes_its_close_out_a_cancel_and_a_verdict() -> None:
    for ceiling in range(150_000, 220_000, 5_000):
        d = driver(ceiling_bytes=ceiling)
        d.send()
        with suppress(Full):
            for _ in range(1000):
                d.answer(call("pay", "ghost", "read", "pay"))
                last = [d.key_of(0), d.key_of(3)]
                d.back(dict.fromkeys((0, 2, 3), good("x" * 20_000)))
        if d.state.run and d.state.run.step and d.state.run.step.batch and not d.state.run.step.batch.finished:
            break  # what does not fit is a result: the process dies with its calls in doubt
    d.ceiling_bytes = None
    d.die()
    d.cancel("now")
    d.resume()
    d.seal()
    for key in last:
        said = Resolve(call_key=key, verdict="happened", by="x" * 60, output="y" * 2000, note="z" * 2000)
        d._do(Decision(records=resolve(d.state, said)), keep=True)
    assert not d.state.unknown
    assert d.state.ended[d.state.newest or ""].reason == "cancelled"
    assert used(d) <= ceiling


@pytest.mark.parametrize("name", SCRIPTS)
def test_b12_in_every_state_the_reserve_holds_what_closing_it_takes(name: str) -> None:
    """Whatever was admitted, ending the run by name fits into what was kept free; so does recovery's own close-out."""
    checked = 0
    for write_at in range(len(SCRIPTS[name]().writes)):
        d = Driver(tools=driver().tools, policy=asks_for("pay"), writes=SCRIPTS[name]().writes[: write_at + 1], fence=50)
        state = d.state
        if state.run is None:
            continue
        assert size_of(too_large(state).records) <= reserve_bytes(state)
        before = len(d.writes)
        d.cancel("now")
        d.resume()
        if d.asked_about is not None:
            d.asked(None)
        d.seal()
        closed = [record for write in d.writes[before:] for record in write.records if "Resume" not in type(record).__name__]
        assert size_of(closed) <= reserve_bytes(state)
        checked += 1
    assert checked


REFUSED = st.lists(st.sampled_from(["ghost", "nobody", "pay"]), min_size=1, max_size=6)


@settings(max_examples=50, deadline=None)
@given(REFUSED, st.integers(0, 3))
def test_v19_refused_calls_fund_their_entries_to_the_byte(names: list[str], steps: int) -> None:
    """The terminal of each call of a batch that does not go anywhere is in the reserve, exactly, until it is in the log."""
    d = driver()
    d.send()
    for _ in range(steps):
        d.answer(call("ghost"))
    bad = [ToolCall(id=f"c{at}", name=name, arguments="[]" if name == "pay" else "{}") for at, name in enumerate(names)]
    d.answer([*bad, *call("read")])
    batch = d.state.run.step.batch  # type: ignore[union-attr]  # read is out
    assert batch is not None
    refused = [c.planned for c in batch.calls if c.planned.refused is not None]
    assert len(refused) == len(names)
    funded = [record for record in closing_records(d.state) if isinstance(record, ToolNoDispatch)]
    written = [
        ToolNoDispatch(
            batch_id=batch.batch_id,
            ordinal=planned.ordinal,
            tool_call_id=planned.tool_call_id,
            reason=planned.refused.reason if planned.refused else "",
            message=planned.refused.message if planned.refused else "",
        )
        for planned in refused
    ]
    assert funded == written
    d.back()
    logged = [r for write in d.writes for r in write.records if isinstance(r, ToolNoDispatch)][-len(names) :]
    assert size_of(logged) == size_of(funded)


def test_v19_a_reserve_that_does_not_fund_refused_calls_would_be_caught() -> None:
    d = driver()
    d.send()
    d.answer([*(ToolCall(id=f"c{at}", name="ghost", arguments="{}") for at in range(40)), *call("pay")])
    unfunded = size_of(record for record in closing_records(d.state) if not isinstance(record, ToolNoDispatch))
    state: Session = d.state
    d.die()
    d.resume()
    closed = d.writes[-1].records
    assert size_of(closed) <= reserve_bytes(state)
    assert size_of(r for r in closed if isinstance(r, ToolNoDispatch)) > unfunded / 2
    assert refuse(RefusalReason.UNKNOWN_TOOL).message


def test_b12_queued_messages_are_funded_by_a_run_that_names_them() -> None:
    d = driver()
    d.send()
    before = reserve_bytes(d.state)
    d.message("q1", "x" * 50_000, "queue")
    funded = reserve_bytes(d.state) - before
    assert 0 < funded < 6_000, "it is named, not repeated"
    d.answer(say("done"))
    d.drain()
    assert reserve_bytes(ahead(d.state, ())) == reserve_bytes(d.state)
