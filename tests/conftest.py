"""Shared by all tests: one event loop, no network, long proofs only when asked for, and no silent skip."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import canary, network, notrun, underway

PROOF_COUNT = pytest.StashKey[int]()
SHOWN: list[str] = []
"""Where the key of the environment was shown behind a test (A13)."""


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def stays_on_this_machine() -> Iterator[None]:
    """Fails a test that tried to reach another machine, also where the code under test swallowed the refusal."""
    network.take_strays()
    yield
    strays = network.take_strays()
    assert not strays, f"tests talk to this machine only: {strays}"


@pytest.fixture(autouse=True)
def leaves_nothing_under_way() -> Iterator[None]:
    """Fails a test behind which a thread, a process, a connection or a deaf task goes on, which a later one would find."""
    yield
    left = underway.take_left()
    assert not left, f"the test has ended, and these go on: {left}"


@pytest.fixture(autouse=True)
def shows_no_key(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fails a test that let the key of the environment into a file, a command line, or what a child printed (A13)."""
    canary.take_leaks()
    place = request.getfixturevalue("tmp_path") if "tmp_path" in request.fixturenames else None
    yield
    if isinstance(place, Path):
        for path in canary.leaks_in(place):
            canary.look_at(f"the file {path}", canary.KEY)
    leaks = canary.take_leaks()
    assert not leaks, f"the key of the environment is in {leaks}"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--prove", action="store_true", help="run the slow proofs too (make prove)")


def pytest_configure() -> None:
    network.guard()
    canary.plant()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    for name, text in (("what it raised", report.longreprtext), *report.sections):
        if canary.KEY in text:
            SHOWN.append(f"{report.nodeid}: {name}")


def pytest_sessionfinish(session: pytest.Session) -> None:
    factory = getattr(session.config, "_tmp_path_factory", None)
    left = canary.leaks_in(factory.getbasetemp()) if factory is not None else ()
    SHOWN.extend(f"the file {path}" for path in left)
    if SHOWN:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--prove"):
        return
    slow = [item for item in items if item.get_closest_marker("prove")]
    config.stash[PROOF_COUNT] = len(slow)
    if slow:
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if not item.get_closest_marker("prove")]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if SHOWN:
        terminalreporter.section("the key of the environment was shown", red=True)
        for line in SHOWN:
            terminalreporter.line(line)
    lines = list(notrun.summary_lines(terminalreporter.stats.get("skipped", []), config.stash.get(PROOF_COUNT, 0)))
    if lines:
        terminalreporter.section("not run on this machine")
        for line in lines:
            terminalreporter.line(line)
