"""A13: a canary key is in the environment of the whole suite, and in no output of it.

Every variable that semel takes a key from holds it, so that each request of the suite to this machine carries it. It may be in
no file that a test leaves, in nothing that a test or a child process prints, in no command line, and in the environment of no
tool's process.
"""

import mmap
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from semel.adapters.models.catalog import ACCESS_KEY, SECRET_KEY
from semel.adapters.models.keys import key_variable
from semel.adapters.models.rows import rows
from semel.adapters.tools.command import CALL_KEY_VARIABLE

KEY = "sk-semel-canary-of-the-suite-93f1c07e5d"
TELLING = KEY[:8]  # of a text that was cut short there may be no more, and nothing else begins like this
_leaks: list[str] = []


def plant() -> None:
    """Put the key where semel looks for keys, and watch the children; later calls change nothing."""
    provided = {row.key for row in rows({}).values() if row.key is not None}
    for name in (*provided, ACCESS_KEY, SECRET_KEY, *map(key_variable, ("127.0.0.1", "localhost", "::1"))):
        os.environ[name] = KEY
    if not getattr(sys, "_semel_tests_listen", False):
        sys._semel_tests_listen = True  # type: ignore[attr-defined]  # a mark that hooks are there
        sys.addaudithook(_watch)
        subprocess.Popen.communicate = _listening(subprocess.Popen.communicate)  # type: ignore[method-assign]  # the one door to what children print


def take_leaks() -> list[str]:
    """Where the key was seen since the last call."""
    leaks = _leaks.copy()
    _leaks.clear()
    return leaks


def look_at(what: str, text: str | bytes | None) -> None:
    """Note a text that holds the key, or eight characters and more of its start."""
    raw = text.encode(errors="replace") if isinstance(text, str) else text or b""
    if TELLING.encode() in raw:
        _leaks.append(what)


def leaks_in(directory: Path) -> Iterator[Path]:
    """The files below a directory that hold the key, or eight characters and more of its start."""
    for path in _files(directory):
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            if content.find(TELLING.encode()) >= 0:
                yield path


def _files(directory: Path) -> Iterator[Path]:
    for place, _, names in os.walk(directory):
        for path in (Path(place, name) for name in names):
            if path.is_file() and not path.is_symlink() and os.access(path, os.R_OK) and path.stat().st_size:
                yield path


def _watch(event: str, args: tuple[Any, ...]) -> None:
    if event != "subprocess.Popen":
        return
    _, argv, _, environment = args
    for word in [argv] if isinstance(argv, str | bytes) else _words(argv):
        look_at(f"the command line {argv!r}".replace(KEY, "KEY"), word)
    if environment is not None and CALL_KEY_VARIABLE in environment and KEY in environment.values():
        _leaks.append(f"the environment of a tool's process {argv!r}")


def _words(argv: Iterable[Any]) -> Iterator[str | bytes]:
    return (word if isinstance(word, bytes) else str(word) for word in argv)


def _listening(communicate: Any) -> Any:
    def listening(process: Any, *args: Any, **given: Any) -> Any:
        out, err = communicate(process, *args, **given)
        look_at(f"the stdout of {process.args!r}", out)
        look_at(f"the stderr of {process.args!r}", err)
        return out, err

    return listening
