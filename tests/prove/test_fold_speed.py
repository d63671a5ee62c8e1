"""The fold: 100,000 small records a second, in time and memory linear up to a million."""

import gc
import time
import tracemalloc
from collections.abc import Iterator

import pytest

from semel.core.fold import fold
from semel.core.keys import answer_entry_of, batch_id_of, call_key_of, run_id_of
from semel.core.limits import Limits
from semel.core.outcomes import Outcome
from semel.core.records import (
    AgentRef,
    Config,
    Entry,
    Instructions,
    ModelAttemptFinished,
    ModelStepFinished,
    PlannedCall,
    Record,
    RunStarted,
    StepStarted,
    ToolBatchFinished,
    ToolBatchStarted,
    ToolDispatchIntent,
    ToolOutput,
    ToolResult,
    ToolSet,
    TurnFinished,
)
from semel.core.state import Logged, Session
from semel.core.values import AssistantMessage, Bundle, Stop, Text, ToolCall, ToolSpec, Usage, UserMessage, digest_text

pytestmark = [pytest.mark.prove, pytest.mark.timeout(900)]

LINEAGE = "0" * 32
RUN = run_id_of(LINEAGE, "k")
PER_SECOND = 100_000
ARGUMENTS = '{"n":1}'
DIGEST = digest_text(ARGUMENTS)


def records(turns: int) -> Iterator[Record]:
    """One run of so many turns, each with one call."""
    config = Config(bundle=Bundle(family="scripted", model="m", endpoint="", renderer=1), limits=Limits())
    tools = ToolSet(tools=(ToolSpec(name="look", description="Look.", parameters="{}"),))
    contents = {"c": config, "i": Instructions(text="be good"), "t": tools, "u": UserMessage(text="go")}
    entries = tuple(Entry(entry_id=name, content=content) for name, content in contents.items())
    agent = AgentRef(name="a")
    yield RunStarted(
        run_id=RUN, session="s", key="k", agent=agent, config="c", instructions="i", tools="t", input=("u",), entries=entries
    )
    for step_id in range(1, turns + 1):
        yield from turn(step_id)


def turn(step_id: int) -> Iterator[Record]:
    answer, batch = answer_entry_of(LINEAGE, RUN, step_id), batch_id_of(LINEAGE, RUN, step_id)
    call_id, key = f"c{step_id}", call_key_of(LINEAGE, RUN, step_id, 0)
    said = AssistantMessage(blocks=(Text(text="Now."), ToolCall(id=call_id, name="look", arguments=ARGUMENTS)))
    yield StepStarted(run_id=RUN, step_id=step_id, attempt=1, result_entry=answer, drained=())
    yield ModelAttemptFinished(
        step_id=step_id,
        attempt=1,
        http_attempt=0,
        request_body_len=9,
        request_body_sha256="0" * 64,
        response_body_len=9,
        outcome="completed",
        ts_ms=1,
    )
    yield ModelStepFinished(
        run_id=RUN,
        step_id=step_id,
        assistant_message=Entry(entry_id=answer, content=said),
        stop=Stop.TOOL_USE,
        usage=Usage(input=9, output=3),
    )
    planned = PlannedCall(ordinal=0, tool_call_id=call_id, call_key=key, tool="look", args_digest=DIGEST)
    yield ToolBatchStarted(run_id=RUN, batch_id=batch, step_id=step_id, planned_calls=(planned,))
    yield ToolDispatchIntent(batch_id=batch, ordinal=0, tool_call_id=call_id, args_digest=DIGEST)
    yield ToolResult(
        batch_id=batch,
        ordinal=0,
        tool_call_id=call_id,
        is_error=False,
        outcome=Outcome.COMPLETED,
        output=ToolOutput(text="seen"),
    )
    yield ToolBatchFinished(batch_id=batch)
    yield TurnFinished(run_id=RUN, step_id=step_id)


def logged(turns: int) -> Iterator[Logged]:
    return (Logged(seq=seq, at_ms=seq, fence=1, record=record) for seq, record in enumerate(records(turns), 1))


def seconds(log: list[Logged]) -> float:
    """The faster of two folds."""
    times: list[float] = []
    for _ in range(2):
        gc.collect()
        started = time.perf_counter()
        state = fold(log, Session(session="s", lineage=LINEAGE))
        times.append(time.perf_counter() - started)
        assert state.head == len(log)
    return min(times)


def test_a_million_small_records_fold_at_100_000_a_second_and_not_slower_than_ten_thousand() -> None:
    rates: dict[int, float] = {}
    for turns in (1_250, 12_500, 125_000):
        log = list(logged(turns))
        rates[len(log)] = len(log) / seconds(log)
    print(", ".join(f"{count:,} records: {rate:,.0f} a second" for count, rate in rates.items()))
    assert max(rates) >= 1_000_000
    assert min(rates.values()) >= PER_SECOND
    assert rates[max(rates)] >= rates[min(rates)] / 2, "time grows faster than the log"


def test_the_state_takes_the_same_memory_for_each_record_however_long_the_log_is() -> None:
    """The records are not kept; what the model is to see again of them is."""
    per_record: dict[int, float] = {}
    for turns in (1_250, 12_500, 125_000):
        gc.collect()
        tracemalloc.start()
        state = fold(logged(turns), Session(session="s", lineage=LINEAGE))
        gc.collect()
        held, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        per_record[state.head] = held / state.head
        print(f"{state.head:,} records: {held / state.head:.0f} bytes of state for each, {peak / state.head:.0f} at the peak")
        del state
    assert per_record[max(per_record)] <= per_record[min(per_record)] * 2
    assert max(per_record.values()) < 1_000
