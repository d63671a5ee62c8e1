"""Each waiting is told once: what was told leaves a mark beside the sessions, which only saves a second page."""

import hashlib
import os
from pathlib import Path

from semel.ports.parked import Parked, ParkedHook


class Once:
    """A hook that remembers what it told. The marks may be deleted: then what still waits is told again."""

    def __init__(self, hook: ParkedHook, directory: Path) -> None:
        self._hook, self._directory = hook, directory

    async def tell(self, parked: Parked) -> None:
        """Tell it unless that was done before."""
        mark = self._directory / hashlib.sha256(parked.key.encode()).hexdigest()
        if mark.exists():
            return
        await self._hook.tell(parked)
        self._directory.mkdir(mode=0o700, exist_ok=True)
        os.close(os.open(mark, os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
