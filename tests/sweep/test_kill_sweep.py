"""P1, P2, P4: a real process is killed by SIGKILL at every persistence call of the reference run, and the next one goes on.

Whatever was cut: a once tool acted at most once, no acknowledged record is gone or another, the log is gapless with exactly one
terminal, and every request is, byte for byte, the one of the uncut run that holds as many answers.
"""

from pathlib import Path

import pytest

from tests.sweep.lives import Lives, Uncut, kill_points, sweep, sweep_resume


def test_p2_the_reference_run_is_what_the_sweep_counts_on(uncut: Uncut) -> None:
    print(f"reference run: {len(uncut.requests)} model calls, {uncut.records} records, {len(uncut.calls)} persistence calls")
    assert len(uncut.requests) == 3
    assert uncut.records == 29
    assert len(uncut.calls) == 55


@pytest.mark.timeout(120)
def test_p1_p2_a_resume_killed_at_any_of_its_own_persistence_calls_is_resumed_again(
    lives: Lives, uncut: Uncut, tmp_path: Path
) -> None:
    first = f"{len(uncut.calls) // 2}:exit"
    ends = sweep_resume(lives, uncut, tmp_path, first)
    print(f"kills within the resume behind {first}: {ends.total()}, {dict(ends)}")
    assert ends == {"completed": 118, "interrupted": 8}
    assert ends.total() + len(kill_points(uncut.calls)) >= 230, "kills in both sweeps together"


@pytest.mark.timeout(170)
def test_p1_p2_p4_a_process_killed_at_any_persistence_call_repeats_nothing_and_loses_nothing(
    lives: Lives, uncut: Uncut, tmp_path: Path
) -> None:
    points = kill_points(uncut.calls)
    ends = sweep(lives, uncut, tmp_path, points)
    print(f"kill sweep: {len(points)} points, {dict(ends)}")
    assert ends == {"completed": 102, "interrupted": 8}


@pytest.mark.prove
@pytest.mark.timeout(3600)
def test_p1_p2_a_recovery_killed_at_any_of_its_own_persistence_calls_recovers_again(
    lives: Lives, uncut: Uncut, tmp_path: Path
) -> None:
    """For every third point of the first life: kill the next one at each of its own calls, and let the third go on."""
    count = 0
    for first in kill_points(uncut.calls)[::3]:
        root = tmp_path / first.replace(":", "-")
        root.mkdir()
        count += sweep_resume(lives, uncut, root, first).total()
    print(f"kills within a recovery: {count} pairs")
    assert count >= 1000
