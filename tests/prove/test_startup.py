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
    figures = {
        "bare interpreter": bare,
        "import semel, over bare": median_ms("-c", "import semel") - bare,
        "semel --help, over bare": median_ms("-m", "semel", "--help") - bare,
        "first durable turn from a cold process, over bare": median_ms("-c", turn) - bare,
    }
    for what, ms in figures.items():
        print(f"{what}: {ms:.0f} ms (median of {RUNS})")
    assert all(ms > 0 for ms in figures.values())
