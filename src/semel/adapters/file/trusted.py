"""Reading files of a state directory as a session reads them: neither a file nor anything on the way to it may be a link."""

import os
from contextlib import ExitStack
from io import BufferedReader
from pathlib import Path

from semel.adapters.file.root import Root, open_private


def open_trusted(root: Root, path: Path) -> BufferedReader:
    """Open a file below a state directory for reading. Raises UnsafeStore where it cannot be trusted (A2, A3), and OSError."""
    *directories, name = path.absolute().relative_to(root.path).parts
    with ExitStack() as opened:
        at, descriptor = root.path, opened.enter_context(root.open())
        for directory in directories:
            at = at / directory
            descriptor = opened.enter_context(root.directory(directory, descriptor, at))
        return os.fdopen(open_private(root.disk, name, descriptor, os.O_RDONLY, path), "rb")
