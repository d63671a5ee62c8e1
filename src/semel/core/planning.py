"""From a durable answer with calls to its batch: ask a person first, or plan, write the intents, and dispatch (B2, B3). Pure."""

from msgspec.structs import replace

from semel.core.calls import Step
from semel.core.effects import Decision
from semel.core.ending import batch_started, close_unstarted, new_batch
from semel.core.plan import plan
from semel.core.policy import Policy, allow_all
from semel.core.records import Failure, Record
from semel.core.settle import settle
from semel.core.state import Run, Session
from semel.core.turn import finish


def plan_batch(state: Session, run: Run, step: Step, policy: Policy = allow_all, *, head: tuple[Record, ...] = ()) -> Decision:
    """Plan the calls of the step's answer: the batch, its intents, and the first dispatch; `head` goes in front.

    Where a person has to be asked first, that is all that happens: a batch waits for all of its answers (B38). Where nothing can
    be dispatched, the same barrier commits the batch and goes on (CON20).
    """
    planned = plan(state.lineage, run, step, policy)
    if planned.undecidable is not None:
        why = Failure(kind="policy", code="policy_undecidable", message=planned.undecidable)
        return close_unstarted(state, run, step, finish(run, "error", run.usage, why), head=head)
    if planned.asks or step.undecided:
        return Decision(records=(*head, *planned.asks))
    batch = new_batch(state, run, step, planned.calls)
    decision = settle(state, run, batch, policy=policy)
    return replace(decision, records=(*head, batch_started(run, batch), *decision.records))
