"""Tells a person through an address of the operator's: one POST of a JSON object, with its key as `Idempotency-Key`."""

import asyncio

from msgspec import json

from semel.errors import StoreError
from semel.ports.parked import Parked
from semel.ports.world import Clock

SECONDS_MOST = 10.0


class WebHook:
    """Sends once; follows no redirect, reads no proxy from the environment."""

    def __init__(self, url: str, clock: Clock) -> None:
        self._url, self._clock = url, clock

    async def tell(self, parked: Parked) -> None:
        """Raises StoreError unless the answer is a 2xx within the time. The address may hold a secret, so no message names it."""
        import httpx2

        async with httpx2.AsyncClient(trust_env=False, follow_redirects=False, timeout=None) as client:
            headers = {"content-type": "application/json", "idempotency-key": parked.key}
            asking = asyncio.ensure_future(client.post(self._url, content=json.encode(parked), headers=headers))
            timer = asyncio.ensure_future(self._clock.sleep(SECONDS_MOST))
            try:
                await asyncio.wait([asking, timer], return_when=asyncio.FIRST_COMPLETED)
                answer = asking.result() if asking.done() else None
            except httpx2.HTTPError as error:
                raise StoreError(f"the webhook could not be reached: {type(error).__name__}") from None
            finally:
                timer.cancel()
                asking.cancel()
                await asyncio.wait([asking])
        if answer is None:
            raise StoreError(f"the webhook did not answer within {SECONDS_MOST:.0f} s")
        if not answer.is_success:
            raise StoreError(f"the webhook answered {answer.status_code}")
