"""Ending a run from outside: cancel, and stop (Q5, Q12, R26-R27, R38, R44, CON8). Pure.

Both are a record first, which is durable before anybody is answered; what follows depends on what is under way, which the
caller knows. When that has come back, `decide` and `seal` do the rest.
"""

from semel.core.effects import Cancel, Decision, Effect, Interrupt, StopAsking, StopRun, UnderWay
from semel.core.records import RunCancelRequested, RunStopRequested
from semel.core.state import Run, Session


def cancel(state: Session, command: Cancel, under_way: UnderWay | None) -> Decision:
    """The request, and what has to be given up for it; empty where no run is open, or the same was asked for before.

    A step boundary waits for what is under way; `now` gives up the request to the model and interrupts the calls whose tools
    allow it. The others are waited for (Q12).
    """
    run = state.run
    if run is None or run.aborting_now or (run.aborting and command.at == "step_boundary"):
        return Decision()
    request = RunCancelRequested(run_id=run.run_id, at=command.at, by=command.by)
    effects = _given_up(run, under_way) if command.at == "now" else ()
    return Decision(records=(request,), effects=effects)


def _given_up(run: Run, under_way: UnderWay | None) -> tuple[Effect, ...]:
    if under_way is None:
        return ()
    effects: list[Effect] = [StopAsking()] if under_way.asking else []
    batch = run.step.batch if run.step is not None else None
    if batch is not None:
        specs = {at: run.tool(batch.calls[at].planned.tool) for at in sorted(under_way.in_flight)}
        ordinals = tuple(at for at, spec in specs.items() if spec is not None and spec.interruptible)
        effects += [Interrupt(ordinals=ordinals)] if ordinals else []
    return tuple(effects)


def stop(state: Session, command: StopRun) -> Decision:
    """The request to end a run as `max_steps`; empty where no run is open, or it is to end anyway.

    A run that is at work ends behind its turn. One of which nothing is under way ends at once (R38): `seal` closes it out where a
    process carries it, else a resume does.
    """
    run = state.run
    if run is None or run.ending:
        return Decision()
    return Decision(records=(RunStopRequested(run_id=run.run_id, by=command.by),))
