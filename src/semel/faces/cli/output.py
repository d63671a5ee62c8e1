"""What the command line prints: data to stdout, talk to stderr, and nothing that could command the terminal (A20).

Text of models, tools, files and sessions is made visible before a person sees it. JSON is escaped by JSON, and data that goes
into a pipe stays as it is.
"""

import json
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from semel.ports.log import SessionStore

_COMMANDING = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})  # controls, bidi and zero-width formats, surrogates, odd line ends
_KEPT = frozenset("\n\t")
_SOURCE_SPACE = str.maketrans({"\n": "\\n", "\t": "\\t"})


def _stdout() -> TextIO:
    """The process's own stdout, wherever `print` of a tool or module goes meanwhile."""
    return sys.__stdout__ or sys.stdout


def visible(text: str) -> str:
    """Text with every control, C1, bidi and zero-width character shown as its escape; line feeds and tabs stay."""
    if text.isprintable():
        return text
    return "".join(_shown(character) for character in text)


def one_line(text: str, limit: int = 2000) -> str:
    """Text as one bounded visible line."""
    shown = visible(text).translate(_SOURCE_SPACE)
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


def talk(text: str) -> None:
    """One line to whoever watches: stderr, visible and flushed."""
    sys.stderr.write(one_line(text) + "\n")
    sys.stderr.flush()


def tell_faults(store: "SessionStore") -> None:
    """Say what was found damaged of the index."""
    for fault in store.index_faults:
        talk(fault)


def show_cursor() -> None:
    """Clear the line that is redrawn on a terminal and show the cursor, past the drawer of it, which filters controls."""
    terminal = sys.__stderr__
    if terminal is not None and terminal.isatty():
        terminal.write("\r\x1b[2K\x1b[?25h")
        terminal.flush()


def stdout_is_terminal() -> bool:
    """Whether a person reads stdout."""
    return _stdout().isatty()


def data(text: str) -> None:
    """Text for stdout: as it is into a pipe or file, made visible on a terminal."""
    _stdout().write(visible(text) if _stdout().isatty() else text)
    _stdout().flush()


def shown(text: str) -> None:
    """A line of text for people on stdout, whoever reads it."""
    _stdout().write(visible(text) + "\n")
    _stdout().flush()


def json_line(value: Any) -> None:
    """One JSON object on one line of stdout."""
    _stdout().write(json.dumps(value, ensure_ascii=_stdout().isatty(), separators=(",", ":")) + "\n")
    _stdout().flush()


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Rows under a heading: aligned on a terminal, else separated by tabs."""
    lines = [[one_line(cell, 400) for cell in row] for row in rows]
    if not _stdout().isatty():
        for line in (columns, *lines):
            shown("\t".join(cell.replace("\t", " ") for cell in line))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    drawn = Table(*columns, box=None, pad_edge=False, header_style="bold")
    for line in lines:
        drawn.add_row(*(Text(cell, overflow="fold") for cell in line))
    Console(file=_stdout(), highlight=False).print(drawn)


def _shown(character: str) -> str:
    if character in _KEPT or unicodedata.category(character) not in _COMMANDING:
        return character
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
