"""A real process is killed at every persistence call of a run that waits for a key, goes on, and is stopped."""

import json
from collections import Counter
from pathlib import Path

import pytest

from semel.adapters.file.store import FileStore
from semel.adapters.system import SystemClock
from semel.core.features import KNOWN
from semel.faces.views import view_of
from tests.sweep.lives import KILLED, Lives, facts, kill_points
from tests.sweep.pauses import ASKED, SESSION
from tests.sweep.reference import ACKNOWLEDGED, ACTIONS, PERSISTED, witness

LIVES_MOST = 4


def check(place: Path) -> str:
    """What must hold once the run has come to its end; the word of that."""
    store = FileStore(place / "state", SystemClock(), known=KNOWN)
    state = view_of(store, SESSION).state
    assert state.run is None
    ended = state.ended[state.newest or ""]
    why = ended.error.code if ended.error is not None else ended.reason
    assert why in ("stopped", "interrupted"), "neither a refused key nor a death behind the answer to a stop ends it otherwise"
    assert (why == "interrupted") == bool(ended.unknown)
    assert len(facts(place / ACTIONS)) <= 1, "paid once"
    bodies = {(fact["answers"], fact["sha256"]) for fact in facts(place / ASKED)}
    assert len(bodies) == len({answers for answers, _ in bodies}), "each step was asked with the same bytes, whenever"
    assert {answers for answers, _ in bodies} <= {0, 1}, "nobody was asked behind the stop"
    return str(why)


def lived(lives: Lives, place: Path, first: str) -> None:
    assert lives.live(place, first, "pauses") == KILLED, f"{first} is not reached"
    for _ in range(2, LIVES_MOST + 1):
        if lives.live(place, "", "pauses") in (0, 3):
            return
    raise AssertionError(f"behind {first} the run does not come to its end")


def sweep(lives: Lives, root: Path, *, every: int) -> int:
    uncut = root / "uncut"
    uncut.mkdir()
    assert lives.live(uncut, "", "pauses") == 0
    assert check(uncut) == "stopped"
    assert Counter(facts(uncut / ACKNOWLEDGED)) == {"paused": 2, "stopped": 1}
    points = kill_points(json.loads((uncut / PERSISTED).read_text().splitlines()[-1]))[::every]
    ends: Counter[str] = Counter()
    for point in points:
        place = root / point.replace(":", "-")
        place.mkdir()
        lived(lives, place, point)
        ends[check(place)] += 1
    assert ends["stopped"] > ends["interrupted"]
    print(f"{len(points)} kills of a run that is paused and stopped: {dict(ends)}")
    return len(points)


@pytest.mark.timeout(300)
def test_a_run_that_waits_for_a_key_and_is_stopped_survives_a_kill_at_a_persistence_call(lives: Lives, tmp_path: Path) -> None:
    assert sweep(lives, tmp_path, every=11) >= 20


@pytest.mark.prove
def test_a_run_that_waits_for_a_key_and_is_stopped_survives_a_kill_at_any_persistence_call(lives: Lives, tmp_path: Path) -> None:
    assert sweep(lives, tmp_path, every=1) >= 140


def test_a_request_behind_the_stop_and_a_second_payment_would_be_seen(lives: Lives, tmp_path: Path) -> None:
    assert lives.live(tmp_path, "", "pauses") == 0
    witness(tmp_path / ASKED, {"answers": 2, "sha256": "x"})
    with pytest.raises(AssertionError, match="behind the stop"):
        check(tmp_path)
    for _ in range(2):
        witness(tmp_path / ACTIONS, {"tool": "pay", "key": "x"})
    with pytest.raises(AssertionError, match="paid once"):
        check(tmp_path)
