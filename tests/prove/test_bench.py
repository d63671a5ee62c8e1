"""The whole of `semel bench` on this disk, printed beside its musts (design 13). What is asserted are counts, no timings."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from semel.faces.bench.figures import TABLE

pytestmark = [pytest.mark.prove, pytest.mark.timeout(900)]


def test_the_bench_is_printed_beside_its_musts(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "semel", "bench", "--json", "--state", str(tmp_path)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    lines = {line["figure"]: line for line in map(json.loads, done.stdout.splitlines())}
    for line in lines.values():
        print(f"{line['figure']}: {line['median']} {line['unit']}, must {line['must']}, goal {line['goal']}: {line['verdict']}")
    assert set(lines) == set(TABLE)
    assert lines["syncs"]["median"] == 2
    assert lines["G"]["facts"]["turns"] == lines["R"]["facts"]["turns"] == 2000
