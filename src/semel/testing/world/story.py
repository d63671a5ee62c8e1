"""A world told in lines, and many worlds told in figures."""

import gc
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from semel.testing.world.fate import FAULTS
from semel.testing.world.world import Build, Report, World

_PAYLOAD_CHARS = 110
_COLLECT_EVERY = 20  # worlds


def told(report: Report) -> Iterator[str]:
    """What happened when, in virtual seconds; then each log, record by record; then what was broken."""
    for seconds, who, what in report.story:
        yield f"{seconds:12.4f}  {who:<8} {what}"
    for session, log in report.logs.items():
        yield f"the log of {session!r}:"
        for line in log.decode(errors="replace").splitlines():
            words = line.split(" ", 10)
            yield f"  seq {words[1]:>3}  fence {words[3]:>2}  {words[-1][:_PAYLOAD_CHARS]}"
    for invariant, what in report.breaches:
        yield f"BROKEN {invariant}: {what}"
    yield (
        f"seed {report.seed}: {report.lives} lives in {report.seconds:.0f} virtual seconds, {report.turns} turns, "
        f"{report.done} of them done, {report.fired.total()} faults, digest {report.digest[:16]}"
    )


@dataclass
class Tally:
    """What came of many worlds. `broken` are the seeds with a breach, each with its first one."""

    worlds: int = 0
    turns: int = 0
    done: int = 0
    lives: int = 0
    seconds: float = 0.0
    fired: Counter[str] = field(default_factory=Counter)
    checked: Counter[str] = field(default_factory=Counter)
    broken: dict[int, str] = field(default_factory=dict)

    def add(self, report: Report) -> None:
        """Count one more world."""
        self.worlds += 1
        self.turns += report.turns
        self.done += report.done
        self.lives += report.lives
        self.seconds += report.seconds
        self.fired.update(report.fired)
        self.checked.update(report.checked)
        if report.breaches:
            invariant, what = report.breaches[0]
            self.broken[report.seed] = f"{invariant}: {what}"

    def rare(self, least: int) -> list[str]:
        """The kinds of fault that struck less often than that."""
        return [kind for kind in FAULTS if self.fired[kind] < least]


def run_seeds(seeds: Iterable[int], build: Build) -> Tally:
    """Run a world of each seed."""
    tally = Tally()
    for at, seed in enumerate(seeds):
        tally.add(World(seed, build).run())
        if at % _COLLECT_EVERY == 0:
            gc.collect()
    return tally
