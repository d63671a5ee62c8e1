"""R of design 13: open, verify and fold 2,000 turns, beside reading, hashing and decoding the same. Figures, no verdict."""

import statistics
from pathlib import Path

import pytest

from tests.prove.test_full_log import program

pytestmark = [pytest.mark.prove, pytest.mark.timeout(300)]
RUNS = 7
BYTES_OF_2000_TURNS = 16_650_000


def test_opening_is_printed_beside_reading_hashing_and_decoding(tmp_path: Path) -> None:
    root = str(tmp_path / "state")
    assert 1_950 <= program("fill", root, str(BYTES_OF_2000_TURNS))["turns"] <= 2_050
    taken: dict[str, list[float]] = {"raw": [], "open": [], "fold": []}
    for _ in range(RUNS):
        for what, seconds in taken.items():
            seconds.append(program(what, root)["seconds"])
    raw, opened, folded = (statistics.median(seconds) for seconds in taken.values())
    print(f"R: reading, hashing and decoding takes {raw * 1000:.0f} ms")
    print(f"open + verify {opened / raw:.2f} x that, with the fold {folded / raw:.2f} x")
    assert raw > 0
