"""Time and identity: the only sources of either. Production reads the system, tests and the simulation supply their own."""

from typing import Protocol


class Clock(Protocol):
    """Two clocks that never mix (CON16): wall time for what is stored, monotonic time for waiting."""

    def now_ms(self) -> int:
        """Unix milliseconds."""

    def monotonic(self) -> float:
        """Seconds that never go back; only differences mean anything."""

    async def sleep(self, seconds: float) -> None:
        """Wait that long on the monotonic clock."""


class Ids(Protocol):
    """Fresh identities."""

    def fresh(self) -> str:
        """128 random bits as 32 lower-case hex."""
