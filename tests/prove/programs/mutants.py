"""Runs tests against changed sources quickly: a process that has imported the test tools once forks for each run.

Reads one JSON object a line, {"source", "tests", "seconds"}; answers with the exit code of pytest, or -1 where it took too long.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

HERE = Path(__file__).parents[3]


def run(source: str, tests: list[str]) -> int:
    """In the child: pytest over the changed source."""
    quiet = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(quiet, fd)
    sys.path[:0] = [source, str(HERE / "tests"), str(HERE)]
    os.environ["PYTHONPATH"] = os.pathsep.join([source, str(HERE)])  # for the processes that tests start
    import pytest

    imported = "ignore::pytest.PytestAssertRewriteWarning"  # what was imported before the fork has no rewritten asserts
    options = ["-x", "-q", "-W", imported, "-o", "timeout=60", f"--rootdir={HERE}", "-c", str(HERE / "pyproject.toml")]
    return int(pytest.main([*options, *tests]))


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


def main() -> None:
    import asyncio  # noqa: F401  what every run needs is imported before the fork
    import sqlite3  # noqa: F401  needed before the fork

    import anyio.pytest_plugin  # noqa: F401  needed before the fork
    import hypothesis.strategies  # noqa: F401  needed before the fork
    import msgspec  # noqa: F401  needed before the fork
    import pytest  # noqa: F401  needed before the fork

    sys.dont_write_bytecode = True
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    for line in sys.stdin:
        order = json.loads(line)
        child = os.fork()
        if child == 0:
            os.setpgid(0, 0)
            code = 70
            try:
                code = run(order["source"], order["tests"])
            finally:
                os._exit(code)
        print(wait(child, order["seconds"]), flush=True)


if __name__ == "__main__":
    main()
