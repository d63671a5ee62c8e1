"""Virtual time and seeded identities; implement `ports.world`."""

import asyncio

from semel.testing.world.fate import Fate

EPOCH_MS = 1_767_225_600_000
"""Where every world begins: the first of January 2026."""


class VirtualClock:
    """Two clocks of one machine. The wall clock may be set, forward or back; the monotonic one goes on (CON16)."""

    def __init__(self, fate: Fate) -> None:
        """`set_by_ms` is by how much the wall clock was set since the beginning."""
        self._fate = fate
        self.set_by_ms = 0

    def now_ms(self) -> int:
        """Unix milliseconds."""
        return EPOCH_MS + int(self.monotonic() * 1000) + self.set_by_ms

    def monotonic(self) -> float:
        """Seconds since the world began."""
        return self._fate.now

    async def sleep(self, seconds: float) -> None:
        """Wait that long in virtual time."""
        await asyncio.sleep(seconds)


class SeededIds:
    """Identities that the seed decides."""

    def __init__(self, fate: Fate) -> None:
        """They go on over all lives."""
        self._dice = fate.dice("ids")

    def fresh(self) -> str:
        """128 bits as 32 lower-case hex."""
        return f"{self._dice.getrandbits(128):032x}"
