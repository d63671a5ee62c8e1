"""In whatever state a history stands, its reserve holds what closing it takes, and a copy of its log can be parked (HAZ2)."""

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from semel.core.ceiling import reserve_bytes
from semel.core.closing import closings
from semel.core.effects import CameBack, Hold
from semel.core.fold import ahead
from semel.core.outcomes import Settlement
from semel.core.pairing import fault_of
from semel.core.parking import parked
from semel.core.standing import doubtful
from semel.core.state import Session
from semel.core.transcript import history_of
from tests.core.driver import Driver
from tests.core.machine import good, unknown
from tests.core.play import Player
from tests.core.test_model import MOVES
from tests.core.writes import logged_of, size_of

LONG = '\x1f"é漢' * 400
PICK = st.integers(0, 7)


def told(long: bool, *, held: bool) -> Settlement:
    """A long result, or a long account of an unknown one; what a provider holds is never unknown."""
    return replace(good() if long or held else unknown(), text=LONG)


def news_of(state: Session, pick: int) -> Iterator[tuple[CameBack | None, frozenset[int] | None]]:
    """Nothing, at the start of a resume; and what may come back to a living run, with what is left in doubt then."""
    yield None, None
    run, batch = state.run, state.run.step.batch if state.run is not None and state.run.step is not None else None
    if run is None or batch is None or batch.finished:
        return
    out = [at for at, call in enumerate(batch.calls) if call.intent and not call.settled and not call.terminal]
    back = {at: told(bool(pick & 1), held=batch.calls[at].held is not None) for at in out if (pick >> 1 & 1) or at % 2}
    held = {
        at: Hold(module=LONG, reason=LONG, held_at_ms=10**12) for at in out if batch.calls[at].held is None and at not in back
    }
    came = CameBack(settled=back, held=held if pick & 4 else {})
    yield came, doubtful(run, batch) - back.keys() - came.held.keys()


def closes_within_its_reserve(state: Session, pick: int) -> None:
    for came, doubt in news_of(state, pick):
        *_, last = closings(state, came, doubt)
        after = ahead(state, last.records)
        assert size_of(last.records) + reserve_bytes(after) <= reserve_bytes(state), [type(one).__name__ for one in last.records]


def can_be_parked(driver: Driver) -> None:
    state, records = driver.state, {one.seq: one.record for one in logged_of(driver.writes)}
    for _ in range(2):  # an unknown call leaves the terminal to a barrier of its own
        more = parked(state)
        records.update(enumerate(more, start=state.head + 1))
        state = ahead(state, more)
    assert state.run is None
    assert fault_of(list(history_of(state, records.__getitem__))) is None


def check(moves: list[int], pick: int) -> int:
    player, states = Player(moves[0]), 0
    for move in moves[1:]:
        player.play([move])
        if player.driver.state.run is not None:
            closes_within_its_reserve(player.driver.state, pick)
            can_be_parked(player.driver)
            states += 1
    return states


@settings(max_examples=40, derandomize=True, deadline=None, database=None)
@given(MOVES, PICK)
def test_any_open_run_can_be_closed_within_its_reserve_and_parked(moves: list[int], pick: int) -> None:
    check(moves, pick)


@pytest.mark.prove
@pytest.mark.timeout(1800)
def test_the_open_runs_of_three_thousand_histories_can_be_closed_within_their_reserve_and_parked() -> None:
    states = 0

    @settings(max_examples=3_000, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
    @given(MOVES, PICK)
    def each(moves: list[int], pick: int) -> None:
        nonlocal states
        states += check(moves, pick)

    each()
    print(f"{states} open runs closed and parked")
    assert states >= 30_000


def test_a_reserve_without_room_for_the_terminal_would_be_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    for room in ("_TERMINAL_BYTES", "_CANCEL_BYTES", "_PAUSE_BYTES"):
        monkeypatch.setattr(f"semel.core.ceiling.{room}", 0)
    player = Player()
    player.driver.send()
    with pytest.raises(AssertionError):
        closes_within_its_reserve(player.driver.state, 0)
