"""B12, part a: a session at its ceiling refuses by name, ends by name, and still takes what a person has to say."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semel.core.ceiling import CEILING_BYTES, reserve_bytes
from semel.core.closing import closings
from semel.core.decide import resolve
from semel.core.effects import CameBack, Decision, Deferral, Hold, Outcome, Resolve
from semel.core.outcomes import Settlement
from semel.core.records import ToolNoDispatch, ToolResult
from semel.core.values import ToolCall
from semel.errors import SessionFull
from tests.core.cast import asks_for, driver
from tests.core.driver import Died, Driver
from tests.core.machine import call, good, say
from tests.core.scripts import SCRIPTS
from tests.core.writes import Write, folded, size_of

LONG = '\x1f"é漢' * 400
LONG_RESULT = Settlement(outcome=good().outcome, is_error=False, text=LONG)


def close_full(d: Driver, outcome: Outcome | None) -> None:
    """What the engine does where a write does not fit: the first closing that does, until the run has ended.

    A run that waits for its held calls goes on waiting: what they owe has its room, too.
    """
    d.asking = None
    d.flying.clear()
    while d.state.run is not None:
        last = len(d.writes)
        for closing in closings(d.state, outcome, None):
            try:
                d._do(closing)
            except SessionFull:
                continue
            break
        waiting = held_of(d)
        assert len(d.writes) > last or waiting, "the last closing always fits"
        outcome = CameBack(settled=dict.fromkeys(waiting, LONG_RESULT)) if waiting else None


def held_of(d: Driver) -> tuple[int, ...]:
    step = d.state.run.step if d.state.run else None
    return step.batch.held if step and step.batch and not step.batch.finished else ()


def filled(d: Driver) -> CameBack | None:
    """Turns with long results, until one does not fit; what came back then and is not in the log."""
    d.send()
    for _ in range(1000):
        try:
            d.answer(call("read", "pay"))
        except SessionFull:
            return None
        back = {0: good("x" * 2000), 1: good("y" * 2000)}
        try:
            d.back(back)
        except SessionFull:
            return CameBack(settled=back)
    raise AssertionError("it never fills up")


def test_b12_the_ceiling_is_exactly_one_gibibyte() -> None:
    assert CEILING_BYTES == 1_073_741_824


@pytest.mark.parametrize("ceiling", range(90_000, 106_000, 1_000))
def test_b12_a_session_that_fills_up_ends_by_name_and_its_end_fits(ceiling: int) -> None:
    d = driver(ceiling_bytes=ceiling)
    came_back = filled(d)
    before = len(d.writes)
    close_full(d, came_back)
    assert d.used <= ceiling
    ended = d.state.ended[d.state.newest or ""]
    assert (ended.reason, ended.error.code if ended.error else "") == ("error", "session_too_large")
    results = [r for write in d.writes[before:] for r in write.records if isinstance(r, ToolResult)]
    assert [str(r.outcome) for r in results] == ["completed"] * (2 if came_back else 0)


def test_b12_what_is_refused_is_not_written_and_the_writer_goes_on() -> None:
    d = driver(ceiling_bytes=90_000)
    d.send()
    d.message("q1", "short", "queue")
    head = d.state.head
    with pytest.raises(SessionFull):
        d.message("q2", "x" * 90_000, "queue")
    assert (d.state.head, "q2" in d.state.keys) == (head, False)
    d.message("q2", "short, too", "queue")
    assert d.state.head == head + 1


def test_b12_a_full_session_still_takes_its_close_out_a_cancel_and_a_verdict() -> None:
    """The process dies with two payments in doubt and no room for anything else."""
    d = driver()
    d.send()
    d.answer(call("pay", "ghost", "read", "pay"))
    keys = [d.key_of(0), d.key_of(3)]
    d.ceiling_bytes = d.used + reserve_bytes(d.state)
    d.die()
    d.cancel("now")
    d.resume()
    d.seal()
    for key in keys:
        said = Resolve(call_key=key, verdict="happened", by="x" * 60, output="y" * 500, note="z" * 500)
        d._do(Decision(records=resolve(d.state, said)))
    assert not d.state.unknown
    assert d.state.ended[d.state.newest or ""].reason == "cancelled"
    assert d.used <= d.ceiling_bytes


def test_b12_a_pause_that_a_death_lost_has_its_room_in_a_full_log() -> None:
    d = driver()
    d.send()
    d.answer(call("pay"))
    d.tear = 1  # the hold is there; that the run waits for it is not
    with pytest.raises(Died):
        d.back(held=[0])
    d.die()
    d.ceiling_bytes = d.used + reserve_bytes(d.state)
    d.resume()
    assert d.state.run is not None
    assert d.state.run.pause is not None
    close_full(d, CameBack(settled={0: LONG_RESULT}))
    assert d.used <= d.ceiling_bytes
    assert d.state.ended[d.state.newest or ""].error is not None


def news_of(d: Driver) -> list[Outcome | None]:
    """Whatever may come back in this state, each as long as it likes."""
    step = d.state.run.step if d.state.run else None
    batch = step.batch if step else None
    if batch is None or batch.finished:
        return [None]
    out = [at for at, one in enumerate(batch.calls) if one.intent and not one.settled and not one.terminal]
    held = {at: Hold(module=LONG, reason=LONG, held_at_ms=10**12) for at in out if batch.calls[at].held is None}
    deferred = {at: Deferral(handle=f"{at}{'é' * 198}", text=LONG) for at in out}
    settled = dict.fromkeys(out, LONG_RESULT)
    return [None, CameBack(settled=settled), CameBack(deferred=deferred), CameBack(held=held)]


@pytest.mark.parametrize("name", SCRIPTS)
def test_b12_in_every_state_the_reserve_holds_what_closing_it_takes(name: str) -> None:
    """With nothing but the reserve left, whatever came back: the run is closed by name, is cancelled, is recovered."""
    writes, checked = SCRIPTS[name]().writes, 0
    for end in range(1, len(writes) + 1):
        for tear in range(1, len(writes[end - 1].records) + 1):
            kept = writes[end - 1].records[:tear]
            whole = tear == len(writes[end - 1].records)
            log = [*writes[: end - 1], Write(kept, whole, writes[end - 1].fence)]
            if folded(log).run is None:
                continue
            checked += _close_every_way(log)
    assert checked


def _close_every_way(log: list[Write]) -> int:
    first = Driver(tools=driver().tools, policy=asks_for("pay"), writes=list(log), fence=50)
    room = first.used + reserve_bytes(first.state)
    closed = 0
    for cancelled in (False, True):
        for news in news_of(first):
            d = Driver(tools=driver().tools, policy=asks_for("pay"), writes=list(log), fence=50, ceiling_bytes=room)
            if cancelled and not (d.state.run and d.state.run.aborting):
                d.cancel("now")
            close_full(d, news)
            assert d.used + reserve_bytes(d.state) <= room
            closed += 1
    d = Driver(tools=driver().tools, policy=asks_for("pay"), writes=list(log), fence=50, ceiling_bytes=room)
    d.cancel("now")
    d.resume()
    while d.asked_about is not None:
        d.asked(None)
    d.seal()
    assert d.state.run is None
    return closed + 1


REFUSED = st.lists(st.sampled_from(["ghost", "nobody", "pay"]), min_size=1, max_size=6)


@settings(max_examples=50, deadline=None)
@given(REFUSED, st.integers(0, 3))
def test_v19_the_close_out_of_refused_calls_is_funded_whatever_they_are(names: list[str], steps: int) -> None:
    """The terminal of each call of a batch that does not go anywhere is in the reserve, until it is in the log."""
    d = driver()
    d.send()
    for _ in range(steps):
        d.answer(call("ghost"))
    bad = [ToolCall(id=f"c{at}", name=name, arguments="[]" if name == "pay" else "{}") for at, name in enumerate(names)]
    d.answer([*bad, *call("read")])
    funded = reserve_bytes(d.state)
    d.ceiling_bytes = d.used + funded
    close_full(d, CameBack(settled={len(names): good("fine")}))
    logged = [r for r in d.writes[-1].records if isinstance(r, ToolNoDispatch)]
    assert [r.ordinal for r in logged] == list(range(len(names)))
    assert size_of(d.writes[-1].records) <= funded


def test_v19_a_reserve_that_does_not_fund_refused_calls_would_be_caught() -> None:
    d = driver()
    d.send()
    d.answer([*(ToolCall(id=f"c{at}", name="ghost", arguments="{}") for at in range(40)), *call("pay")])
    d.ceiling_bytes = d.used + reserve_bytes(d.state) - 40 * 1024  # without the share of each refused call
    with pytest.raises(AssertionError, match="always fits"):
        close_full(d, None)


def test_b12_a_queued_message_is_funded_by_a_run_that_names_it() -> None:
    d = driver()
    d.send()
    before = reserve_bytes(d.state)
    d.message("q1", "x" * 50_000, "queue")
    assert 0 < reserve_bytes(d.state) - before < 6_000, "it is named, not repeated"
    d.message("q2", "y", "queue")
    d.retract("q2")
    one = reserve_bytes(d.state) - before
    d.answer(say("done"))
    d.drain()
    assert reserve_bytes(d.state) == before, one
