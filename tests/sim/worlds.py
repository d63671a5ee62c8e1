"""Many worlds at once: `semel simulate` in two processes, and their figures as one."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

from msgspec import json

from semel.testing.world import Tally

SEEDS = Path(__file__).with_name("seeds.txt")
PROCESSES = 2


def kept_seeds() -> list[int]:
    """The seeds that have shown a fault before."""
    lines = [line.split()[0] for line in SEEDS.read_text().splitlines() if line and not line.startswith("#")]
    return [int(word) for word in lines]


def simulated(first: int, count: int) -> Tally:
    """What came of so many worlds from a seed on, spread over the processes."""
    each = -(-count // PROCESSES)
    begins = range(first, first + count, each)
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "semel", "simulate", str(begin), "--count", str(min(each, first + count - begin)), "--json"],
            stdout=subprocess.PIPE,
        )
        for begin in begins
    ]
    try:
        return together([tally_of(process.communicate()[0]) for process in started])
    finally:
        for process in started:
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()


def tally_of(told: bytes) -> Tally:
    """The figures of one process."""
    facts = json.decode(told)
    counted = {name: Counter(facts.pop(name)) for name in ("fired", "checked")}
    broken = {int(seed): what for seed, what in facts.pop("broken").items()}
    return Tally(**facts, **counted, broken=broken)


def together(tallies: list[Tally]) -> Tally:
    """The sum of tallies."""
    whole = Tally()
    for tally in tallies:
        whole.worlds += tally.worlds
        whole.turns += tally.turns
        whole.done += tally.done
        whole.lives += tally.lives
        whole.seconds += tally.seconds
        whole.fired += tally.fired
        whole.checked += tally.checked
        whole.broken.update(tally.broken)
    return whole


def assert_sound(tally: Tally, *, least: int) -> None:
    """Nothing is broken; each kind of fault struck so often; every invariant had something to look at; and work was done."""
    print(f"{tally.worlds} worlds, {tally.lives} lives, {tally.seconds / 3600:.0f} virtual hours, {tally.turns} turns")
    print(f"done: {tally.done / max(tally.turns, 1):.1%} of the turns; checks: {dict(sorted(tally.checked.items()))}")
    print(f"faults: {dict(sorted(tally.fired.items()))}")
    assert not tally.broken, f"see `semel simulate SEED`, mend it, and keep the seed in {SEEDS.name}: {tally.broken}"
    assert tally.rare(least) == [], "kinds of fault that hardly struck"
    assert tally.done >= tally.turns / 2, "a world in which nothing works shows nothing"
    assert {name for name in INVARIANTS if tally.checked[name] < tally.worlds / 4} == set(), "hardly looked at"


INVARIANTS = (*(f"I{number}" for number in range(1, 15)), "I16", "P3", "P9", "named")
