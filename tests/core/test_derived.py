"""What the fold derives, held against a second reading of the records: for every prefix of every script (D1-D9, Q3, C47)."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from semel.core.features import needed
from semel.core.fold import fold
from semel.core.records import (
    CompactionNotice,
    ModelStepFinished,
    Queued,
    Record,
    Retracted,
    RunCancelRequested,
    RunFinished,
    RunStarted,
    SendDelivered,
    StepStarted,
    ToolCallReturned,
    ToolResult,
)
from semel.core.recover import recover
from semel.core.state import Session
from semel.core.values import Usage, add_usage
from tests.core.edits import numbered, records_of, up_to
from tests.core.machine import LINEAGE
from tests.core.said import shown
from tests.core.scripts import SCRIPTS


def open_part(records: list[Record]) -> list[Record]:
    """The records since the open run started; none where no run is open."""
    starts = [at for at, record in enumerate(records) if isinstance(record, RunStarted)]
    if not starts or any(isinstance(record, RunFinished) for record in records[starts[-1] :]):
        return []
    return records[starts[-1] :]


def in_flight(records: list[Record]) -> str | None:
    """The entry that the newest step of the open run named and that is not there yet."""
    named = [record.result_entry for record in open_part(records) if isinstance(record, StepStarted)]
    there = {record.assistant_message.entry_id for record in records if isinstance(record, ModelStepFinished)}
    return named[-1] if named and named[-1] not in there else None


def aborting(records: list[Record]) -> bool:
    return any(isinstance(record, RunCancelRequested) for record in open_part(records))


def queue(records: list[Record]) -> list[str]:
    """Keys that wait for a run of their own, interrupting ones first."""
    waiting: dict[str, bool] = {}
    for record in records:
        if isinstance(record, Queued):
            waiting[record.submission_id] = record.delivery == "interrupt"
        elif isinstance(record, Retracted | SendDelivered):
            waiting.pop(record.submission_id)
        elif isinstance(record, RunStarted):
            waiting.pop(record.key, None)
    return sorted(waiting, key=lambda key: not waiting[key])


def usage(records: list[Record]) -> Usage:
    total = Usage()
    for record in open_part(records):
        total = add_usage(total, record.usage) if isinstance(record, ModelStepFinished) else total
    return total


def tags(records: list[Record]) -> list[int]:
    found: list[int] = []
    for record in records:
        held = getattr(record, "tags", ())
        found += [number for one in held for number in (one if isinstance(one, tuple) else (one,))]
        tag = getattr(record, "tag", None)
        found += [] if tag is None else [tag]
    return found


def check(state: Session, records: list[Record]) -> None:
    run, part = state.run, open_part(records)
    assert (run is not None) == bool(part)
    assert state.head == len(records)
    assert state.features == {name for record in records for name in needed(record)}
    assert [message.key for message in state.queue] == queue(records)
    assert state.next_tag == max(tags(records), default=0) + 1
    assert state.compaction.next_notice == max((r.notice_seq for r in records if isinstance(r, CompactionNotice)), default=0) + 1
    assert sorted(state.ended) == sorted(record.run_id for record in records if isinstance(record, RunFinished))
    if run is None:
        return
    assert (run.in_flight.result_entry if run.in_flight else None) == in_flight(records)
    assert run.aborting == aborting(records)
    assert not (run.aborting and (state.steers or state.follow_ups))
    assert run.usage == usage(records)
    assert run.model_steps == sum(isinstance(record, ModelStepFinished) for record in part)
    assert run.tool_results == sum(isinstance(record, ToolResult) for record in part)


@pytest.mark.parametrize("name", SCRIPTS)
def test_what_is_derived_is_what_the_records_say(name: str) -> None:
    records = records_of(name)
    for end in range(len(records) + 1):
        check(fold(numbered_with_features(records[:end]), Session(session="s", lineage=LINEAGE)), records[:end])


def numbered_with_features(records: list[Record]) -> list[Any]:
    return [replace(one, requires=needed(one.record)) for one in numbered(records) if one.record is not None]


def test_a_reading_that_forgot_something_would_be_caught() -> None:
    records = up_to(RunCancelRequested)(records_of("cancel_now"))
    state = fold(numbered_with_features(records), Session(session="s", lineage=LINEAGE))
    assert state.run is not None
    check(state, records)
    with pytest.raises(AssertionError):
        check(replace(state, run=replace(state.run, cancels=())), records)
    with pytest.raises(AssertionError):
        check(replace(state, run=replace(state.run, usage=Usage())), records)


def test_a_step_is_in_flight_until_its_answer_is_there_and_stays_the_newest_one() -> None:
    """D4: in flight and newest are two things."""
    records = records_of("text")
    states = [fold(numbered(records[:end]), Session(session="s", lineage=LINEAGE)) for end in range(2, 6)]
    seen = [(state.run.in_flight is not None, state.run.step is not None) for state in states if state.run is not None]
    assert seen == [(True, True), (True, True), (False, True), (False, True)]


def without(*fields: str) -> Callable[[Record], Record]:
    """The record as one who skips these optional fields reads it."""

    def strip(record: Record) -> Record:
        there = {field for field in fields if field in record.__struct_fields__ and getattr(record, field) is not None}
        return replace(record, **dict.fromkeys(there))

    return strip


STRIPPED = {
    "reasons of results (R15, R39)": lambda record: (
        without("reason")(record) if isinstance(record, ToolResult | ToolCallReturned) else record
    ),
    "times (R40)": without("dispatched_at_ms", "finished_at_ms", "deferred_at_ms", "closed_at_ms", "ts_ms"),
}


@pytest.mark.parametrize("what", STRIPPED)
@pytest.mark.parametrize("name", SCRIPTS)
def test_nothing_acts_on_what_is_for_people_alone(name: str, what: str) -> None:
    """A reader that skips it asks the model the same, and recovers in the same way."""
    records = records_of(name)
    thin = [STRIPPED[what](record) for record in records]
    for end in range(len(records) + 1):
        full, bare = (fold(numbered(part[:end]), Session(session="s", lineage=LINEAGE)) for part in (records, thin))
        assert asked(bare, thin[:end]) == asked(full, records[:end])
        assert [type(record) for record in recover(bare).records] == [type(record) for record in recover(full).records]
        assert recover(bare).effects == recover(full).effects


def asked(state: Session, records: list[Record]) -> bytes:
    """What the model is asked, or what it will have been told."""
    return msgspec.json.encode(shown(state, numbered(records)))
