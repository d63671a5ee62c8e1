"""Shared by all tests: one event loop, no network, long proofs only when asked for, and no silent skip."""

from collections.abc import Iterator

import pytest

from tests.support import network, notrun

PROOF_COUNT = pytest.StashKey[int]()


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


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--prove", action="store_true", help="run the slow proofs too (make prove)")


def pytest_configure() -> None:
    network.guard()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--prove"):
        return
    slow = [item for item in items if item.get_closest_marker("prove")]
    config.stash[PROOF_COUNT] = len(slow)
    if slow:
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if not item.get_closest_marker("prove")]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    lines = list(notrun.summary_lines(terminalreporter.stats.get("skipped", []), config.stash.get(PROOF_COUNT, 0)))
    if lines:
        terminalreporter.section("not run on this machine")
        for line in lines:
            terminalreporter.line(line)
