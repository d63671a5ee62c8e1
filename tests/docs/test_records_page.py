"""The page of records is written from the code, and never stale: `make check` fails where it is."""

import runpy
import typing
from pathlib import Path

from semel.core.records import Record

PAGE = runpy.run_path(str(Path(__file__).parents[2] / "scripts" / "records_page.py"))
RECORDS = typing.get_args(Record)


def test_the_page_of_records_is_that_of_the_code() -> None:
    assert PAGE["not_in_catalog"]() == set()
    assert PAGE["PAGE"].read_text(encoding="utf-8") == PAGE["records_page"](), "run python scripts/records_page.py"
    assert len(RECORDS) == 43


def test_a_stale_page_would_be_seen() -> None:
    page = PAGE["records_page"]()
    assert page.replace("| `drained` | list of text |", "| `drained`? | list of text |") != page
