"""The whole engine in the simulated world: what `semel.testing.world` finds, and that it is a world to rely on."""

import asyncio
import dataclasses
import gc
import inspect
import os
import subprocess
import sys
import warnings
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest

from semel.adapters.file.disk import Disk
from semel.core.policy import Allow, Ask, Deny, Ruling
from semel.core.values import JSON, ToolSpec
from semel.engine.kit import Kit
from semel.engine.waiting import to_its_end
from semel.faces.cli.simulate import build
from semel.testing.world import FAULTS, World, run_seeds
from semel.testing.world import loop as loop_module
from semel.testing.world import world as world_module
from semel.testing.world.clock import EPOCH_MS
from semel.testing.world.disk import SimDisk
from semel.testing.world.fate import Fate
from semel.testing.world.loop import Deadlock, SimLoop
from semel.testing.world.medium import File
from semel.testing.world.story import Tally
from semel.testing.world.world import SimSyncs
from tests.docs.test_pages import FENCE
from tests.sim.worlds import assert_sound, kept_seeds, simulated

IN_TEST, IN_PROOF = 2000, 100_000
pytestmark = pytest.mark.timeout(300)


@pytest.mark.parametrize("seed", kept_seeds())
def test_a_seed_that_has_shown_a_fault_shows_none_any_more(seed: int) -> None:
    assert World(seed, build).run().breaches == ()


@pytest.mark.timeout(900)
def test_two_thousand_seeds_keep_every_promise() -> None:
    assert_sound(simulated(0, IN_TEST), least=100)


@pytest.mark.prove
@pytest.mark.timeout(4 * 3600)
def test_a_hundred_thousand_seeds_keep_every_promise() -> None:
    assert_sound(simulated(IN_TEST, IN_PROOF), least=5000)


def ruling(spec: ToolSpec, arguments: dict[str, JSON]) -> Ruling:
    """A policy of the tests: by the tool and its number."""
    n = arguments["n"]
    if spec.name in ("pay", "ship", "step") and n % 2:
        return Ask(rule="odd", expires_at_ms=EPOCH_MS + 2_000_000 if n % 3 == 0 else None)
    return Deny(why="not today") if n % 17 == 0 else Allow()


def build_asking(world: World) -> tuple[object, object]:
    """The cast, with a policy that asks people."""
    agent, runtime = build(world)
    crew = runtime._keeper.crew
    new_run, kit_of = crew.new_run, crew.kit_of

    async def asked_new_run(*arguments: object, **named: object) -> tuple[object, Kit]:
        command, kit = await new_run(*arguments, **named)
        return command, dataclasses.replace(kit, policy=ruling)

    crew.new_run = asked_new_run
    crew.kit_of = lambda *arguments: dataclasses.replace(kit_of(*arguments), policy=ruling)
    return agent, runtime


def test_worlds_whose_calls_wait_for_approvals_keep_every_promise() -> None:
    tally = run_seeds(range(100), build_asking)
    print(f"{tally.fired['answered_approval']} approvals were answered; {tally.turns} turns")
    assert tally.broken == {}
    assert tally.fired["answered_approval"] >= 50


def digests(hash_seed: str) -> str:
    """The digests of some seeds, in a process of its own."""
    code = (
        "from semel.faces.cli.simulate import build; from semel.testing.world import World\n"
        "for seed in range(30): print(World(seed, build).run().digest)"
    )
    environment = os.environ | {"PYTHONHASHSEED": hash_seed}
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True).stdout


def test_a_seed_runs_alike_in_any_process() -> None:
    one = digests("1")
    assert len(set(one.split())) == 30, "and no two seeds run alike"
    assert digests("2") == one
    assert [World(seed, build).run().digest for seed in range(30)] == one.split()


def test_a_story_ends_with_the_logs() -> None:
    done = subprocess.run([sys.executable, "-m", "semel", "simulate", "1"], capture_output=True, text=True, check=True)
    story, _, logs = done.stdout.partition("the log of ")
    assert "life 1 begins" in story
    assert '"type":"lineage"' in logs
    assert logs.splitlines()[-1].startswith("seed 1: ")


def test_a_tally_without_a_kind_of_fault_is_seen() -> None:
    poor = Tally(worlds=1, turns=1, done=1)
    assert poor.rare(1) == list(FAULTS)
    with pytest.raises(AssertionError, match="hardly struck"):
        assert_sound(poor, least=1)


def test_the_example_of_the_page_on_testing_runs(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs/testing.md").read_text()
    (example,) = [block["body"] for block in FENCE.finditer(page) if block["title"] == "test_shop.py"]
    (tmp_path / "test_shop.py").write_text(example)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_shop.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def looped(main: Callable[[], Awaitable[object]], *, seed: int = 0, reorder: bool = False) -> tuple[object, float]:
    """What a coroutine returns on a simulated loop, and the virtual time that it took."""
    fate = Fate(seed)
    loop = SimLoop(fate, reorder=reorder, dead=lambda: False)
    return loop.run(main()), fate.now  # type: ignore[arg-type]  # a coroutine


def test_time_is_virtual() -> None:
    async def main() -> str:
        await asyncio.wait([asyncio.ensure_future(asyncio.sleep(seconds)) for seconds in (3600, 86_400)])
        async with asyncio.timeout(5):
            return "done"

    assert looped(main) == ("done", 86_400)


def test_what_waits_for_ever_is_a_deadlock() -> None:
    async def main() -> None:
        await asyncio.Event().wait()

    with pytest.raises(Deadlock, match="main"):
        looped(main)


def orders(*, reorder: bool) -> set[str]:
    """In which orders three tasks that are ready together run, over some seeds."""

    async def main() -> str:
        done: list[str] = []

        async def say(word: str) -> None:
            done.append(word)

        await asyncio.gather(*(say(word) for word in "abc"))
        return "".join(done)

    return {str(looped(main, seed=seed, reorder=reorder)[0]) for seed in range(60)}


def test_the_order_of_what_is_ready_is_the_seeds_where_it_is_asked_for() -> None:
    assert orders(reorder=False) == {"abc"}
    assert orders(reorder=True) == {"abc", "acb", "bac", "bca", "cab", "cba"}


def test_no_call_of_the_simulated_disk_reaches_the_real_one() -> None:
    composed = {"write"}  # made of other calls
    calls = {name for name, found in vars(Disk).items() if inspect.isfunction(found) and not name.startswith("_")}
    assert len(calls) >= 20
    assert calls - composed - vars(SimDisk).keys() == set()


Dying = Callable[[Callable[[], None]], Coroutine[Any, Any, None]]
"""What a process does that dies behind the callback in which it calls what it is given."""


class Heard:
    """What Python says of objects that are let go of, on stderr as a rule."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.said: list[str] = []
        monkeypatch.setattr(sys, "unraisablehook", lambda about: self.said.append(repr(about.exc_value)))

    def while_dying(self, main: Dying) -> list[str]:
        """A life of which nobody holds anything any more, once its process has died."""
        over: list[bool] = []
        loop = SimLoop(Fate(0), reorder=False, dead=lambda: bool(over))
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            assert loop.run(main(lambda: over.append(True))) is None
            gc.collect()
        return [*self.said, *(str(one.message) for one in warned)]


async def dying_in_a_sync(die: Callable[[], None]) -> None:
    """What is behind the sync is let go of with a task that has not begun."""
    die()
    await to_its_end(SimSyncs(asyncio.get_running_loop()).do(lambda: None), at_once=True)


async def dying_before_it_is_awaited(die: Callable[[], None]) -> None:
    """A task that has ended, whose error holds what it was about to wait for."""

    async def fails() -> None:
        _waited_for = asyncio.sleep(1)
        die()
        raise ValueError

    await asyncio.wait([asyncio.ensure_future(fails())])


async def dying_with_a_task_that_comes_late(die: Callable[[], None]) -> None:
    """Whose cleaning up begins another task, of work that holds itself, so that it is let go of later."""

    async def works(held: list[object]) -> None:
        await asyncio.sleep(1)

    die()
    try:
        await asyncio.sleep(1)
    finally:
        held: list[object] = []
        held.append(work := works(held))
        asyncio.ensure_future(work)  # noqa: RUF006  the loop holds it


@pytest.mark.parametrize("main", [dying_in_a_sync, dying_before_it_is_awaited, dying_with_a_task_that_comes_late])
def test_a_process_that_dies_says_nothing_of_what_it_was_doing(main: Dying, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Heard(monkeypatch).while_dying(main) == []


def test_canary_a_wait_that_goes_on_behind_its_loop_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    async def goes_on(work: Callable[[], None]) -> None:
        task = asyncio.ensure_future(asyncio.to_thread(work))
        with suppress(BaseException):
            await asyncio.shield(task)
        task.result()

    monkeypatch.setattr(world_module, "settled", goes_on)
    assert Heard(monkeypatch).while_dying(dying_in_a_sync) == ["InvalidStateError('Result is not set.')"]


def test_canary_a_loop_that_lets_its_tasks_go_aloud_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    def drop(loop: SimLoop) -> None:
        loop_module._close(loop._tasks)
        for held in (loop._tasks, loop._now_due, loop._later):
            held.clear()

    monkeypatch.setattr(SimLoop, "_drop", drop)
    assert any("was never awaited" in line for line in Heard(monkeypatch).while_dying(dying_before_it_is_awaited))


def images(prepare: Callable[[File], None]) -> set[bytes]:
    """What a power loss can leave of a file."""
    found = set()
    for seed in range(300):
        file = File(1)
        prepare(file)
        file.lose_power(Random(seed))
        assert file.seen == file.durable
        found.add(bytes(file.seen))
    return found


def test_a_power_loss_keeps_what_was_synced_and_tears_the_rest_by_sectors() -> None:
    def prepare(file: File) -> None:
        file.write(0, b"a" * 600)
        file.sync()
        file.write(600, b"b" * 1400)

    found = images(prepare)
    assert all(image.startswith(b"a" * 600) for image in found), "nothing that was synced is lost"
    assert any(len(image) < 2000 for image in found), "it can be short"
    assert any(b"\0" in image for image in found), "it can have holes"
    assert b"a" * 600 + b"b" * 1400 in found, "it can be whole"
    holes = [image for image in found if b"\0" in image]
    assert all(at in (600, 1024, 1536) for at in (image.index(b"\0") for image in holes)), "holes begin where sectors do"


def test_a_file_whose_name_was_not_synced_may_be_gone() -> None:
    lost = 0
    for seed in range(50):
        world = World(seed, build)
        file = world.medium.file()
        file.write(0, b"content")
        file.sync()
        world.medium.home.change({"new": file})
        world.medium.lose_power(Random(seed))
        lost += "new" not in world.medium.home.seen
    assert 10 < lost < 40
