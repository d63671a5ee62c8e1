"""The judges look at every request of the whole run, so they start to keep them now, and their verdict comes last."""

import sys
from pathlib import Path

import pytest

from tests.judges import rendered

sys.path.insert(0, str(Path(__file__).parents[1] / "models"))
rendered.keep()


@pytest.fixture(autouse=True)
def no_keys_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The official clients are given their keys; one of them refuses plain HTTP where it finds a bearer key by itself."""
    monkeypatch.delenv("AWS_BEARER_TOKEN_BEDROCK", raising=False)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.get_closest_marker("last") is not None)
