"""Tables of the documents that are written from the code. `python -m tests.docs.tables` writes them; a test compares."""

import importlib
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path

from semel.errors import SemelError

ROOT = Path(__file__).parents[2]
STATUS_PAGE = ROOT / "docs/status.md"
REQUIREMENT_IDS = re.compile(r" \([A-Z]+\d[^)]*\)")  # they are for readers of the code
ERRORS_BLOCK = re.compile(r"(?<=<!-- errors: begin)(?P<note>.*?-->\n).*?(?=<!-- errors: end -->)", re.DOTALL)


def error_classes() -> list[type[SemelError]]:
    """Every error of the errors, core and ports modules, base classes before their leaves."""
    for package in ("semel.core", "semel.ports"):
        for module in pkgutil.iter_modules(importlib.import_module(package).__path__, f"{package}."):
            importlib.import_module(module.name)
    return [
        found for found in _with_leaves(SemelError) if found.__module__.startswith(("semel.errors", "semel.core", "semel.ports"))
    ]


def _with_leaves(base: type[SemelError]) -> Iterator[type[SemelError]]:
    yield base
    for leaf in sorted(base.__subclasses__(), key=lambda leaf: (leaf.__module__, leaf.__qualname__)):
        yield from _with_leaves(leaf)


def errors_table() -> str:
    """The table of errors as Markdown."""
    rows = ["| code | error | exit | happened | retry | meaning |", "|---|---|---|---|---|---|"]
    for error in error_classes():
        meaning = REQUIREMENT_IDS.sub("", (error.__doc__ or "").strip().splitlines()[0]).replace("|", "\\|")
        rows.append(f"| `{error.code}` | `{error.__name__}` | {error.exit} | {error.happened} | {error.retry} | {meaning} |")
    return "\n".join(rows) + "\n"


def with_errors(page: str) -> str:
    """The page with the table of today's errors in its place."""
    return ERRORS_BLOCK.sub(lambda match: match["note"] + errors_table(), page)


if __name__ == "__main__":
    STATUS_PAGE.write_text(with_errors(STATUS_PAGE.read_text(encoding="utf-8")), encoding="utf-8")
