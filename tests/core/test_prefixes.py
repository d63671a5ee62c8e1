"""Any prefix of a legal history folds, recovers, and goes on to requests that every provider takes (K18, K20, V1, T29)."""

from functools import cache
from typing import Any

import pytest
from msgspec.structs import replace

from semel.core.ceiling import dispensable
from semel.core.fold import fold
from semel.core.pairing import fault_of
from semel.core.places import entries_of
from semel.core.records import RunFinished, Steered
from semel.core.recover import recover
from semel.core.state import Session, Step
from semel.core.values import UserMessage
from tests.core.driver import Died, Driver
from tests.core.machine import LINEAGE, place_of
from tests.core.quiet import quiesce
from tests.core.said import said, shown
from tests.core.scripts import SCRIPTS
from tests.core.writes import Write, folded, logged_of


@cache
def played(name: str) -> Driver:
    return SCRIPTS[name]()


def prefixes(writes: list[Write]) -> list[list[Write]]:
    """The log cut behind each record; a write that is cut is a torn one."""
    out: list[list[Write]] = [[]]
    for at, write in enumerate(writes):
        for kept in range(1, len(write.records) + 1):
            cut = Write(write.records[:kept], write.whole and kept == len(write.records), write.fence)
            out.append([*writes[:at], cut])
    return out


COUNTS = {name: sum(len(write.records) for write in played(name).writes) + 1 for name in SCRIPTS}


def test_there_are_as_many_scripts_and_prefixes_as_ever() -> None:
    assert len(SCRIPTS) == 37
    assert sum(COUNTS.values()) >= 650
    print(f"{len(SCRIPTS)} scripts, {sum(COUNTS.values())} prefixes")


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_plays_to_its_end_and_its_log_folds_to_the_live_state(name: str) -> None:
    driver = played(name)
    assert driver.state.run is None
    assert folded(driver.writes) == driver.state


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_prefix_folds_and_folding_in_two_parts_is_folding_whole(name: str) -> None:
    logged = logged_of(played(name).writes)
    empty = Session(session="s", lineage=LINEAGE)
    whole = fold(logged, empty)
    for cut in range(len(logged) + 1):
        first = fold(logged[:cut], empty)
        assert fold(logged[cut:], first) == whole
        assert first == fold(logged[:cut], empty)


@pytest.mark.parametrize("name", SCRIPTS)
def test_v35_a_log_without_its_informational_records_says_the_same_and_recovers_the_same(name: str) -> None:
    writes = played(name).writes
    thin = [Write([one for one in write.records if not dispensable(one)], write.whole, write.fence) for write in writes]
    for upto in range(1, len(writes) + 1):
        full, rest = folded(writes[:upto]), folded(thin[:upto])
        assert _substance(rest, thin[:upto]) == _substance(full, writes[:upto])
        assert [type(record) for record in recover(rest).records] == [type(record) for record in recover(full).records]
        assert recover(rest).effects == recover(full).effects


def _substance(state: Session, writes: list[Write]) -> Any:
    """All of a state but numbers of records and times."""
    logged = logged_of(writes)
    run, ended = state.run, tuple(replace(one, head=0, started_at_ms=0, finished_at_ms=0) for one in state.ended.values())
    owed = tuple(replace(one, since_ms=0) for one in state.owed.values())
    unknown = tuple(replace(one, since_ms=0) for one in state.unknown)
    queue = tuple(replace(one, seq=0) for one in state.queue)
    open_run = run and replace(run, started_seq=0, started_at_ms=0, running_ms=0, step=_placeless(run.step))
    pending = [replace(one, place=0) for one in state.pending]
    return said(state, logged), shown(state, logged), pending, open_run, ended, owed, unknown, queue, state.keys


def _placeless(step: Step | None) -> Step | None:
    batch = (
        step
        and step.batch
        and replace(step.batch, calls=tuple(replace(call, ended_at=0, output_at=0, held_at=0) for call in step.batch.calls))
    )
    approvals = tuple(replace(one, at=0) for one in step.approvals) if step else ()
    return step and replace(step, answered_at=0, batch=batch, approvals=approvals)


def revived(name: str, writes: list[Write], **options: Any) -> Driver:
    """Another process over this log. Of the step in flight it must send what the first one sent (P4)."""
    original = played(name)
    driver = Driver(tools=original.tools, policy=original.policy, writes=list(writes), fence=100, **options)
    run = driver.state.run
    if run is not None and run.step is not None and run.step.answer is None:
        place = place_of(run, run.step.step_id)
        driver.requests = {place: original.requests[place]}
    return driver


@pytest.mark.parametrize(("name", "length"), [(name, length) for name in SCRIPTS for length in range(COUNTS[name])])
def test_a_prefix_recovers_and_goes_on_to_requests_that_every_provider_takes(name: str, length: int) -> None:
    """The driver holds each request against the history contract, and the attempts of a step against each other."""
    driver = revived(name, prefixes(played(name).writes)[length])
    assert driver.state.head == length
    driver.resume()
    quiesce(driver)
    driver.send("behind", "are you there?")
    assert fault_of(driver.sent[-1]) is None
    quiesce(driver)
    terminals = [record for write in driver.writes for record in write.records if isinstance(record, RunFinished)]
    assert len(terminals) == len(driver.state.ended)


@pytest.mark.parametrize("name", SCRIPTS)
def test_some_prefix_of_each_script_asks_again_what_was_asked_before(name: str) -> None:
    assert any(revived(name, writes).requests for writes in prefixes(played(name).writes))


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_recovery_that_dies_in_any_write_recovers_again_and_dispatches_no_once_call_twice(name: str) -> None:
    for writes in prefixes(played(name).writes):
        for tear in (0, 1, 2, 3):
            _recover_twice(name, writes, tear)


def _recover_twice(name: str, writes: list[Write], tear: int) -> None:
    driver = revived(name, writes, tear=tear)
    try:
        driver.resume()
        quiesce(driver)
    except Died:
        driver.die()
        driver.resume()
        quiesce(driver)
    assert driver.state.run is None
    assert folded(driver.writes) == driver.state


def test_an_acknowledged_message_is_in_the_transcript_exactly_once_from_every_prefix() -> None:
    """P9: a steer, follow-up or queued message that is in the log when the process dies has its one place in the end."""
    checked = 0
    for name in ("steer", "follow_up", "next_run", "interrupt", "cancel_now", "cancel_at_boundary", "cancel_while_asking"):
        for writes in prefixes(played(name).writes):
            driver = revived(name, writes)
            waiting = [item.entry_id for item in driver.state.pending] + [
                entry.entry_id for message in driver.state.queue for entry in message.request.input
            ]
            driver.resume()
            quiesce(driver)
            texts_of = {
                entry.entry_id: entry.content.text  # type: ignore[union-attr]  # a message
                for write in writes
                for record in write.records
                for entry in entries_of(record)
                if isinstance(entry.content, UserMessage)
            }
            texts = [message.text for message in driver.said]
            for entry_id in waiting:
                assert texts.count(texts_of[entry_id]) == 1
                checked += 1
    assert checked >= 100


def test_a_steer_that_lost_its_place_would_be_seen() -> None:
    """The negative control: without the steer's record the message is nowhere."""
    writes = [
        Write([record for record in write.records if not isinstance(record, Steered)], True, write.fence)
        for write in prefixes(played("steer").writes)[4]
    ]
    driver = Driver(tools=played("steer").tools, writes=[write for write in writes if write.records])
    driver.resume()
    quiesce(driver)
    assert "use gamma instead" not in [message.text for message in driver.said]
