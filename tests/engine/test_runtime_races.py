"""Sends, runs that end and runtimes that are left, all at once: no lease stays behind, and no caller hears of another's run."""

import asyncio
import gc
from contextlib import suppress
from pathlib import Path

import pytest

from semel import Agent, Completed, Runtime
from semel.adapters.memory.store import Medium
from semel.core.effects import CallModel
from semel.core.state import Run
from semel.core.values import Effect
from semel.engine.feed import Subscription
from semel.engine.perform import Performer
from semel.engine.resume import Ground
from semel.engine.session import SessionActor
from semel.errors import RunNotCompleted, RuntimeLeft, SessionBusy, StoreError
from semel.faces.api import SessionHandle
from semel.faces.run import RunHandle
from tests.engine.fakes import call, counting, ground, leave, loop_turns, script_file
from tests.engine.slow import HeldDisk, disk_ground
from tests.engine.test_resume import Life, hanging

pytestmark = pytest.mark.anyio

ROUNDS = 12
SOON_SECONDS = 5


def talker(tmp_path: Path) -> Agent[str]:
    """An agent that answers at once, as often as it is asked."""
    return Agent("a", model=script_file(tmp_path / "m.json", *[{"text": f"answer {at}"} for at in range(4 * ROUNDS)]))


class Waiting:
    """An agent whose tool waits, in its second answer."""

    def __init__(self, tmp_path: Path, *answers_before: dict[str, object]) -> None:
        self.begun, self.gate = asyncio.Event(), asyncio.Event()
        model = script_file(tmp_path / "m.json", *answers_before, {"calls": [call("pay")]}, {"text": "done"})
        self.agent = Agent("a", model=model, tools=[counting("pay", behaviour=self._wait)])

    async def _wait(self, _arguments: object, _call: object) -> str:
        self.begun.set()
        await self.gate.wait()
        return "paid"


@pytest.fixture(params=["memory", "files"])
def some_ground(request: pytest.FixtureRequest, tmp_path: Path) -> Ground:
    return ground() if request.param == "memory" else disk_ground(tmp_path / "s")


async def test_a_send_right_behind_the_end_of_a_run_is_carried_to_its_own_end(some_ground: Ground, tmp_path: Path) -> None:
    agent = talker(tmp_path)
    async with Runtime(agents=[agent], ground=some_ground) as runtime:
        session = runtime.session("s", agent=agent)
        for _ in range(ROUNDS):
            before = await session.send("first")
            async for _event in before.events(after=before.before):
                pass
            assert isinstance(await (await session.send("second")).result(), Completed)
    assert some_ground.store.owner("s") is None


async def turns_later(turns: int, session: SessionHandle[str]) -> RunHandle[str] | None:
    """Send when the loop has turned so often; None if another run was there first."""
    for _ in range(turns):
        await asyncio.sleep(0)
    with suppress(SessionBusy):
        return await session.send(f"{turns} later")
    return None


@pytest.mark.parametrize("turns", range(ROUNDS))
async def test_of_two_sends_at_once_each_runs_or_is_refused_as_busy(turns: int, tmp_path: Path) -> None:
    agent, on = talker(tmp_path), ground()
    async with Runtime(agents=[agent], ground=on) as runtime:
        session = runtime.session("s", agent=agent)
        runs = await asyncio.gather(turns_later(0, session), turns_later(turns, session))
        results = [await run.result() for run in runs if run is not None]
    assert 1 <= len(results) <= 2
    assert all(isinstance(result, Completed) for result in results)
    assert on.store.owner("s") is None


@pytest.mark.parametrize("turns", range(ROUNDS))
async def test_two_sends_whose_runs_nobody_waits_for_leave_no_lease_behind(turns: int, tmp_path: Path) -> None:
    agent, on = talker(tmp_path), ground()
    async with Runtime(agents=[agent], ground=on) as runtime:
        session = runtime.session("s", agent=agent)
        await asyncio.gather(turns_later(0, session), turns_later(turns, session))
    assert on.store.owner("s") is None


async def test_a_send_after_the_runtime_was_left_is_refused_by_name_and_writes_nothing(tmp_path: Path) -> None:
    agent, on = talker(tmp_path), ground()
    async with Runtime(agents=[agent], ground=on) as runtime:
        session = runtime.session("s", agent=agent)
    with pytest.raises(RuntimeLeft):
        await session.send("late")
    assert on.store.sessions() == []


async def test_a_send_that_is_opening_its_session_when_the_runtime_is_left_does_not_go_on_behind_it(tmp_path: Path) -> None:
    disk, waiting = HeldDisk(), Waiting(tmp_path)
    on = disk_ground(tmp_path / "s", disk)
    runtime = await Runtime(agents=[waiting.agent], ground=on).__aenter__()
    disk.hold()
    sending = asyncio.ensure_future(runtime.session("s", agent=waiting.agent).send("go"))
    await disk.held()
    await leave(runtime, disk.let_go)
    assert on.store.owner("s") is None
    assert not waiting.begun.is_set()
    with pytest.raises(RuntimeLeft):
        await sending


async def test_a_runtime_keeps_nothing_of_a_session_whose_run_is_over(tmp_path: Path) -> None:
    agent = talker(tmp_path)
    before = alive(SessionActor)
    async with Runtime(agents=[agent], ground=ground()) as runtime:
        for at in range(ROUNDS):
            await (await runtime.session(f"s{at}", agent=agent).send("hi")).result()
        assert alive(SessionActor) == before
        assert not runtime._keeper.sessions.actors
        assert not runtime._keeper.sessions._minders
        assert not runtime._keeper.sessions._doors


async def test_handles_that_nobody_keeps_do_not_listen(tmp_path: Path) -> None:
    waiting = Waiting(tmp_path)
    async with Runtime(agents=[waiting.agent], ground=ground(), drain_seconds=0) as runtime:
        session = runtime.session("s", agent=waiting.agent)
        run = await session.send("go", key="k")
        before = alive(Subscription)
        for _ in range(ROUNDS):
            await session.send("go", key="k")  # polls
        assert alive(Subscription) == before
        waiting.gate.set()
        await run.result()


def alive(kind: type) -> int:
    """How many objects of a kind there are that somebody still holds."""
    gc.collect()
    return sum(isinstance(found, kind) for found in gc.get_objects())


async def test_a_send_that_waits_behind_a_stranded_run_when_the_runtime_is_left_says_that_this_was_stopped(
    tmp_path: Path,
) -> None:
    medium = Medium()
    look, reached = hanging("look", Effect.READ)
    model = script_file(tmp_path / "m.json", {"calls": [call("look")]}, {"text": "done"})
    agent = Agent("a", model=model, tools=[look])
    await Life(medium, agent, reached).die_in_the_tool()
    again = asyncio.Event()

    async def hang(_arguments: object, _call: object) -> None:
        again.set()
        await asyncio.Event().wait()

    look.behaviour = hang
    async with Runtime(agents=[agent], ground=ground(medium), recover="manual", drain_seconds=0) as runtime:
        sending = asyncio.ensure_future(runtime.session("s", agent=agent).send("more", key="k2"))
        await again.wait()
    with pytest.raises(RunNotCompleted, match="semel resume"):
        await sending


async def test_the_result_of_a_finished_run_does_not_wait_for_the_run_under_way(tmp_path: Path) -> None:
    waiting = Waiting(tmp_path, {"text": "one"})
    async with Runtime(agents=[waiting.agent], ground=ground(), drain_seconds=0) as runtime:
        session = runtime.session("s", agent=waiting.agent)
        await (await session.send("go", key="k1")).result()
        run = await session.send("more", key="k2")
        await waiting.begun.wait()
        async with asyncio.timeout(SOON_SECONDS):
            assert (await (await session.send("go", key="k1")).result()).output == "one"
        waiting.gate.set()
        await run.result()


async def test_whoever_waits_for_the_result_when_the_runtime_is_left_is_told_and_not_cancelled(tmp_path: Path) -> None:
    waiting = Waiting(tmp_path)
    async with Runtime(agents=[waiting.agent], ground=ground(), drain_seconds=0) as runtime:
        run = await runtime.session("s", agent=waiting.agent).send("go")
        await waiting.begun.wait()
        result = asyncio.ensure_future(run.result())
    with pytest.raises(RunNotCompleted, match="was stopped with its process"):
        await result


async def test_a_resume_of_a_run_that_is_carried_here_gives_its_handle(tmp_path: Path) -> None:
    waiting = Waiting(tmp_path)
    async with Runtime(agents=[waiting.agent], ground=ground(), drain_seconds=0) as runtime:
        run = await runtime.session("s", agent=waiting.agent).send("go")
        await waiting.begun.wait()
        again = await runtime.resume("s")
        waiting.gate.set()
        assert again is not None
        assert again.run_id == run.run_id
        assert isinstance(await again.result(), Completed)


async def test_a_run_that_is_taken_up_again_right_behind_a_failure_of_its_process_tells_how_it_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = talker(tmp_path)
    rendered = Performer.ask

    async def broken(self: Performer, run: Run, effect: CallModel) -> object:
        await loop_turns()  # somebody stands at the door by then
        raise StoreError("the disk is gone")

    async def slow(self: Performer, run: Run, effect: CallModel) -> object:
        await loop_turns()
        return await rendered(self, run, effect)

    monkeypatch.setattr(Performer, "ask", broken)
    async with Runtime(agents=[agent], ground=ground(), recover="manual") as runtime:
        await runtime.session("s", agent=agent).send("go")

        async def take_up(actor: SessionActor) -> str | None:
            while actor.running:
                await asyncio.sleep(0)
            monkeypatch.setattr(Performer, "ask", slow)
            return await runtime._keeper.carry_on(actor)

        again = await runtime._keeper.enter("s", take_up)
        assert again is not None
        assert isinstance(await again.result(), Completed)
