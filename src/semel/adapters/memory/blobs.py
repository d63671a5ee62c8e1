"""Blobs in memory, held to the same contract as the file ones."""

import hashlib
from collections.abc import Callable, Collection, Sequence

from semel.errors import BlobDamaged


class MemoryBlobs:
    """Implements `ports.blobs.Blobs` on a dictionary that outlives it. `check` raises LeaseLost unless the lease is ours."""

    def __init__(self, kept: dict[str, bytes], check: Callable[[], None]) -> None:
        """`kept` is the medium."""
        self._kept, self._check = kept, check

    def put(self, content: bytes) -> str:
        """Keep content; returns its name."""
        self._check()
        name = hashlib.sha256(content).hexdigest()
        self._kept[name] = content
        return name

    def get(self, name: str) -> bytes:
        """The content of that name, verified. Raises BlobDamaged."""
        content = self._kept.get(name)
        if content is None or hashlib.sha256(content).hexdigest() != name:
            raise BlobDamaged(f"blob {name[:64]} is missing or does not hold what it is named for. Restore it from a copy.")
        return content

    def names(self) -> Sequence[str]:
        """What is there, sorted."""
        return sorted(self._kept)

    def collect(self, named: Collection[str]) -> Sequence[str]:
        """Remove what is not named."""
        self._check()
        removed = sorted(name for name in self._kept if name not in named)
        for name in removed:
            del self._kept[name]
        return removed
