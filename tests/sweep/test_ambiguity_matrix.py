"""T24: a real process dies at each of eight points of a call's life, for each kind of tool, over a real directory.

In each cell the next process goes on twice: from what the dead one left in the file, and, as if the power had gone with it, from
what was synced alone. A counter outside, synced before the tool answers, tells how often it acted.
"""

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from semel.adapters.file.store import FileStore
from semel.adapters.system import SystemClock
from semel.core.features import KNOWN
from semel.core.values import Effect
from semel.faces.views import view_of
from tests.sweep.lives import KILLED, Lives, facts
from tests.sweep.matrix import ASKED, ENTERED, REPLIED, SESSION, SYNCED, WRITES
from tests.sweep.reference import ACTIONS


@dataclass(frozen=True)
class Point:
    """Where the process dies, how often the tool has acted by then, and whether the log leaves that open: kept whole, or cut."""

    at: str
    acted: int
    doubt: bool
    doubt_after_power_loss: bool


POINTS = {
    "before the intent is appended": Point("intent before its write", 0, False, False),
    "intent appended, not synced": Point("intent before its sync", 0, True, False),
    "intent synced, not dispatched": Point("intent behind its sync", 0, True, True),
    "dispatched, not started": Point("the tool before it acts", 0, True, True),
    "effect done, no reply": Point("the tool behind its act", 1, True, True),
    "reply received, not appended": Point("result before its write", 1, True, True),
    "result appended, not synced": Point("result before its sync", 1, False, True),
    "result synced": Point("result behind its sync", 1, False, False),
}
CELLS = [(point, effect) for point in POINTS for effect in Effect]


def log_of(place: Path) -> Path:
    return FileStore(place / "state", SystemClock(), known=KNOWN).log_path(SESSION)


def synced(place: Path) -> int:
    """How many bytes of the log outlive the power."""
    return int((place / SYNCED).read_text())


def killed(lives: Lives, place: Path, point: str, effect: Effect) -> None:
    place.mkdir(parents=True)
    assert lives.live(place, POINTS[point].at, f"matrix {effect}") == KILLED, f"{point} is not reached"
    assert len(facts(place / ACTIONS)) == POINTS[point].acted


def lose_power(place: Path) -> None:
    log = log_of(place)
    log.write_bytes(log.read_bytes()[: synced(place)])


def check(lives: Lives, place: Path, effect: Effect, *, promised: Effect, acted: int, doubt: bool) -> None:
    """The next process goes on, and keeps what was promised of such a tool."""
    asked = len(facts(place / ASKED))
    code = lives.live(place, program=f"matrix {effect}")
    view = view_of(FileStore(place / "state", SystemClock(), known=KNOWN), SESSION)
    actions = facts(place / ACTIONS)
    assert view.state.run is None
    assert len({fact["key"] for fact in actions}) <= 1, "it acts under one key, however often"
    if promised is Effect.ONCE and doubt:
        assert (code, [call.tool for call in view.state.unknown]) == (3, ["act"]), "it stops for a person"
        assert len(actions) == acted, "it is not repeated"
        assert len(facts(place / ASKED)) == asked, "no model is told"
    else:
        assert (code, view.state.unknown) == (0, ())
        assert len(actions) == (acted + 1 if doubt else 1)
    bodies = {(fact["answers"], fact["sha256"]) for fact in facts(place / ASKED)}
    assert len(bodies) == len({answers for answers, _ in bodies}), "each step is asked with the same bytes, whenever"


@pytest.mark.parametrize(("point", "effect"), CELLS)
def test_t24_a_call_whose_process_dies_anywhere_is_never_repeated_in_doubt_and_never_lost(
    point: str, effect: Effect, lives: Lives, tmp_path: Path
) -> None:
    cut, place, image = POINTS[point], tmp_path / "place", tmp_path / "image"
    killed(lives, place, point, effect)
    shutil.copytree(place, image)
    check(lives, place, effect, promised=effect, acted=cut.acted, doubt=cut.doubt)
    shutil.rmtree(place)
    image.rename(place)  # the log names its script by the path
    lose_power(place)
    check(lives, place, effect, promised=effect, acted=cut.acted, doubt=cut.doubt_after_power_loss)


def traces(place: Path) -> tuple[object, ...]:
    """All that a dead process has left, inside and outside: what of the call is in the log, synced, and in the world."""
    log = log_of(place).read_bytes()
    marks = [mark in part for part in (log, log[: synced(place)]) for mark in WRITES.values()]
    return (*marks, *(len(facts(place / side)) for side in (ENTERED, ACTIONS, REPLIED)))


def test_t24_has_all_its_cells_and_no_two_points_are_the_same_cut(lives: Lives, tmp_path: Path) -> None:
    for point in POINTS:
        killed(lives, tmp_path / point, point, Effect.ONCE)
    assert len({traces(tmp_path / point) for point in POINTS}) == len(POINTS) == 8
    assert len(set(CELLS)) == 24
    assert sum(cut.doubt for cut in POINTS.values()) == sum(cut.doubt_after_power_loss for cut in POINTS.values()) == 5


@pytest.mark.parametrize("point", ["dispatched, not started", "effect done, no reply"])
def test_t24_a_runtime_that_repeats_a_call_in_doubt_is_caught(point: str, lives: Lives, tmp_path: Path) -> None:
    place, cut = tmp_path / "place", POINTS[point]
    killed(lives, place, point, Effect.IDEMPOTENT)
    with pytest.raises(AssertionError, match="stops for a person"):
        check(lives, place, Effect.IDEMPOTENT, promised=Effect.ONCE, acted=cut.acted, doubt=cut.doubt)
