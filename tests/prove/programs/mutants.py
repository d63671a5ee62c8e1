"""Runs tests against changed sources quickly: a process that has imported the test tools once forks for each run.

Reads one JSON object a line, {"source", "tests", "ranks", "seconds"}. `ranks` says by test which come first: the lower, the
sooner; a test that is not in it comes last. The first that fails ends the run. Answers with a line {"code", "failed", "took"}:
the exit code of pytest, or -1 where it took too long; the test that failed, if one did; and the seconds of each that ran.
"""

import json
import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parents[3]


class Watch:
    """A plugin of pytest: sorts the tests, and writes down how long each took and which one failed."""

    def __init__(self, ranks: dict[str, float]) -> None:
        self.ranks, self.took, self.failed = ranks, dict[str, float](), ""

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        items.sort(key=lambda item: self.ranks.get(item.nodeid, float("inf")))

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.took[report.nodeid] = self.took.get(report.nodeid, 0.0) + report.duration
        if report.failed:
            self.failed = report.nodeid


def run(order: dict[str, Any], into: Path) -> int:
    """In the child: pytest over the changed source."""
    quiet = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(quiet, fd)
    source = order["source"]
    sys.path[:0] = [source, str(HERE / "tests"), str(HERE)]
    os.environ["PYTHONPATH"] = os.pathsep.join([source, str(HERE)])  # for the processes that tests start
    import pytest

    imported = "ignore::pytest.PytestAssertRewriteWarning"  # what was imported before the fork has no rewritten asserts
    options = ["-x", "-q", "-W", imported, "-o", "timeout=60", f"--rootdir={HERE}", "-c", str(HERE / "pyproject.toml")]
    watch = Watch(order["ranks"])
    code = int(pytest.main([*options, *order["tests"]], plugins=[watch]))
    into.write_text(json.dumps({"failed": watch.failed, "took": watch.took}))
    return code


def wait(child: int, seconds: float) -> int:
    """The exit code of a run; whoever takes too long is ended with all that it started."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return -1


def answer(order: dict[str, Any], into: Path) -> dict[str, Any]:
    """Fork, run, and say what came of it."""
    into.write_text(json.dumps({"failed": "", "took": {}}))
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        code = 70
        try:
            code = run(order, into)
        finally:
            os._exit(code)
    return {"code": wait(child, order["seconds"]), **json.loads(into.read_text())}


def main() -> None:
    import asyncio  # noqa: F401  what every run needs is imported before the fork
    import sqlite3  # noqa: F401  needed before the fork

    import anyio.pytest_plugin  # noqa: F401  needed before the fork
    import hypothesis.strategies  # noqa: F401  needed before the fork
    import msgspec  # noqa: F401  needed before the fork
    import pytest  # noqa: F401  needed before the fork

    sys.dont_write_bytecode = True
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    with tempfile.TemporaryDirectory() as place:
        for line in sys.stdin:
            print(json.dumps(answer(json.loads(line), Path(place) / "report")), flush=True)


if __name__ == "__main__":
    main()
