"""The judges look at every request of the whole run, so they start to keep them now, and their verdict comes last."""

import sys
from pathlib import Path

import pytest

from tests.judges import rendered

sys.path.insert(0, str(Path(__file__).parents[1] / "models"))
rendered.keep()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.get_closest_marker("last") is not None)
