"""Small files that a person names: read whole, and never more than they may be."""

import errno
import os
import stat
from io import BufferedReader
from pathlib import Path

FILE_BYTES_MOST = 1024 * 1024


def open_regular(path: Path) -> BufferedReader:
    """A regular file, for reading. Raises OSError, whose `strerror` says what is wrong.

    A pipe or a device might never end, or never answer: it is refused before a byte is read.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe without a writer is opened, not waited for
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return open(descriptor, "rb")  # noqa: PTH123  a descriptor, not a path
    os.close(descriptor)
    raise OSError(errno.EINVAL, "it is no regular file")


def read_small(path: Path, most: int = FILE_BYTES_MOST) -> bytes:
    """The content of a regular file of at most 1 MiB, or `most` bytes. Raises OSError as `open_regular` does."""
    with open_regular(path) as file:
        raw = file.read(most + 1)
    if len(raw) > most:
        raise OSError(errno.EFBIG, f"it is larger than {most} bytes")
    return raw
