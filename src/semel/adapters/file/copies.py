"""Whether a directory is a copy instead of one to work in: a backup, or what a backup or restore that did not end has left.

Of what happened behind a copy it knows nothing, so going on with it could send something again; and what is not whole looks as if
it were. So nothing is written to either. Both can be read.
"""

import os
import shlex
from pathlib import Path
from typing import Literal

import msgspec

from semel.adapters.file.root import Root, naming, open_private, replace_file
from semel.core.values import Frozen
from semel.errors import IsCopy

LIST_NAME = "backup.json"
"""What a backup holds; it is written last, so that a backup without it is not whole."""

UNFINISHED = "unfinished"
"""There from before the first session of a backup or restore until the last one is durable."""

What = Literal["backup", "restore"]


class _Begun(Frozen, frozen=True, kw_only=True):
    """What makes a directory, and the other one: where a backup comes from, or a restore."""

    schema: Literal[1]
    what: What
    other: str


class Copy(Frozen, frozen=True, kw_only=True):
    """That a directory is a copy, in words, and what to do; one that is not `whole` may lack sessions and records."""

    whole: bool
    what: str
    advice: str


def copy_at(root: Root) -> Copy | None:
    """What copy a directory is; None for one to work in, or that is not there. Raises StoreError if it cannot be looked at."""
    here = shlex.quote(str(root.path))
    if _is_there(root, LIST_NAME):
        advice = f"`semel restore {here} --state NEW` makes a state directory of it"
        return Copy(whole=True, what="is a backup, and nothing is written to one", advice=advice)
    if not _is_there(root, UNFINISHED):
        return None
    begun = _read(root)
    if begun is None:
        return Copy(whole=False, what="was left by a backup or restore that did not end", advice="remove it, and begin again")
    other = shlex.quote(begun.other)
    words = f"restore {other} --state {here}" if begun.what == "restore" else f"backup {here} --state {other}"
    return Copy(
        whole=False,
        what=f"was left by a {begun.what} that did not end, and may lack sessions and records",
        advice=f"remove it, and begin again: `semel {words}`",
    )


def refuse_copy(root: Root) -> None:
    """Raise IsCopy for a directory that nothing may be written to."""
    _refuse(root, copy_at(root))


def refuse_unfinished(root: Root) -> None:
    """Raise IsCopy for one that is not whole, so that it cannot even be copied."""
    found = copy_at(root)
    _refuse(root, None if found is None or found.whole else found)


def begin(root: Root, what: What, other: Path) -> None:
    """Say durably that a new directory is not whole yet."""
    content = msgspec.json.encode(_Begun(schema=1, what=what, other=str(other))) + b"\n"
    with naming("write", root.path / UNFINISHED), root.open() as directory:
        replace_file(root.disk, UNFINISHED, content, directory, root.path / UNFINISHED)
        root.disk.sync_directory(directory)
        root.sync()


def end(root: Root) -> None:
    """All is there, and durable."""
    with naming("finish", root.path / UNFINISHED), root.open() as directory:
        root.disk.unlink(UNFINISHED, directory)
        root.disk.sync_directory(directory)


def _refuse(root: Root, found: Copy | None) -> None:
    if found is not None:
        raise IsCopy(f"{root.path} {found.what}. {found.advice[0].upper()}{found.advice[1:]}. Nothing was changed.")


def _is_there(root: Root, name: str) -> bool:
    path = root.path / name
    with naming("look at", path):
        try:
            root.disk.status_of(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
    return True


def _read(root: Root) -> _Begun | None:
    path = root.path / UNFINISHED
    with naming("read", path), root.open() as directory:
        fd = open_private(root.disk, UNFINISHED, directory, os.O_RDONLY, path)
        try:
            return msgspec.json.decode(root.disk.read(fd), type=_Begun)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return None
        finally:
            root.disk.close(fd)
