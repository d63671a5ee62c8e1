"""The system's own time and randomness; implements `ports.world`."""

import asyncio
import secrets
import time


class SystemClock:
    """Wall time for what is stored, monotonic time for waiting (CON16)."""

    def now_ms(self) -> int:
        """Unix milliseconds."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """Seconds that never go back; only differences mean anything."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait that long on the monotonic clock."""
        await asyncio.sleep(seconds)


class SystemIds:
    """Identities from the system's randomness."""

    def fresh(self) -> str:
        """128 random bits as 32 lower-case hex."""
        return secrets.token_hex(16)
