"""The measures S, C, G, R and Sz (design 13).

Each round measures semel and its floor one behind the other, and their ratio is what counts: the speed of a machine drifts, the
ratio of one minute does not.
"""

import asyncio
import gc
import shutil
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp

from semel.core.values import Frozen
from semel.engine.feed import Feed
from semel.engine.resume import open_session
from semel.faces.bench.figures import Figure, figure
from semel.faces.bench.floors import RecordingDisk, read_hash_decode, write_and_sync
from semel.faces.bench.work import CONTENT_BYTES, Taken, ground_at, play
from semel.settings import Settings
from semel.wiring import store_of

SESSIONS = 64
EARLY_TURN, WINDOW_MOST = 10, 100


class Counts(Frozen, frozen=True, kw_only=True):
    """How often and for how long to measure; None is what suits the measure."""

    turns: int | None = None
    rounds: int | None = None

    def of(self, turns: int, rounds: int) -> tuple[int, int]:
        """What was asked for, else these."""
        return self.turns or turns, self.rounds or rounds


@contextmanager
def fresh(place: Path) -> Iterator[Path]:
    """A directory of its own within `place`, which is gone behind the block."""
    directory = Path(mkdtemp(prefix="bench-", dir=place))
    try:
        yield directory
    finally:
        shutil.rmtree(directory)


def played(place: Path, turns: int, *, sessions: int = 1) -> Taken:
    """The work in a fresh state directory."""
    with fresh(place) as root:
        return play(ground_at(root / "state"), turns, sessions=sessions)


def recorded(place: Path, turns: int) -> list[int]:
    """The bytes before each sync of one run, as the Disk port saw them."""
    disk = RecordingDisk()
    with fresh(place) as root:
        play(ground_at(root / "state", disk), turns)
    return disk.syncs


def one_run(place: Path, counts: Counts) -> Iterator[Figure]:
    """S, and beside it what a turn costs in CPU and in syncs."""
    turns, rounds = counts.of(50, 15)
    syncs = recorded(place, turns)
    more = len(recorded(place, 2 * turns)) - len(syncs)
    pairs: list[tuple[Taken, float]] = []
    for _ in range(rounds):
        taken = played(place, turns)
        with fresh(place) as directory:
            pairs.append((taken, write_and_sync(directory, syncs)))
    raw = statistics.median(floor for _, floor in pairs)
    ours = statistics.median(taken.wall for taken, _ in pairs)
    facts = {"turns": turns, "ms_a_turn": ours / turns * 1000, "floor_ms_a_turn": raw / turns * 1000}
    facts |= {"syncs": len(syncs), "bytes": sum(syncs)}
    yield figure("S", [taken.wall / floor for taken, floor in pairs], facts)
    cpu = [taken.cpu / turns * 1000 for taken, _ in pairs]
    yield figure("cpu", cpu, {"turns": turns, "floor_ms_a_turn": raw / turns * 1000})
    yield figure("syncs", [more / turns], {"turns": turns})


def many_runs(place: Path, counts: Counts) -> Iterator[Figure]:
    """C: all sessions at once, beside as many files that take turns."""
    turns, rounds = counts.of(20, 7)
    syncs = recorded(place, turns)
    ours: list[float] = []
    raw: list[float] = []
    for _ in range(rounds):
        ours.append(SESSIONS * turns / played(place, turns, sessions=SESSIONS).wall)
        with fresh(place) as directory:
            raw.append(SESSIONS * turns / write_and_sync(directory, syncs, files=SESSIONS))
    facts = {"sessions": SESSIONS, "turns": turns, "turns_a_second": statistics.median(ours)}
    facts |= {"floor_turns_a_second": statistics.median(raw), "syncs": SESSIONS * len(syncs), "bytes": SESSIONS * sum(syncs)}
    yield figure("C", [one / other for one, other in zip(ours, raw, strict=True)], facts)


def growth(place: Path, counts: Counts) -> Iterator[Figure]:
    """G: what the last turns of a long run cost in CPU, beside those from the tenth on of a fresh run right behind it."""
    turns, rounds = counts.of(2000, 5)
    window = max(1, min(WINDOW_MOST, (turns - EARLY_TURN) // 2))
    first, last = min(EARLY_TURN, turns - window), turns - window
    pairs: list[tuple[float, float]] = []
    for _ in range(rounds):
        late = _mean(_cpu_at_each_turn(place, turns), last, window)
        pairs.append((late, _mean(_cpu_at_each_turn(place, first + window), first, window)))
    late, early = (statistics.median(pair[at] for pair in pairs) for at in (0, 1))
    facts = {"turns": turns, "window": window, "early_ms": early * 1000, "late_ms": late * 1000}
    yield figure("G", [one / other for one, other in pairs], facts)


def _cpu_at_each_turn(place: Path, turns: int) -> list[float]:
    """The CPU seconds of this process whenever a request was sent."""
    begun: list[float] = []
    with fresh(place) as root:
        gc.collect()
        play(ground_at(root / "state"), turns, notice=lambda: begun.append(time.process_time()))
    return begun


def _mean(begun: list[float], at: int, window: int) -> float:
    """Of the turns from number `at` on, where turn n lasts from request n to the next."""
    return (begun[at + window] - begun[at]) / window


def opening(place: Path, counts: Counts) -> Iterator[Figure]:
    """R: open, verify and fold a long log, beside reading, hashing and decoding it."""
    turns, rounds = counts.of(2000, 7)
    with fresh(place) as root:
        play(ground_at(root / "state"), turns)
        log = store_of(Settings(state=root / "state")).log_path("s0")
        pairs = []
        for _ in range(rounds):
            gc.collect()
            pairs.append((asyncio.run(_opened(root / "state")), read_hash_decode(log)))
        facts: dict[str, float] = {"turns": turns, "bytes": log.stat().st_size}
    ours, raw = (statistics.median(pair[at] for pair in pairs) for at in (0, 1))
    facts |= {"ms": ours * 1000, "floor_ms": raw * 1000}
    yield figure("R", [one / other for one, other in pairs], facts)


async def _opened(root: Path) -> float:
    ground, started = ground_at(root), time.perf_counter()
    writer, barrier = await open_session(ground, "s0", Feed())
    seconds = time.perf_counter() - started
    assert barrier.state.head == writer.head
    await writer.close()
    return seconds


def size(place: Path, counts: Counts) -> Iterator[Figure]:
    """Sz: what the log grows by in a turn, beside what the turn says."""
    turns, _ = counts.of(50, 1)
    lengths: list[int] = []
    for count in (turns, 2 * turns):
        with fresh(place) as root:
            play(ground_at(root / "state"), count)
            lengths.append(store_of(Settings(state=root / "state")).log_path("s0").stat().st_size)
    a_turn = (lengths[1] - lengths[0]) / turns
    yield figure("Sz", [a_turn / CONTENT_BYTES], {"turns": turns, "bytes_a_turn": a_turn, "content_bytes": CONTENT_BYTES})


MEASURES: dict[str, Callable[[Path, Counts], Iterator[Figure]]] = {
    "S": one_run,
    "C": many_runs,
    "G": growth,
    "R": opening,
    "Sz": size,
}
