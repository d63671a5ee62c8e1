"""The files of a session: kept beside its log before a record names them, and loaded when a request shows them (M5-M14)."""

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from semel.core.limits import cut_output
from semel.core.media import TOGETHER_BYTES_MOST, in_words, is_text_kind, media_of, text_of_file
from semel.core.outcomes import Completed, completed, describe, result_text
from semel.core.values import JSON, Media, Part, Text
from semel.errors import LeaseLost, StoreError, ToolFailed
from semel.ports.blobs import Blobs
from semel.ports.tool import File, refuse_inner_files

FILES_MOST = 100
"""How many parts one result may have."""


@dataclass(frozen=True)
class Gave:
    """What a tool returned that holds files: its parts in order, before they are kept."""

    parts: tuple[JSON, ...]
    terminate: bool = False


class Loading(Mapping[str, bytes]):
    """The bytes of a session's files by their sha256, each read and verified when it is asked for. Raises BlobDamaged."""

    def __init__(self, blobs: Blobs) -> None:
        """Reads nothing yet."""
        self._blobs = blobs

    def __getitem__(self, sha256: str) -> bytes:
        return self._blobs.get(sha256)

    def __iter__(self) -> Iterator[str]:
        return iter(self._blobs.names())

    def __len__(self) -> int:
        return len(self._blobs.names())


def outcome_of(value: JSON, *, terminate: bool = False) -> Completed | Gave:
    """What a call that returned `value` came to. A file, or a list with files in it, is ordered parts (M5)."""
    if isinstance(value, str):
        return completed(value, terminate=terminate)
    if isinstance(value, File):
        return Gave(parts=(value,), terminate=terminate)
    if isinstance(value, list | tuple) and any(isinstance(item, File) for item in value):
        return Gave(parts=tuple(value), terminate=terminate)
    try:
        refuse_inner_files(value)
    except ToolFailed as failure:
        return Completed(text=str(failure), is_error=True)
    return completed(value, terminate=terminate)


async def kept(gave: Gave, blobs: Blobs, limit_bytes: int) -> Completed:
    """The outcome with its files made durable. The call has happened: a file that cannot be kept is told in words.

    The texts of the tool have `limit_bytes` together, those in its files too; its files have TOGETHER_BYTES_MOST. Raises
    LeaseLost.
    """
    parts: list[Part] = []
    files_left = TOGETHER_BYTES_MOST
    for item in gave.parts[:FILES_MOST]:
        if isinstance(item, File):
            part, used = await _file(item, blobs, files_left, max(0, limit_bytes))
            files_left -= part.size_bytes if isinstance(part, Media) else 0
            limit_bytes -= used
        else:
            part, used = _text(item, max(0, limit_bytes))
            limit_bytes -= used
        parts.append(part)
    if len(gave.parts) > FILES_MOST:
        parts.append(Text(text=f"[{len(gave.parts) - FILES_MOST} more parts were not kept]"))
    return Completed(text="", parts=tuple(parts), terminate=gave.terminate)


def _text(item: JSON, limit_bytes: int) -> tuple[Text, int]:
    """What a text of the tool says, and what it uses of the limit: words of our own are short, and use nothing."""
    try:
        refuse_inner_files(item)
        text = cut_output(result_text(item), limit_bytes)
    except ToolFailed as failure:
        return Text(text=str(failure)), 0
    return Text(text=text), len(text.encode())


async def _file(item: File, blobs: Blobs, most: int, text_most: int) -> tuple[Part, int]:
    """A file that is kept, or a text that says why it is not, and what it uses of the limit of texts.

    `most` is how many bytes it may have, `text_most` how many a text may have: a longer one is a text that was cut (B18).
    """
    try:
        media = media_of(item.content, item.media_type, item.name)
        if media.size_bytes > most:
            room = f"{TOGETHER_BYTES_MOST} bytes at most, and {most} are left for this one"
            return Text(text=f"[A file was not kept: the files of one result have {room}]"), 0
        text = text_of_file(item.content) if is_text_kind(media.media_type) else None
        if text is not None and media.size_bytes > text_most:
            return Text(text=cut_output(in_words("", (media, Text(text=text))), text_most)), text_most
        await asyncio.to_thread(blobs.put, item.content)
    except LeaseLost:
        raise
    except (ValueError, TypeError, StoreError, OSError) as error:
        return Text(text=f"[A file was not kept: {describe(error)}]"), 0
    return media, 0 if text is None else media.size_bytes
