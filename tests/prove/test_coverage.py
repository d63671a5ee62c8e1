"""Every branch of the modules that durable data depends on is taken by some test: of the log, its recovery, lease and floor."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.prove, pytest.mark.timeout(1700)]
HERE = Path(__file__).parents[2]
MODULES = (
    *("core/frame.py", "core/header.py", "core/tail.py", "core/reading.py", "core/behind.py", "core/lookup.py"),
    *("adapters/file/recovery.py", "adapters/file/bookmark.py", "adapters/file/aside.py"),
    *("adapters/file/lease.py", "adapters/file/floor.py"),
)
TESTS = (
    *("frame", "reading", "tail", "behind", "file", "reader", "damage", "index", "bookmark", "lookup"),
    *("floor", "floor_lock", "kept_in_vain", "tenure", "lease", "contact", "lock_life", "conformance"),
)
SWEEPS = "not flip and not race and not t15 and not torn_write and not power_loss and not burst"


def measured(place: Path, tests: tuple[str, ...], extra: str = "") -> dict[str, dict[str, object]]:
    """Coverage of the modules by these tests, by module: as `coverage json` tells it."""
    data, report = place / "coverage", place / "report.json"
    paths = [f"tests/storage/test_{name}.py" for name in tests]
    include = ",".join(f"*/semel/{module}" for module in MODULES)
    cover = [sys.executable, "-m", "coverage"]
    environment = {**os.environ, "COVERAGE_FILE": str(data)}
    run = [*cover, "run", "--branch", f"--include={include}", "-m", "pytest", "-q", "-k", SWEEPS + extra, *paths]
    done = subprocess.run(run, cwd=HERE, env=environment, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:]
    subprocess.run([*cover, "json", "-q", "-o", str(report)], cwd=HERE, env=environment, check=True)
    files = json.loads(report.read_text())["files"]
    return {module: next(found for path, found in files.items() if path.endswith(f"semel/{module}")) for module in MODULES}


def test_every_branch_is_taken(tmp_path: Path) -> None:
    found = measured(tmp_path, TESTS)
    for module, of in found.items():
        summary = of["summary"]
        assert isinstance(summary, dict)
        branches = f"{summary['covered_branches']} of {summary['num_branches']} branches"
        print(f"{module:28} {branches}, missing {of['missing_branches']}, lines {of['missing_lines']}")
    missed = {module: (of["missing_lines"], of["missing_branches"]) for module, of in found.items()}
    assert missed == dict.fromkeys(MODULES, ([], []))


def test_a_branch_that_no_test_takes_is_seen(tmp_path: Path) -> None:
    found = measured(tmp_path, ("frame",), " and not newer")
    assert found["core/tail.py"]["missing_branches"] != []
