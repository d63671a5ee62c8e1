"""The files of a session: kept beside its log before a record names them, and loaded when a request shows them (M5-M14)."""

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from semel.core.limits import cut_output
from semel.core.media import media_of
from semel.core.outcomes import Completed, completed, describe, result_text
from semel.core.values import JSON, Part, Text
from semel.errors import LeaseLost, StoreError, ToolFailed
from semel.ports.blobs import Blobs
from semel.ports.tool import File

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
    if isinstance(value, File):
        return Gave(parts=(value,), terminate=terminate)
    if isinstance(value, list | tuple) and any(isinstance(item, File) for item in value):
        return Gave(parts=tuple(value), terminate=terminate)
    return completed(value, terminate=terminate)


async def kept(gave: Gave, blobs: Blobs, limit_bytes: int) -> Completed:
    """The outcome with its files made durable. The call has happened: a file that cannot be kept is told in words.

    Raises LeaseLost.
    """
    parts: list[Part] = []
    for item in gave.parts[:FILES_MOST]:
        part = await _part(item, blobs)
        if isinstance(part, Text):
            part = Text(text=cut_output(part.text, max(0, limit_bytes)))
            limit_bytes -= len(part.text.encode())
        parts.append(part)
    if len(gave.parts) > FILES_MOST:
        parts.append(Text(text=f"[{len(gave.parts) - FILES_MOST} more parts were not kept]"))
    return Completed(text="", parts=tuple(parts), terminate=gave.terminate)


async def _part(item: JSON, blobs: Blobs) -> Part:
    if not isinstance(item, File):
        try:
            return Text(text=result_text(item))
        except ToolFailed as failure:
            return Text(text=str(failure))
    try:
        media = media_of(item.content, item.media_type, item.name)
        await asyncio.to_thread(blobs.put, item.content)
    except LeaseLost:
        raise
    except (ValueError, TypeError, StoreError, OSError) as error:
        return Text(text=f"[A file was not kept: {describe(error)}]")
    return media
