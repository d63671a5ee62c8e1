"""What a log must keep free so that it can always be closed: the reserve of design 3 (W10-W13, HAZ2, T5). Pure.

The reserve is counted in the very records that a close-out would write, each at its longest: a settlement and a verdict for
every call of the open batch, refused calls included, the markers, one cancel, one terminal, and for each queued message a run
that names it and ends. An ordinary record is admitted only if the reserve of the state behind it still fits. So whatever is in a
log, its open run can end by name, and a person can still say what became of every unknown call.
"""

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from semel.core.batch_records import close_turn, terminals
from semel.core.calls import Batch, Step
from semel.core.closing import batch_started, close_unstarted, new_batch
from semel.core.codec import encode
from semel.core.effects import Decision
from semel.core.fold import ahead
from semel.core.header import NUMBER_LIMIT
from semel.core.outcomes import HeldClosed, HeldReason, NeverSent, Outcome, Settlement, lost
from semel.core.outcomes import settle as settlement
from semel.core.plan import plan
from semel.core.policy import allow_all
from semel.core.records import Failure, IndeterminateResolved, Record, RunCancelRequested, RunFinished, RunStarted
from semel.core.state import QueuedMessage, Run, Session
from semel.core.turn import finish
from semel.core.uncertainty import LostReason
from semel.core.values import Effect, Money, Usage

CEILING_BYTES = 1 << 30
"""Of one log, exactly; shared by ordinary records and recovery (W10)."""

VERDICT_CHARS_MOST = 2000
"""Of what a person says with a verdict, as far as the reserve holds room for it."""

LINEAGE_BYTES_MOST = 1024
TOO_LARGE = "session_too_large"
RESULT_NOTICE = "[the call ended, and its result is too long for the log of this session]"
NOTHING_BACK: Mapping[int, Settlement] = {}
_LONGEST_NUMBER = NUMBER_LIMIT - 1
_HEAD_BYTES_MOST = len(f"3 {' '.join([str(_LONGEST_NUMBER)] * 6)}   12345678 {'0' * 64} \n")


def size_of(records: Iterable[Record]) -> int:
    """The bytes that these records take in a log, at most: their payloads, and headers whose numbers are at their longest."""
    total = 0
    for record in records:
        payload, requires = encode(record)
        total += len(payload) + _HEAD_BYTES_MOST + len(",".join(requires))
    return total


def admits(state: Session, records: tuple[Record, ...], *, used_bytes: int, ceiling_bytes: int = CEILING_BYTES) -> bool:
    """Whether a log of `used_bytes` takes these records and can still be closed behind them."""
    after = ahead(state, records)
    return used_bytes + size_of(records) + reserve_bytes(after) <= ceiling_bytes


def reserve_bytes(state: Session) -> int:
    """What must stay free in this state."""
    return LINEAGE_BYTES_MOST + size_of(closing_records(state))


def too_large(state: Session, came_back: Mapping[int, Settlement] = NOTHING_BACK) -> Decision:
    """The end of a run whose log takes no more ordinary records. It fits into the reserve (W12, W13).

    `came_back` are outcomes that are not in the log yet: what became of a call is recorded as it is, a result that is too long as
    a notice of that. Nothing is under way any more.
    """
    run = state.run
    if run is None:
        return Decision()
    why = Failure(kind="limit", code=TOO_LARGE, message="the log of the session is full; go on in a new session")
    end = finish(run, "error", run.usage, why)
    step = run.step
    if step is None or step.answer is None or step.finished:
        return Decision(records=(end,))
    if step.answer.calls and step.batch is None:
        return close_unstarted(state, run, step, end)
    if step.batch is None or step.batch.finished:
        return Decision(records=(end,))
    known = {at: call.settled for at, call in enumerate(step.batch.calls) if call.settled is not None}
    known |= {at: _bounded(settled) for at, settled in came_back.items()}
    rest = {at: _unsent() for at, call in enumerate(step.batch.calls) if at not in known and call.planned.refused is None}
    closed = (*terminals(run, step.batch, known | rest), *close_turn(run, step.batch))
    unknown = any(settled.outcome is Outcome.UNKNOWN for settled in known.values())
    return Decision(records=closed if unknown else (*closed, end))


def _bounded(settled: Settlement) -> Settlement:
    return settled if len(settled.text) <= len(RESULT_NOTICE) else replace(settled, text=RESULT_NOTICE, parts=())


def closing_records(state: Session) -> tuple[Record, ...]:
    """Every record that closing this session may still take, each at its longest."""
    records: list[Record] = [_verdict(call.call_key) for call in state.unknown]
    for message in state.queue:
        records += _run_of(state, message)
    run = state.run
    if run is not None:
        records += [RunCancelRequested(run_id=run.run_id, at="step_boundary", by="x" * 64), _end(run)]
        if run.step is not None:
            records += _close_out(state, run, run.step)
    return tuple(records)


def _close_out(state: Session, run: Run, step: Step) -> list[Record]:
    """Of the step: a terminal for each call that has none, a verdict for each that may become unknown, and the markers."""
    if step.answer is None or step.finished:
        return []
    if step.answer.calls and step.batch is None:
        planned = plan(state.lineage, run, step, allow_all)
        batch = new_batch(state, run, step, planned.calls)
        unstarted = close_unstarted(state, run, step, _end(run)).records
        return [*unstarted, batch_started(run, batch), *_settled(run, batch)]
    return [] if step.batch is None or step.batch.finished else _settled(run, step.batch)


def _settled(run: Run, batch: Batch) -> list[Record]:
    longest = max((_unknown(), _unsent(), _closed()), key=lambda settled: len(settled.text) + len(settled.reason or ""))
    opened = [at for at, call in enumerate(batch.calls) if not call.terminal and call.planned.refused is None]
    known = dict.fromkeys(opened, longest)
    return [
        *terminals(run, batch, known),
        *(_verdict(batch.calls[at].planned.call_key) for at in opened),
        *close_turn(run, batch),
    ]


def _unknown() -> Settlement:
    """The settlement of a call whose outcome nobody knows, in the words of the longest reason."""
    return max(
        (settlement(Effect.ONCE, lost(reason), after_crash=True) for reason in LostReason), key=lambda found: len(found.text)
    )


def _unsent() -> Settlement:
    return settlement(Effect.ONCE, NeverSent(outcome=Outcome.INTERRUPTED), after_crash=False)


def _closed() -> Settlement:
    return settlement(Effect.ONCE, HeldClosed(reason=HeldReason.INTERRUPTED), after_crash=False)


def _verdict(call_key: str) -> IndeterminateResolved:
    said = "x" * VERDICT_CHARS_MOST
    return IndeterminateResolved(call_key=call_key, verdict="did_not_happen", by="x" * 64, output=said, note=said)


def _run_of(state: Session, message: QueuedMessage) -> list[Record]:
    """The run that a queued message starts where nothing else fits any more: it names its input, and ends at once."""
    name = "0" * 32
    started = RunStarted(
        run_id=name,
        session=state.session,
        key=message.key,
        agent=message.request.agent,
        config=name,
        instructions=name,
        tools=name,
        input=tuple(entry.entry_id for entry in message.request.input),
        entries=(),
        context=message.request.context,
    )
    return [started, _ended(name)]


def _end(run: Run) -> RunFinished:
    return _ended(run.run_id)


def _ended(run_id: str) -> RunFinished:
    """A terminal at its longest: every number of its usage, and an error that says as much as one may."""
    top = _LONGEST_NUMBER
    usage = Usage(input=top, output=top, cache_read=top, cache_write=top, reasoning=top, cost=Money(micros=top, currency="XXX"))
    why = Failure(kind="policy", code="x" * 64, message="x" * 2000, provider="x" * 64)
    return RunFinished(run_id=run_id, reason="interrupted", usage=usage, error=why)
