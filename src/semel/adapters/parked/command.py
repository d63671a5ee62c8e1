"""Tells a person through a command of the operator's: the facts come as one JSON object on its standard input."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress

from msgspec import json

from semel.errors import StoreError
from semel.ports.parked import Parked
from semel.ports.roster import ROSTER
from semel.ports.world import Clock

SECONDS_MOST = 30.0


class CommandHook:
    """Runs `argv` without a shell, with this environment and nothing else of ours."""

    def __init__(self, argv: Sequence[str], environment: Mapping[str, str], clock: Clock) -> None:
        self._argv, self._environment, self._clock = tuple(argv), dict(environment), clock

    async def tell(self, parked: Parked) -> None:
        """Raises StoreError if the command cannot be started, fails, or takes too long."""
        try:
            process = await asyncio.create_subprocess_exec(
                *self._argv,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.DEVNULL,
                env=self._environment,
                start_new_session=True,
            )
        except OSError as error:
            raise StoreError(f"{self._argv[0]} could not be started: {error.strerror}") from None
        with ROSTER.holding("process", f"{self._argv[0]} (pid {process.pid})"):
            await self._fed(process, json.encode(parked) + b"\n")
        if process.returncode != 0:
            raise StoreError(f"{self._argv[0]} ended with {process.returncode}")

    async def _fed(self, process: asyncio.subprocess.Process, facts: bytes) -> None:
        talking = asyncio.ensure_future(process.communicate(facts))
        timer = asyncio.ensure_future(self._clock.sleep(SECONDS_MOST))
        try:
            await asyncio.wait([talking, timer], return_when=asyncio.FIRST_COMPLETED)
        finally:
            timer.cancel()
            if not talking.done():
                with suppress(ProcessLookupError):
                    process.kill()
                await asyncio.wait([talking])
