"""The run: decide, make durable, act, decide. Readable in a minute, on purpose."""

from collections.abc import Callable

from semel.core.closing import closings
from semel.core.decide import decide, seal
from semel.core.effects import Answered, CallModel, Decision, Outcome, Reconcile, UnderWay
from semel.core.leaving import handed_over, leaving
from semel.core.policy import Policy, allow_all
from semel.core.standing import still_doubtful
from semel.core.state import Session
from semel.engine.barrier import Barrier
from semel.engine.flights import Flights
from semel.engine.inbox import Asked, AtRest, Inbox
from semel.errors import SessionFull, StoreError
from semel.ports.world import Clock


class Wishes:
    """What is asked of the loop itself, at any time: to stop with this process."""

    def __init__(self) -> None:
        self.stopping = False


async def run_to_rest(
    first: Decision,
    barrier: Barrier,
    flights: Flights,
    clock: Clock,
    *,
    inbox: Inbox,
    wishes: Wishes,
    policy: Policy,
    after: Callable[[], None],
) -> None:
    """Carry the open run on until it has its terminal, waits for somebody, or has come back to a process that is stopping.

    `after` is called behind every barrier; status and other views are made there. Raises StoreError when the log takes no more:
    then nothing that was decided is acted upon.
    """
    decision = first
    outcome: Outcome | None = None
    doubt: frozenset[int] | None = None
    try:
        while True:
            barrier.hold(decision.held)
            decision = await commit(decision, barrier, outcome, doubt, policy)
            after()
            run = barrier.state.run
            if run is None:
                return
            release(decision, flights, stopping=wishes.stopping)
            doubt = still_doubtful(run, doubt or frozenset(), decision.doubt)
            outcome, asked = None, inbox.take()
            if asked is None and not flights.empty:
                outcome = await flights.next(seconds_left(barrier.state, clock))
                asked = inbox.take() if outcome is None else None
            if wishes.stopping and isinstance(outcome, Answered):
                outcome = None  # nothing of it is recorded: a resume asks again, with the same bytes (B24)
            if asked is not None:
                decision = await obey(asked, barrier, flights.under_way(doubt, policy))
            elif outcome is not None:
                now_ms = moment(barrier.state, clock, ran_out=flights.time_ran_out)
                decision = decide(barrier.state, outcome, doubt=doubt, now_ms=now_ms, policy=policy)
                decision = leaving(run, decision) if wishes.stopping else decision
            elif wishes.stopping and flights.empty and not sealable(barrier.state):
                await barrier.commit(handed_over(barrier.state))
                after()
                return
            elif flights.empty:
                decision = seal(barrier.state)
                if not decision.records:
                    return  # it waits for somebody
            else:
                decision = Decision()
    finally:
        inbox.close()
        await flights.cancel()


async def obey(asked: Asked, barrier: Barrier, under_way: UnderWay) -> Decision:
    """Make a request durable and answer it. What follows from it is released by the loop; what refuses it changes nothing.

    A full log refuses a request, but never what closes the run: its cancel has its place in the reserve (W12).
    """
    try:
        decision = asked.choose(barrier.state, under_way)
        barrier.hold(decision.held)
        await barrier.commit(decision.records)
    except Exception as error:
        asked.refuse(error)
        if isinstance(error, StoreError) and not isinstance(error, SessionFull):
            raise  # the log takes nothing any more
        return Decision()
    except BaseException:
        asked.refuse(AtRest("the run was cut off"))
        raise
    asked.answer()
    return Decision(effects=decision.effects, doubt=decision.doubt)


async def commit(
    decision: Decision, barrier: Barrier, outcome: Outcome | None, doubt: frozenset[int] | None, policy: Policy = allow_all
) -> Decision:
    """Make a decision durable; where the log is full, one that settles what came back and ends the run (W12). Returns which.

    Raises SessionFull where no run is open: what was asked for is refused, and the session stays as it was.
    """
    try:
        await barrier.commit(decision.records)
    except SessionFull:
        if barrier.state.run is None:
            raise
        return await close_full(barrier, outcome, doubt, policy)
    return decision


async def close_full(barrier: Barrier, outcome: Outcome | None, doubt: frozenset[int] | None, policy: Policy) -> Decision:
    """Make the first closing durable that fits; the last one always does."""
    smaller = closings(barrier.state, outcome, doubt, policy)
    decision = next(smaller)
    while True:
        try:
            await barrier.commit(decision.records)
        except SessionFull:
            following = next(smaller, None)
            if following is None:
                raise
            decision = following
        else:
            return decision


def release(decision: Decision, flights: Flights, *, stopping: bool) -> None:
    """Let the effects go.

    A process that is stopping asks nothing any more, neither a model nor about a call: a resume does. But a call whose intent is
    durable is finished within the time that there is, since the log could only say of it that it was never sent.
    """
    for effect in decision.effects:
        if not (stopping and isinstance(effect, CallModel | Reconcile)):
            flights.release(effect)


def sealable(state: Session) -> bool:
    """Whether only its terminal is missing: it is closed out behind an unknown call, or ends and had but its model to ask."""
    run = state.run
    batch = run.step.batch if run is not None and run.step is not None else None
    closed_out = batch is not None and batch.finished and bool(batch.unknown)
    return closed_out or (run is not None and run.ending and run.in_flight is not None)


def moment(state: Session, clock: Clock, *, ran_out: bool) -> int:
    """Now, in milliseconds. Once the timer of the run's time has rung, not before that time is over: a clock may be set back."""
    now_ms, run = clock.now_ms(), state.run
    if not ran_out or run is None:
        return now_ms
    return max(now_ms, state.last_at_ms + run.limits.wall_ms - run.running_ms)


def seconds_left(state: Session, clock: Clock) -> float:
    """Until the limit on the run's time."""
    run = state.run
    if run is None:
        return 0.0
    running_ms = run.running_ms + max(0, clock.now_ms() - state.last_at_ms)
    return (run.limits.wall_ms - running_ms) / 1000
