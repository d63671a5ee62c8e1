"""The pure core: no IO, clock, randomness, asyncio or logging."""
