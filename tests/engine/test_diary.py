"""F6-F11: what went wrong in this process is told, and only the recovery of a session clears what it owes."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from semel import Agent, Runtime
from semel.adapters.memory.store import Medium, MemoryStore
from semel.adapters.system import SystemClock
from semel.core.values import Effect
from semel.engine.diary import EVERY_SESSION, INCIDENTS_MOST, Diary
from semel.errors import SessionBusy, StoreError, WriterPoisoned
from tests.engine.fakes import call, counting, ground, script_file

pytestmark = pytest.mark.anyio


class Impatient(SystemClock):
    """Waits no longer than for the others to have had their turn."""

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)


def agent_at(path: Path) -> Agent:
    return Agent("a", model=script_file(path, {"calls": [call("pay")]}, {"text": "ok"}, {"text": "ok"}), tools=[counting("pay")])


async def poisoned(runtime: Runtime, agent: Agent, medium: Medium, session: str) -> None:
    """A run whose first sync fails."""
    medium.fault = "sync"
    with pytest.raises(WriterPoisoned):
        await runtime.session(session, agent=agent).send("hi", key="k")


async def test_f8_a_failure_is_kept_with_session_stage_time_and_error(tmp_path: Path) -> None:
    medium, agent = Medium(), agent_at(tmp_path / "m.json")
    async with Runtime(agents=[agent], ground=ground(medium), recover="manual") as runtime:
        await poisoned(runtime, agent, medium, "s")
        (incident,) = runtime.diary.incidents
        assert (incident.session, incident.stage, incident.code) == ("s", "begin", "writer_poisoned")
        assert incident.at_ms > 0
        assert incident.message


async def test_f9_f10_a_debt_outlives_a_clean_stop_and_the_recovery_of_another_session(tmp_path: Path) -> None:
    medium, agent = Medium(), agent_at(tmp_path / "m.json")
    async with Runtime(agents=[agent], ground=ground(medium), recover="manual") as runtime:
        await poisoned(runtime, agent, medium, "s")
        await (await runtime.session("other", agent=agent).send("hi", key="k")).result()
        assert set(runtime.diary.debts) == {"s"}
    outcome = runtime.stop_outcome
    assert outcome is not None
    assert outcome.clean
    assert set(outcome.debts) == {"s"}


async def test_f10_the_recovery_and_sync_of_the_session_clears_its_debt(tmp_path: Path) -> None:
    medium, agent = Medium(), agent_at(tmp_path / "m.json")
    async with Runtime(agents=[agent], ground=ground(medium), recover="manual") as runtime:
        await poisoned(runtime, agent, medium, "s")
        run = await runtime.session("s", agent=agent).send("hi", key="k")
        assert runtime.diary.debts == {}
        await run.result()
        assert len(runtime.diary.incidents) == 1


async def test_f6_f7_a_stop_tells_what_it_held_and_only_what_failed_during_it(tmp_path: Path) -> None:
    medium, agent = Medium(), agent_at(tmp_path / "m.json")
    async with Runtime(agents=[agent], ground=ground(medium), recover="manual") as runtime:
        await poisoned(runtime, agent, medium, "early")
        await (await runtime.session("idle", agent=agent).send("hi", key="k")).result()
    outcome = runtime.stop_outcome
    assert outcome is not None
    assert (outcome.clean, outcome.failures) == (True, ())
    assert "idle" not in outcome.sessions or outcome.clean


async def test_f6_a_failure_while_stopping_is_in_the_outcome(tmp_path: Path) -> None:
    medium = Medium()

    running, released = asyncio.Event(), asyncio.Event()

    async def break_the_disk(_arguments: object, _call: object) -> str:
        running.set()
        await released.wait()
        medium.fault = "sync"
        return "paid"

    model = script_file(tmp_path / "m.json", {"calls": [call("pay")]}, {"text": "ok"})
    agent = Agent("a", model=model, tools=[counting("pay", behaviour=break_the_disk)])
    async with Runtime(agents=[agent], ground=ground(medium), recover="manual") as runtime:
        run = await runtime.session("s", agent=agent).send("hi", key="k")
        await running.wait()
        asyncio.get_running_loop().call_soon(released.set)  # which comes when the block has begun to be left
    with pytest.raises(WriterPoisoned):
        await run.rest()
    outcome = runtime.stop_outcome
    assert outcome is not None
    assert outcome.sessions == ("s",)
    assert not outcome.clean
    assert {(one.session, one.stage, one.code) for one in outcome.failures} == {("s", "carry", "writer_poisoned")}
    assert set(outcome.debts) == {"s"}


async def test_who_is_merely_busy_owes_nothing_and_damage_does(tmp_path: Path) -> None:
    medium, agent = Medium(), agent_at(tmp_path / "m.json")
    other = ground(medium)
    async with Runtime(agents=[agent], ground=ground(medium), recover="manual") as runtime:
        await (await runtime.session("s", agent=agent).send("hi", key="k")).result()
        writer = await other.store.open("s")
        with pytest.raises(SessionBusy):
            await runtime.session("s", agent=agent).send("hi", key="k2")
        await writer.close()
        assert runtime.diary.debts == {}
    medium.logs["s"].data[300] ^= 1
    async with Runtime(agents=[agent], ground=ground(medium)) as runtime:
        while not runtime.unrecovered:
            await asyncio.sleep(0)
        assert {(one.session, one.stage, one.code) for one in runtime.diary.incidents} == {("s", "recover", "log_damaged")}
    assert runtime.stop_outcome is not None
    assert runtime.stop_outcome.clean
    assert set(runtime.stop_outcome.debts) == {"s"}


async def test_what_keeps_every_session_from_being_told_is_in_the_diary_and_owed_until_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits for the task that recovers: what it raised was seen by nobody, and nothing was resumed (F8, F9)."""
    medium, agent, full = Medium(), agent_at(tmp_path / "m.json"), asyncio.Event()
    full.set()
    told = MemoryStore.sessions

    def sessions(store: MemoryStore) -> Sequence[str]:
        if full.is_set():
            raise StoreError("could not list: Too many open files")
        return told(store)

    monkeypatch.setattr(MemoryStore, "sessions", sessions)
    on = replace(ground(medium), clock=Impatient())
    async with Runtime(agents=[agent], ground=on) as runtime:
        while not runtime.unrecovered:
            await asyncio.sleep(0)
    assert set(runtime.unrecovered) == {EVERY_SESSION}
    assert runtime.stop_outcome is not None
    assert set(runtime.stop_outcome.debts) == {EVERY_SESSION}
    assert {(one.stage, one.code) for one in runtime.diary.incidents} == {("recover", "store")}
    async with Runtime(agents=[agent], ground=on) as runtime:
        while not runtime.unrecovered:
            await asyncio.sleep(0)
        full.clear()
        while runtime.unrecovered:
            await asyncio.sleep(0)
        assert runtime.diary.debts == {}
        assert runtime.diary.count >= 1


async def test_a_stray_beside_an_open_run_is_named_and_keeps_it_from_nothing(tmp_path: Path) -> None:
    state = tmp_path / "state"
    running, never = asyncio.Event(), asyncio.Event()

    async def hang(_arguments: object, _call: object) -> str:
        running.set()
        await never.wait()
        return "never"

    script = script_file(tmp_path / "n.json", {"calls": [call("look")]}, {"text": "ok"})
    slow = Agent("a", model=script, tools=[counting("look", Effect.READ, hang)])
    async with Runtime(state, agents=[slow], drain_seconds=0) as runtime:
        await runtime.session("s", agent=slow).send("hi", key="k")
        await running.wait()
    (state / "sessions" / "foo").touch()
    (state / "sessions" / f"={'0' * 64}").touch()
    quick = Agent("a", model=script, tools=[counting("look", Effect.READ)])
    async with Runtime(state, agents=[quick]) as runtime:
        assert runtime._recovery is not None
        await runtime._recovery
        while (status := runtime.status("s")) is None or status.state == "running":
            await asyncio.sleep(0.001)
        assert status.state == "completed"
        assert set(runtime.unrecovered) == set(runtime.diary.debts) == {"foo", f"={'0' * 64}"}


def test_a_diary_is_bounded_and_says_how_much_it_let_go() -> None:
    diary = Diary()
    for number in range(INCIDENTS_MOST + 7):
        diary.write_down(f"s{number % 3}", "carry", number, ValueError("x" * 10_000))
    assert (len(diary.incidents), diary.dropped, diary.count) == (INCIDENTS_MOST, 7, INCIDENTS_MOST + 7)
    assert len(diary.incidents[-1].message) <= 500
    assert diary.since(diary.count - 2) == diary.incidents[-2:]
    assert diary.since(diary.count) == ()
