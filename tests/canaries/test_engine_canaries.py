"""Faults planted in the engine, each caught by a check that the real thing passes."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from semel import Interrupted, Runtime
from semel.adapters.file.store import FileStore
from semel.adapters.file.writer import FileWriter
from semel.adapters.system import SystemClock
from semel.core.effects import Decision
from semel.core.features import KNOWN
from semel.core.outcomes import Outcome
from semel.core.records import Record, ToolCallReturned
from semel.core.state import Session
from semel.engine.barrier import Barrier
from semel.engine.flight import Flight
from semel.engine.flights import Flights
from semel.engine.inbox import Choose
from semel.engine.session import SessionActor
from semel.errors import CorruptLog
from semel.ports.roster import Roster
from storage.logs import lineage_payload, payload
from tests.core.machine import Machine
from tests.core.test_recovery import times_paid_behind_a_read_that_was_given_up
from tests.engine.fakes import loop_turns
from tests.engine.slow import HeldDisk
from tests.engine.test_barrier_races import process_beside_a_sync, process_told_of_late, verdict_beside_a_return
from tests.engine.test_hang_ups import hang_up_at_each_call, verdict_beside_a_run
from tests.engine.test_lost_outcomes import left_with_calls_waiting, paid_when_cancelled
from tests.engine.test_plain_functions_that_are_cut import KINDS, Case, Hand, asked_while_it_runs, short_grace


def actor_of(runtime: Runtime) -> SessionActor:
    return runtime._keeper.sessions.actors["s"]


class NoLock(asyncio.Lock):
    """Lets everybody in."""

    async def acquire(self) -> bool:
        return True

    def release(self) -> None:
        pass


def unlock(runtime: Runtime) -> None:
    actor_of(runtime)._barrier._one_at_a_time = NoLock()


class PastTheInbox(SessionActor):
    """Writes what is asked beside the run, instead of having the run take it between two barriers."""

    async def ask(self, choose: Choose) -> bool:
        await self._barrier.commit_chosen(lambda state: choose(state, None).records)
        return False


def pass_by(runtime: Runtime) -> None:
    actor_of(runtime).__class__ = PastTheInbox


@pytest.mark.anyio
async def test_a_barrier_without_its_lock_is_caught_by_a_process_that_starts_within_a_sync(tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        await process_beside_a_sync(tmp_path, unlock)


@pytest.mark.anyio
@pytest.mark.parametrize("first", ["verdict", "return"])
async def test_a_verdict_past_the_inbox_and_the_lock_is_caught_where_it_meets_a_return(first: str, tmp_path: Path) -> None:
    def plant(runtime: Runtime) -> None:
        pass_by(runtime)
        unlock(runtime)

    with pytest.raises(CorruptLog):
        await verdict_beside_a_return(tmp_path, first, plant)


class Impatient(Barrier):
    """Leaves a commit half done when whoever asked for it is cancelled."""

    async def commit_chosen(self, choose: Callable[[Session], Sequence[Record]]) -> None:
        await self._commit(choose)


@pytest.mark.anyio
async def test_a_commit_that_is_not_carried_to_its_end_is_caught_by_a_giver_of_a_verdict_who_hangs_up(tmp_path: Path) -> None:
    def plant(runtime: Runtime) -> None:
        pass_by(runtime)
        actor_of(runtime)._barrier.__class__ = Impatient

    with pytest.raises(CorruptLog):
        await hang_up_at_each_call(lambda place, at: verdict_beside_a_run(place, at, plant), tmp_path)


class Trusting(Barrier):
    """Writes a note without a look at what it contradicts."""

    def _write_note(self, record: Record) -> None:
        at_ms = self._clock.now_ms()
        places, payloads = self._placed((record,), at_ms)
        self._noted_frames.extend(self._writer.note(payloads, at_ms=at_ms))
        self._noted.extend(places)


@pytest.mark.anyio
@pytest.mark.parametrize("when", ["at rest", "within a sync"])
async def test_a_note_that_is_written_unseen_is_caught_by_a_process_that_is_told_of_late(when: str, tmp_path: Path) -> None:
    def plant(runtime: Runtime) -> None:
        actor_of(runtime)._barrier.__class__ = Trusting

    with pytest.raises(CorruptLog):
        await process_told_of_late(tmp_path, when, plant)


class HastyWriter(FileWriter):
    """Does not wait for a sync when whoever appends is cancelled."""

    async def _do(self, work: Callable[[], None]) -> None:
        await asyncio.to_thread(work)


class HastyStore(FileStore):
    async def open(self, session: str) -> FileWriter:
        writer = await super().open(session)
        writer.__class__ = HastyWriter
        return writer


async def is_given_up(store: FileStore, disk: HeldDisk) -> bool:
    """Whether an append that is cancelled within its sync ends before that sync does."""
    writer = await store.open("box")
    await writer.append([lineage_payload(), payload(20)])
    disk.hold()
    append = asyncio.ensure_future(writer.append([payload(20)]))
    await disk.held()
    append.cancel()
    await loop_turns()
    given_up = append.done()
    disk.let_go()
    await asyncio.wait({append})
    await writer.close()
    return given_up


@pytest.mark.anyio
@pytest.mark.parametrize(("kind", "caught"), [(FileStore, False), (HastyStore, True)])
async def test_a_writer_that_forgets_a_sync_is_caught_by_an_append_that_is_cancelled(
    kind: type[FileStore], caught: bool, tmp_path: Path
) -> None:
    disk = HeldDisk()
    store = kind(tmp_path, SystemClock(), known=KNOWN, disk=disk, inline_sync=False)
    assert await is_given_up(store, disk) is caught


class Forgetful(Machine):
    """Does not write down what it has given up."""

    def commit(self, decision: Decision) -> None:
        kept = tuple(
            record
            for record in decision.records
            if not (isinstance(record, ToolCallReturned) and record.outcome is Outcome.INTERRUPTED)
        )
        super().commit(replace(decision, records=kept))


def test_a_settlement_that_does_not_record_what_is_given_up_is_caught_by_recoveries_that_die() -> None:
    assert times_paid_behind_a_read_that_was_given_up(Forgetful) > 1


@pytest.mark.anyio
async def test_flights_that_go_on_sending_are_caught_by_calls_that_wait_for_their_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def busy(self: Flights, flight: Flight) -> None:  # and does not look whether the time is over
        self._landed(flight, self._performer.settle(flight, await self._performer.send(flight)))

    monkeypatch.setattr(Flights, "_one", busy)
    outcomes = await left_with_calls_waiting(tmp_path, sequential=False, drain_seconds=0)
    assert outcomes == ["completed"] * 5


@pytest.mark.anyio
async def test_a_runtime_that_drops_its_calls_when_it_is_left_is_caught_by_a_tool_that_had_paid(tmp_path: Path) -> None:
    class Dropping(Flights):
        """Takes every tool for deaf at once, and so drops what the tools had to say."""

        def leave(self) -> None:
            super().leave()
            for flight in self._calls.values():
                self._take_over(flight)

    def plant(runtime: Runtime) -> None:
        flights = actor_of(runtime)._flights
        assert flights is not None
        flights.__class__ = Dropping

    assert isinstance(await paid_when_cancelled(tmp_path, plant), Interrupted)


@pytest.mark.anyio
@pytest.mark.parametrize("kind", KINDS)
async def test_a_living_thread_or_task_that_is_trusted_to_have_done_nothing_is_caught_by_one_that_then_pays(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    short_grace(monkeypatch)
    monkeypatch.setattr(Roster, "works_for", lambda *_: frozenset())
    hand = Hand()
    (result,) = await asked_while_it_runs(Case(tmp_path, KINDS[kind](hand, reconcile=hand.look)), hand)
    assert hand.acted.is_set()
    assert result[0] == "completed"
    assert result[1].startswith("Did not happen")
