"""T15: processes that race for a session: exactly one of them holds it, and those that are refused change no byte (L1, P5)."""

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from semel.core.frame import TailKind, scan
from storage.processes import process

LOSERS = {
    "writes to the log": ("changed sessions/box/wal.log", "foreign_write", "log_damaged"),
    "stamps the lease": ("changed sessions/box/lease", "lease_lost"),
    "makes a file": ("changed sessions/box/refused-",),
}
"""What a loser may do wrong, and how a holder then notices."""


@dataclass(frozen=True)
class Race:
    """What all racers of a race said, added up. In `watched` tenures somebody was refused, and no byte of the state changed."""

    tenures: int
    refusals: int
    watched: int
    seqs: list[int]


def said_in(root: Path, racers: int, wins: int, every: int, fault: str = "", syncs: str = "synced") -> list[str]:
    """Let processes race for a session, each until it won so often, and the last one with the fault. What they say.

    A loser that writes goes on until the others have ended, and is not listened to.
    """
    spoils = fault in LOSERS
    with ExitStack() as stack:
        kinds = [(wins, "")] * (racers - 1) + [(10**9 if spoils else wins, fault)]
        started = [stack.enter_context(process("racer", root, "box", wins, every, syncs, fault)) for wins, fault in kinds]
        assert [racer.hear() for racer in started] == ["ready"] * racers
        for racer in started:
            racer.tell("go")
        return [racer.hear() for racer in (started[:-1] if spoils else started)]


def race(root: Path, racers: int, wins: int, every: int, syncs: str = "synced") -> Race:
    """A race in which nothing is amiss; each racer appends and looks for changed bytes at every so manyth of its tenures."""
    words = [line.split() for line in said_in(root, racers, wins, every, syncs=syncs)]
    assert [line[:2] for line in words] == [["won", str(wins)]] * racers, words
    found = Race(
        tenures=sum(int(line[1]) for line in words),
        refusals=sum(int(line[3]) for line in words),
        watched=sum(int(line[5]) for line in words),
        seqs=sorted(int(seq) for line in words for seq in line[-1].split(",")),
    )
    print(f"T15: {racers} racers: {found.tenures} tenures, {found.refusals} refusals, {found.watched} watched: no byte changed")
    assert found.seqs == list(range(racers * -(-wins // every) + 1))  # every record once, the lineage line too
    assert found.watched >= wins // every // 2
    return found


@pytest.mark.parametrize(("racers", "wins"), [(2, 100), (8, 12)])
def test_t15_of_processes_that_race_one_holds_the_session_at_a_time_and_the_others_change_no_byte(
    racers: int, wins: int, root: Path
) -> None:
    race(root, racers, wins, every=1)
    found = scan((root / "sessions" / "box" / "wal.log").read_bytes())
    assert found.tail.kind is TailKind.CLEAN
    fences = [frame.fence for frame in found.frames[1:]]
    assert fences == list(range(1, racers * wins + 1))


@pytest.mark.timeout(180)
@pytest.mark.parametrize(("racers", "wins", "tenures"), [(2, 4_000, 8_000), (8, 250, 2_000)])
def test_t15_ten_thousand_tenures_have_one_holder_each(racers: int, wins: int, tenures: int, root: Path) -> None:
    assert race(root, racers, wins, 100, "unsynced").tenures == tenures


@pytest.mark.prove
@pytest.mark.timeout(1700)
@pytest.mark.parametrize(("racers", "wins"), [(2, 5_000), (8, 1_000)])
def test_t15_thousands_of_tenures_have_one_holder_each(racers: int, wins: int, root: Path) -> None:
    assert race(root, racers, wins, every=50).tenures == racers * wins


@pytest.mark.parametrize("fault", LOSERS)
def test_t15_a_loser_that_writes_is_caught(fault: str, root: Path) -> None:
    (said,) = said_in(root, 2, 100, 1, fault)
    assert said.startswith(LOSERS[fault])


def test_t15_locks_that_exclude_nobody_are_caught(root: Path) -> None:
    assert "two holders" in said_in(root, 2, 100, 1, "has no locks")
