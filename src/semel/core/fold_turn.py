"""Ordinary turns, folded at once: an answer, plan, intents and results of its calls, their end, and the start of the next step.

Nearly all records of a long log belong to such turns, and most of what single records make of the state lasts no longer than the
turn. What a turn does is defined by the rules of its records, one by one: this only recognises turns in which each of them holds
and nothing else happens, and leaves every other one, and every refusal, to those rules (decision 0030).
"""

from collections.abc import Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any

from semel.core.answer import Given, with_answers
from semel.core.calls import Step
from semel.core.keys import ids_of_batch
from semel.core.outcomes import Outcome
from semel.core.owned import change
from semel.core.places import place_of, places_of_results
from semel.core.records import (
    ModelAttemptFinished,
    ModelStepFinished,
    PlannedCall,
    Record,
    StepStarted,
    ToolBatchFinished,
    ToolBatchStarted,
    ToolDispatchIntent,
    ToolResult,
    TurnFinished,
)
from semel.core.state import Position, Run, Session
from semel.core.targets import asked_of
from semel.core.texts import SUBMIT_TOOL
from semel.core.values import AssistantMessage, Frozen, digest_text
from semel.errors import need

_sent = attrgetter("batch_id", "ordinal", "tool_call_id", "args_digest", "args")
_came_back = attrgetter("batch_id", "ordinal", "tool_call_id", "outcome", "terminate", "tag")
_output = attrgetter("output")
_CALLS_MOST = 64  # of a turn that is folded at once: what is kept for each number of calls has a bound


class _Turns(Frozen, frozen=True, kw_only=True):
    """Ordinary turns in a row: their answers, the ids of their calls, the places of their messages, the step behind them."""

    answers: Sequence[Given]
    ids: Sequence[str]
    shown: list[int]
    step: Step
    end: int


def fold_turns(state: Session, places: Sequence[Position], records: Sequence[Record | None], at: int) -> int:
    """Fold the ordinary turns in a row of which the record `at` is the first answer, into a state that the caller owns.

    No place is torn. Returns where the records go on: behind the start of a step, or `at` if there is no ordinary turn, and then
    nothing was changed.
    """
    run = state.run
    if run is None or not _is_plain(state, run):
        return at
    turns = _turns(state, run, places, records, at)
    if turns is None:
        return at
    run = with_answers(run, turns.step, turns.answers)
    change(run, tool_results=run.tool_results + len(turns.ids))
    transcript = state.transcript.plus_places(turns.shown)
    model_steps, call_ids = state.model_steps + len(turns.answers), state.call_ids.plus(turns.ids)
    change(state, run=run, model_steps=model_steps, call_ids=call_ids, transcript=transcript, rendered=len(transcript))
    return turns.end


def _is_plain(state: Session, run: Run) -> bool:
    """Whether the run waits for an answer, and nothing of the run or of its requests has to be told beside it."""
    told = run.asks_again or state.changed or state.answered != asked_of(state)
    return run.in_flight is not None and not (run.pause is not None or run.ending or told)


def _turns(state: Session, run: Run, places: Sequence[Position], records: Sequence[Any], at: int) -> _Turns | None:
    """The ordinary turns from the answer `at` on. One function, since each call would cost more than what it does."""
    step = need(run.step, "a run that waits for an answer has a step")
    answers, ids, shown, end, last = list[Given](), list[str](), list[int](), at, len(records) - 1
    run_id, step_id, entry, cost, fence = run.run_id, step.step_id, step.result_entry, run.usage.cost, run.asked_fence
    lineage, entries = state.lineage, state.entries
    while at <= last and type(answered := records[at]) is ModelStepFinished:
        answer, paid = answered.assistant_message.content, answered.usage.cost
        if not isinstance(answer, AssistantMessage):
            break
        calls = answer.calls
        count = len(calls)
        first, results, finish = at + 2, at + 2 + count, at + 2 + 2 * count
        begins = finish + 2
        if not 0 < count <= _CALLS_MOST or begins > last or tuple(map(type, records[first:finish])) != _kinds(count):
            break
        batch_id, keys = ids_of_batch(lineage, run_id, step_id, count)
        plan: list[PlannedCall] = []
        sent: list[object] = []
        came_back: list[object] = []
        for ordinal, call in enumerate(calls):
            name, tool, digest = call.id, call.name, digest_text(call.arguments)
            plan.append(PlannedCall(ordinal=ordinal, tool_call_id=name, call_key=keys[ordinal], tool=tool, args_digest=digest))
            sent.append((batch_id, ordinal, name, digest, None))
            came_back.append(None if tool == SUBMIT_TOOL else (batch_id, ordinal, name, Outcome.COMPLETED, False, None))
        begun = records[begins]
        if (
            records[at + 1] != ToolBatchStarted(run_id=run_id, batch_id=batch_id, step_id=step_id, planned_calls=tuple(plan))
            or list(map(_sent, records[first:results])) != sent
            or list(map(_came_back, outcomes := records[results:finish])) != came_back
            or not all(map(_output, outcomes))
            or records[finish] != ToolBatchFinished(batch_id=batch_id)
            or records[finish + 1] != TurnFinished(run_id=run_id, step_id=step_id)
            or type(begun) is not StepStarted
            or (begun.run_id != run_id or begun.step_id != step_id + 1 or begun.attempt != 1 or begun.drained)
            or places[begins].fence != fence
            or (answered.run_id != run_id or answered.step_id != step_id or answered.assistant_message.entry_id != entry)
            or (answered.tags or answered.hooks or entry in entries)
            or (cost is not None and paid is not None and cost.currency != paid.currency)
        ):
            break
        answers.append(Given(answered, answer, calls))
        ids += [call.id for call in calls]
        seq = places[at].seq
        shown.append(place_of(seq, answer))
        shown += places_of_results(seq + 2 + count, count)
        step_id, entry, cost, end = begun.step_id, begun.result_entry, cost or paid, begins + 1
        at = end + (end <= last and type(records[end]) is ModelAttemptFinished)
    step = Step(step_id=step_id, attempt=1, result_entry=entry, drained=())
    return _Turns(answers=answers, ids=ids, shown=shown, step=step, end=end) if answers else None


@lru_cache(maxsize=_CALLS_MOST)
def _kinds(calls: int) -> tuple[type[Record], ...]:
    """Of the records between the plan of so many calls and the end of their batch."""
    return (ToolDispatchIntent,) * calls + (ToolResult,) * calls
