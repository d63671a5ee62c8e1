"""Shared by all tests: asyncio is the only backend, proofs that take minutes run only when asked for."""

import pytest


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--prove", action="store_true", help="run the slow proofs too (make prove)")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--prove"):
        return
    slow = [item for item in items if item.get_closest_marker("prove")]
    if slow:
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if not item.get_closest_marker("prove")]
