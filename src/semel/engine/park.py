"""Close the open runs of logs that were restored or repaired, so that nothing of them goes on by itself."""

from semel.core.parking import parked
from semel.core.status import encode_status, status_of
from semel.engine.feed import Feed
from semel.engine.resume import Ground, open_session


async def park(ground: Ground, session: str) -> tuple[str, ...]:
    """Close the open run of a session, if there is one; returns the keys of the calls that are unknown now and were not before.

    Raises what opening a session raises.
    """
    writer, barrier = await open_session(ground, session, Feed())
    try:
        before = {call.call_key for call in barrier.state.unknown}
        while barrier.state.run is not None:
            records = parked(barrier.state)
            await barrier.commit(records)
        status = status_of(barrier.state, barrier.digest)
        if status is not None:
            barrier.publish_status(encode_status(status))
        return tuple(call.call_key for call in barrier.state.unknown if call.call_key not in before)
    finally:
        await writer.close()
