"""The run: decide, make durable, act, decide. Readable in a minute, on purpose."""

from collections.abc import Callable

from semel.core.decide import decide, seal
from semel.core.effects import CallModel, Decision
from semel.engine.barrier import Barrier
from semel.engine.flights import Flights
from semel.ports.world import Clock


async def run_to_rest(
    first: Decision, barrier: Barrier, flights: Flights, clock: Clock, *, stopping: Callable[[], bool], after: Callable[[], None]
) -> None:
    """Carry the open run on until it has its terminal, or until the process is stopping and its calls have come back.

    `after` is called behind every barrier; status and other views are made there. Raises StoreError when the log takes no more:
    then nothing that was decided is acted upon.
    """
    decision = first
    try:
        while True:
            barrier.hold(decision.held)
            await barrier.commit(decision.records)
            after()
            if barrier.state.run is None:
                return
            for effect in decision.effects:
                # An intent that is durable is dispatched even then: left alone, it would read as an unknown outcome.
                if not (stopping() and isinstance(effect, CallModel)):
                    flights.release(effect)
            outcome = None if flights.empty else await flights.next()
            if outcome is not None:
                decision = decide(barrier.state, outcome, doubt=decision.doubt, now_ms=clock.now_ms())
            elif stopping():
                return
            else:
                decision = seal(barrier.state)
    finally:
        await flights.cancel()
