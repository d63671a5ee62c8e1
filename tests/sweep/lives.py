"""Lives of the reference run, and what must hold once it has come to rest."""

import json
import subprocess
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from semel.adapters.file.store import FileStore
from semel.adapters.system import SystemClock
from semel.core.features import KNOWN
from semel.core.state import Session
from semel.faces.views import SessionView, frame_event, view_of
from tests.support.frames import frames_of
from tests.sweep.reference import ACKNOWLEDGED, ACTIONS, SESSION

KILLED = -9
ONCE = ("charge", "deploy")


@dataclass
class Lives:
    """Starts lives through the forker, against one model server whose journal all of them share."""

    forker: subprocess.Popen[str]
    url: str
    journal: Path
    read: int = 0
    bodies: list[str] = field(default_factory=list)

    def live(self, place: Path, kill: str = "", program: str = "reference") -> int:
        """One life; its exit code, or -9 where it was killed."""
        assert self.forker.stdin is not None
        assert self.forker.stdout is not None
        self.forker.stdin.write(json.dumps({"place": str(place), "url": self.url, "kill": kill, "program": program}) + "\n")
        self.forker.stdin.flush()
        return int(self.forker.stdout.readline())

    def requests(self) -> list[str]:
        """The bodies that the model server received since this was last asked."""
        lines = self.journal.read_text().splitlines() if self.journal.exists() else []
        new = [json.loads(line)["body"] for line in lines[self.read :]]
        self.read = len(lines)
        return new


@dataclass(frozen=True)
class Uncut:
    """What the reference run did."""

    calls: list[str]
    requests: list[str]
    records: int


def facts(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def view(place: Path) -> SessionView:
    return view_of(FileStore(place / "state", SystemClock(), known=KNOWN), SESSION)


def check(place: Path, uncut: Uncut, requests: list[str]) -> None:
    """All that must hold once the run has come to rest."""
    keys = Counter((str(fact["tool"]), str(fact["key"])) for fact in facts(place / ACTIONS))
    acted = Counter(tool for tool, _ in keys.elements())
    assert all(acted[tool] <= 1 for tool in ONCE), acted
    assert all(count == 1 for count in Counter(tool for tool, _ in keys).values()), "a rerun keeps its key"
    frames = frames_of(FileStore(place / "state", SystemClock(), known=KNOWN), SESSION)
    stored = {frame.seq: frame_event(frame) for frame in frames if frame.seq > 0}
    assert list(stored) == list(range(1, view(place).state.head + 1))
    for fact in facts(place / ACKNOWLEDGED):
        assert stored[fact["seq"]] == fact  # type: ignore[index]  # a seq
    kinds = [event["type"] for event in stored.values()]
    assert kinds.count("run_finished") == 1
    assert kinds[-1] == "run_finished"
    assert requests, "the model was asked"
    by_answers = {answers_in(body): body for body in uncut.requests}
    assert all(body == by_answers[answers_in(body)] for body in requests)


def answers_in(body: str) -> int:
    return sum(message["role"] == "assistant" for message in json.loads(body)["messages"])


def kill_points(calls: list[str]) -> list[str]:
    return [f"{at}:{when}" for at in range(1, len(calls) + 1) for when in ("entry", "exit")]


def sweep(lives: Lives, uncut: Uncut, root: Path, points: list[str]) -> Counter[str]:
    """Kill one life at each point, let the next go on, check; how many ended how."""
    ends: Counter[str] = Counter()
    for point in points:
        place = root / point.replace(":", "-")
        place.mkdir()
        lives.requests()
        assert lives.live(place, point) == KILLED, f"{point} ({uncut.calls[int(point.split(':')[0]) - 1]}) is not reached"
        code = lives.live(place)
        assert code in (0, 3), f"after {point} the next life ended with {code}"
        check(place, uncut, lives.requests())
        state: Session = view(place).state
        assert bool(state.unknown) == (code == 3)
        ends["interrupted" if code == 3 else "completed"] += 1
    return ends


def sweep_resume(lives: Lives, uncut: Uncut, root: Path, first: str) -> Counter[str]:
    """Behind a life that was killed at `first`: kill the next one at each of its own calls, let the third go on, check."""
    ends: Counter[str] = Counter()
    at, killed = 0, True
    while killed:
        at += 1
        for when in ("entry", "exit"):
            place = root / f"{at}-{when}"
            place.mkdir()
            lives.requests()
            assert lives.live(place, first) == KILLED
            code = lives.live(place, f"{at}:{when}")
            killed = code == KILLED
            code = lives.live(place) if killed else code
            assert code in (0, 3)
            check(place, uncut, lives.requests())
            ends["interrupted" if code == 3 else "completed"] += 1
    return ends
