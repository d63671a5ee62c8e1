"""docs/models.md says what the code does."""

import re
import typing
from pathlib import Path

from semel.adapters.models.catalog import ModelOptions
from semel.adapters.models.deadline import Limits
from semel.adapters.models.rows import rows
from semel.adapters.models.script import Fault

PAGE = (Path(__file__).parents[2] / "docs" / "models.md").read_text()


def test_the_table_of_providers_is_the_catalog():
    table = re.findall(r"^\| ([a-z-]+) \| ([a-z_]+) \| (\w+) \|$", PAGE, re.MULTILINE)
    assert table[1:] == [(name, row.family, row.key or "none") for name, row in rows({}).items()]


def test_every_option_limit_and_fault_is_on_the_page():
    options = re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)
    assert options == list(ModelOptions.__struct_fields__)
    assert all(f"`{name}`" in PAGE for name in Limits.__struct_fields__ if name.endswith("_ms"))
    kinds = [fault.__struct_config__.tag for fault in typing.get_args(Fault)]
    assert all(f"`{kind}`" in PAGE for kind in kinds)


def test_the_row_of_ones_own_on_the_page_is_one(tmp_path):
    example = re.search(r"```toml\n(.*?)```", PAGE, re.DOTALL)[1]
    (tmp_path / "models.toml").write_text(example)
    row = rows({"SEMEL_MODELS": str(tmp_path / "models.toml")})["house"]
    assert row.models["small"].price.currency == "EUR"
