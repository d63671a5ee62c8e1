"""P9: a real process is killed at every persistence call of a run that is talked to; each message is there exactly once."""

import json
from collections import Counter
from pathlib import Path

import pytest

from semel.adapters.file.store import FileStore
from semel.adapters.system import SystemClock
from semel.core.features import KNOWN
from semel.core.values import UserMessage
from semel.faces.views import frame_event, view_of
from tests.core.said import said_in
from tests.support.frames import frames_of
from tests.sweep.lives import KILLED, Lives, facts, kill_points
from tests.sweep.reference import ACKNOWLEDGED, ACTIONS, PERSISTED
from tests.sweep.talk import MESSAGES, SESSION

LIVES_MOST = 4


def check(place: Path) -> Counter[str]:
    """What must hold once everything has come to rest; how many records of each kind there are."""
    store = FileStore(place / "state", SystemClock(), known=KNOWN)
    found = view_of(store, SESSION)
    said = Counter(message.text for message in said_in(store, SESSION) if isinstance(message, UserMessage))
    told = {text: said[text] for text in MESSAGES.values()}
    assert told == dict.fromkeys(MESSAGES.values(), 1), told
    kinds = Counter(str(frame_event(frame)["type"]) for frame in frames_of(store, SESSION) if frame.seq > 0)
    assert kinds["run_started"] == kinds["run_finished"]
    assert found.state.run is None
    assert found.state.queue == ()
    assert len(facts(place / ACTIONS)) <= 1
    return kinds


def lived(lives: Lives, place: Path, first: str) -> int:
    """Kill the first life there, and live on until the talk is over; how many lives it took."""
    assert lives.live(place, first, "talk") == KILLED, f"{first} is not reached"
    for count in range(2, LIVES_MOST + 1):
        if lives.live(place, "", "talk") in (0, 3):
            return count
    raise AssertionError(f"behind {first} the talk does not come to its end")


def sweep(lives: Lives, root: Path, *, every: int) -> int:
    """Kill at every so-manieth point; how many there were."""
    uncut = root / "uncut"
    uncut.mkdir()
    assert lives.live(uncut, "", "talk") == 0
    kinds = check(uncut)
    assert kinds["queued"] == 1
    assert kinds["steered"] + kinds["follow_up_queued"] >= 1, "the run was told something while it worked"
    points = kill_points(json.loads((uncut / PERSISTED).read_text().splitlines()[-1]))[::every]
    for point in points:
        place = root / point.replace(":", "-")
        place.mkdir()
        lived(lives, place, point)
        check(place)
        assert Counter(facts(place / ACKNOWLEDGED)).keys() == MESSAGES.keys() - {"go"}, "everything was acknowledged at last"
    print(f"{len(points)} kills within a talk")
    return len(points)


@pytest.mark.timeout(300)
def test_p9_a_talk_killed_at_a_persistence_call_keeps_each_message_exactly_once(talking: Lives, tmp_path: Path) -> None:
    assert sweep(talking, tmp_path, every=3) >= 60


@pytest.mark.prove
def test_p9_a_talk_killed_at_any_persistence_call_keeps_each_message_exactly_once(talking: Lives, tmp_path: Path) -> None:
    assert sweep(talking, tmp_path, every=1) >= 180
