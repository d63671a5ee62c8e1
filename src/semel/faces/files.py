"""Files that go with a message: read once, at the door, and named by what they hold."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from semel import wiring
from semel.core.media import MEDIA_BYTES_MOST, TOGETHER_BYTES_MOST, is_text_kind, media_of, text_of_file
from semel.core.values import Bundle, Media, printable
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
    if isinstance(files, str | bytes | os.PathLike | File):
        raise BadSettings(f"files is a list of files, not one {type(files).__name__}: write files=[...]")
    if len(files) > FILES_MOST:
        raise BadSettings(f"a message takes {FILES_MOST} files at most, not {len(files)}")
    found: list[File] = []
    parts: list[Media] = []
    for given in files:
        file = given if isinstance(given, File) else _read(given)
        found.append(file)
        parts.append(_media_of(file))
        if sum(part.size_bytes for part in parts) > TOGETHER_BYTES_MOST:
            raise BadSettings(
                f"the files of a message have {TOGETHER_BYTES_MOST} bytes together at most; send fewer, or smaller ones"
            )
    return Attached(parts=tuple(parts), files=tuple(found))


def check_files(parts: Sequence[Media], bundle: Bundle) -> None:
    """Raise BadSettings, which names the file and the limit, for a message that is more than its model's server takes (B18)."""
    if (why := wiring.refused_file(bundle, parts)) is not None:
        raise BadSettings(f"a file cannot be sent to {bundle.model}: {why}; send fewer or smaller ones")


def _media_of(file: File) -> Media:
    try:
        media = media_of(file.content, file.media_type, file.name)
    except (ValueError, TypeError) as error:
        raise BadSettings(f"a file cannot be sent: {error}") from None
    if is_text_kind(media.media_type) and text_of_file(file.content) is None:
        shown = repr(printable(media.name, limit=80)) if media.name else "the file"
        kind = printable(media.media_type, limit=80)
        raise BadSettings(f"a file cannot be sent: {shown} is taken for {kind}, and is not UTF-8; save it as UTF-8")
    return media


def _read(given: str | os.PathLike[str]) -> File:
    try:
        path = Path(given)
        return File(read_small(path, MEDIA_BYTES_MOST), name=path.name)
    except OSError as error:
        raise BadSettings(f"the file {path} cannot be read: {error.strerror}") from None
    except (ValueError, TypeError) as error:  # such as a NUL in it, which no path has
        raise BadSettings(f"the file {printable(repr(given), limit=200)} cannot be read: {error}") from None
