"""How fast semel starts, printed beside the bare interpreter of the same minute (design 13). Figures, no verdict."""

import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = [pytest.mark.prove, pytest.mark.timeout(300)]
RUNS = 21


def median_ms(*command: str) -> float:
    """Median wall time of a command over several runs, behind one that is not counted."""
    taken = []
    for _ in range(RUNS + 1):
        started = time.perf_counter()
        subprocess.run([sys.executable, *command], check=True, capture_output=True)
        taken.append((time.perf_counter() - started) * 1000)
    return statistics.median(taken[1:])


def test_start_up_is_printed_beside_the_bare_interpreter(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text(json.dumps({"answers": [{"text": "hello"}]}))
    turn = f"from semel import Agent, run_sync; run_sync(Agent('a', model='scripted:{script}'), 'hi', state='{tmp_path}/state')"
    bare = median_ms("-c", "pass")
    print(f"bare interpreter: {bare:.0f} ms (median of {RUNS})")
    figures = {
        "import semel": (median_ms("-c", "import semel") - bare, 100, 60),
        "semel --help": (median_ms("-m", "semel", "--help") - bare, 150, 100),
        "first durable turn from a cold process": (median_ms("-c", turn) - bare, 300, 150),
    }
    for what, (ms, must, goal) in figures.items():
        print(f"{what}, over bare: {ms:.0f} ms (must {must}, goal {goal})")
    assert all(ms > 0 for ms, _, _ in figures.values())
