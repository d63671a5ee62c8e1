"""The documents are true: commands run and print what the page says, tables equal the code, links lead somewhere."""

import itertools
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from tests.docs import tables
from tests.support.notrun import not_run

DOCS = tables.ROOT / "docs"
PAGES = sorted([*tables.ROOT.glob("*.md"), *DOCS.rglob("*.md")])
FENCE = re.compile(r"^```(?P<kind>\w*)(?: title=\"(?P<title>[^\"]+)\")?\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?://|mailto:)(?P<target>[^)#\s]*)(?:#[^)\s]*)?\)")


class Session(NamedTuple):
    """A command of a page and what the page says it prints."""

    command: str
    prints: str


def sessions(page: str) -> Iterator[Session]:
    """Each bash block that stands directly before a text block."""
    blocks = list(FENCE.finditer(page))
    for command, output in itertools.pairwise(blocks):
        if command["kind"] == "bash" and output["kind"] == "text" and output.start() == command.end() + 1:
            yield Session(command["body"], output["body"])


def titled(page: str, title: str) -> str:
    """The block that a page presents as a file."""
    (body,) = [match["body"] for match in FENCE.finditer(page) if match["title"] == title]
    return body


def prints(command: str, log: str, place: Path) -> str:
    """What bash prints for a command of the format page, beside a `wal.log` of this content."""
    for name in ("bash", "sha256sum", "jq", "gzip", "od"):
        if name in command and shutil.which(name) is None:
            not_run(f"{name} is not installed")
    (place / "wal.log").write_text(log)
    return subprocess.run(["bash", "-c", command], cwd=place, capture_output=True, text=True, check=True).stdout


FORMAT = (DOCS / "format.md").read_text()
DIGESTS, CHECKS, LENGTHS, TYPES = sessions(FORMAT)


@pytest.mark.parametrize("session", [DIGESTS, CHECKS, LENGTHS, TYPES], ids=["digests", "checks", "lengths", "types"])
def test_a_command_of_the_format_page_prints_what_the_page_says(session: Session, tmp_path: Path) -> None:
    assert prints(session.command, titled(FORMAT, "wal.log"), tmp_path) == session.prints


def test_what_the_commands_print_is_what_the_frames_hold() -> None:
    frames = [line.split(" ", 10) for line in titled(FORMAT, "wal.log").splitlines()]
    assert DIGESTS.prints.split() == [frame[9] for frame in frames]
    assert CHECKS.prints.split() == [frame[8] for frame in frames]
    assert LENGTHS.prints.split() == [frame[6] for frame in frames] == [str(len(frame[10].encode())) for frame in frames]


@pytest.mark.parametrize(
    ("old", "new", "unequal"), [('"box"', '"fox"', 2), ("completed", "cancelled", 1), ("1 1 17", "1 1 27", 1)]
)
def test_the_loop_of_the_format_page_sees_a_changed_byte(old: str, new: str, unequal: int, tmp_path: Path) -> None:
    said = prints(DIGESTS.command, titled(FORMAT, "wal.log").replace(old, new), tmp_path)
    assert [a == b for a, b in zip(said.split(), DIGESTS.prints.split(), strict=True)].count(False) == unequal


def test_the_table_of_errors_is_that_of_the_code() -> None:
    page = tables.STATUS_PAGE.read_text()
    assert len(tables.error_classes()) >= 25
    assert tables.with_errors(page) == page, "write it anew: python -m tests.docs.tables"


def test_a_stale_table_of_errors_is_seen() -> None:
    page = tables.STATUS_PAGE.read_text()
    stale = page.replace("| `session_busy` | `SessionBusy` | 7 |", "| `session_busy` | `SessionBusy` | 1 |")
    assert stale != page
    assert tables.with_errors(stale) == tables.with_errors(page) != stale


def test_error_codes_are_unique_and_every_exit_code_is_explained() -> None:
    codes = [error.code for error in tables.error_classes()]
    assert len(codes) == len(set(codes))
    explained = {int(number) for number in re.findall(r"^\| (\d) \|", tables.STATUS_PAGE.read_text(), re.MULTILINE)}
    assert explained == set(range(8))
    assert {error.exit for error in tables.error_classes()} <= explained


def dead_links(page: Path, text: str) -> list[str]:
    """Relative links of a page that lead to no file."""
    return [match["target"] for match in LINK.finditer(text) if match["target"] and not (page.parent / match["target"]).exists()]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(tables.ROOT).as_posix())
def test_every_link_of_a_page_leads_to_a_file(page: Path) -> None:
    assert dead_links(page, page.read_text()) == []


def test_a_dead_link_is_seen() -> None:
    text = "[a](format.md#frames) [b](gone.md) [c](https://example.org/x) [d](#here)"
    assert dead_links(DOCS / "index.md", text) == ["gone.md"]


def nav_files(nav: list[object]) -> Iterator[str]:
    """The files that a navigation tree names."""
    for item in nav:
        for target in item.values() if isinstance(item, dict) else [item]:
            yield from nav_files(target) if isinstance(target, list) else [str(target)]


def test_the_navigation_names_every_page_once_and_nothing_else() -> None:
    nav = yaml.safe_load((tables.ROOT / "mkdocs.yml").read_text())["nav"]
    assert sorted(nav_files(nav)) == sorted(page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md"))


def test_decisions_are_numbered_without_a_gap_and_fit_a_page() -> None:
    decisions = sorted((DOCS / "decisions").glob("*.md"))
    assert [page.name[:4] for page in decisions] == [f"{number:04}" for number in range(1, len(decisions) + 1)]
    for page in decisions:
        text = page.read_text()
        assert len(text.splitlines()) <= 60, page.name
        assert text.startswith(f"# {page.name[:4]}. ")
        assert re.findall(r"^## (\w+)", text, re.MULTILINE) == ["Context", "Choice", "Cost"], page.name


def test_every_release_states_its_log_format() -> None:
    changelog = (tables.ROOT / "CHANGELOG.md").read_text()
    releases = re.split(r"^## ", changelog, flags=re.MULTILINE)[1:]
    assert releases
    assert all("\n**Log format**: opens " in release for release in releases)
