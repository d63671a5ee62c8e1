"""Ending a run from outside: cancel, and stop (Q5, Q12, R26-R27, R38, R44, CON8). Pure.

A cancel is a record first; what follows depends on what is under way, which the caller knows. When that has come back, `decide`
and `seal` do the rest.
"""

from semel.core.effects import Cancel, Decision, Effect, Interrupt, StopAsking, UnderWay
from semel.core.ending import seal
from semel.core.records import RunCancelRequested
from semel.core.state import Run, Session


def cancel(state: Session, command: Cancel, under_way: UnderWay | None) -> Decision:
    """The request, and what has to be given up for it; empty where no run is open, or the same was asked for before.

    A step boundary waits for what is under way; `now` gives up the request to the model and interrupts the calls whose tools
    allow it. The others are waited for (Q12).
    """
    run = state.run
    if run is None or run.aborting_now or (run.aborting and command.at == "step_boundary"):
        return Decision(doubt=UnderWay.doubt_of(under_way))
    request = RunCancelRequested(run_id=run.run_id, at=command.at, by=command.by)
    effects = _given_up(run, under_way) if command.at == "now" else ()
    return Decision(records=(request,), effects=effects, doubt=UnderWay.doubt_of(under_way))


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


def stop_waiting(state: Session) -> Decision:
    """End a run that this process carries and that waits, as `max_steps`: what it waits for is closed out (R38).

    Empty where it does not wait. A run that is at work ends behind its turn instead; the caller passes `stop` with the outcomes
    that it hands to `decide`.
    """
    return Decision() if state.run is None or state.run.step is None else seal(state, stop=True)
