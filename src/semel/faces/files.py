"""Files that go with a message: read once, at the door, and named by what they hold."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from semel.core.media import MEDIA_BYTES_MOST, media_of
from semel.core.values import Media
from semel.errors import BadSettings
from semel.faces.reading import read_small
from semel.ports.tool import File

Files = Sequence[File | str | os.PathLike[str]]
FILES_MOST = 20


@dataclass(frozen=True)
class Attached:
    """Files that were read, and what a record says of them."""

    parts: tuple[Media, ...] = ()
    files: tuple[File, ...] = ()

    @property
    def contents(self) -> tuple[bytes, ...]:
        """Their bytes, which are kept before the record."""
        return tuple(file.content for file in self.files)


def attached(files: Files) -> Attached:
    """The files of a message, from memory or by their paths. Raises BadSettings, which names the file and what is wrong."""
    if len(files) > FILES_MOST:
        raise BadSettings(f"a message takes {FILES_MOST} files at most, not {len(files)}")
    found = [file if isinstance(file, File) else _read(Path(file)) for file in files]
    try:
        parts = tuple(media_of(file.content, file.media_type, file.name) for file in found)
    except ValueError as error:
        raise BadSettings(f"a file cannot be sent: {error}") from None
    return Attached(parts=parts, files=tuple(found))


def _read(path: Path) -> File:
    try:
        return File(read_small(path, MEDIA_BYTES_MOST), name=path.name)
    except OSError as error:
        raise BadSettings(f"the file {path} cannot be read: {error.strerror}") from None
