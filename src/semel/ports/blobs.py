"""Content of a session that is too large for a record, kept beside its log under the sha256 of what it holds.

BLOB-1 `put` returns the name only when the content and its name are durable, so that a record may name it then.
BLOB-2 `get` returns exactly what was put, or raises BlobDamaged; nothing is used that does not match its name.
BLOB-3 `put` of what is there already verifies it and makes it durable; a damaged one is replaced.
BLOB-4 `put` and `collect` are for who holds the session's lease; anybody else gets LeaseLost and nothing is changed.
BLOB-5 `collect` removes what no record names, and nothing else. A `put` that died leaves nothing but what `collect` removes.
"""

from collections.abc import Collection, Sequence
from typing import Protocol


class Blobs(Protocol):
    """The blobs of one session."""

    def put(self, content: bytes) -> str:
        """Keep content durably; returns its name, 64 hex digits."""

    def get(self, name: str) -> bytes:
        """The content of that name, verified. Raises BlobDamaged if it is missing or is something else."""

    def names(self) -> Sequence[str]:
        """What is there, sorted."""

    def collect(self, named: Collection[str]) -> Sequence[str]:
        """Remove what is not `named`; only at open, when every record was read. Returns what was removed."""
