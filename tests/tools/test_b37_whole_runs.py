"""B37 through whole runs: a cancel, a timeout and a stop of the process end the tree of their call, and of no other."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest
from tool_support import DATA, SystemClock, alive, first_lines, make_fifos

from semel import Agent, Interrupted, Runtime
from semel.adapters.tools.command import CommandDeclaration, CommandTool
from semel.engine.resume import Ground
from semel.faces.run import RunHandle
from tests.engine.fakes import call, events_of, script_file
from tests.engine.slow import StandingClock, disk_ground

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(
        not sys.platform.startswith("linux"), reason="needs /proc: processes that left their group are found there"
    ),
]

GRACE_SECONDS = 0.3


def spawner(timeout: float | None) -> CommandTool:
    declaration = CommandDeclaration(command=("sh", "B37-spawn.sh", "{marker}"), args={"marker": "string"}, timeout=timeout)
    return CommandTool("spawn", declaration, directory=DATA, clock=SystemClock(), grace_seconds=GRACE_SECONDS)


async def started(runtime: Runtime, place: Path, session: str, timeout: float | None = None) -> tuple[RunHandle[Any], str]:
    """A run whose tree of processes is up; the key of its call."""
    place.mkdir()
    fifos = make_fifos(place)
    script = script_file(place / "m.json", {"calls": [call("spawn", marker=str(fifos[0]))]}, {"text": "done"})
    agent = Agent("a", model=script, tools=[spawner(timeout)])
    handle = await runtime.session(session, agent=agent).send("go")
    await first_lines(*fifos)
    on: Ground = runtime._ground
    planned = next(event["record"] for event in events_of(on.store, session) if event["type"] == "tool_batch_started")
    return handle, str(planned["planned_calls"][0]["call_key"])


async def test_b37_a_cancelled_run_leaves_no_process_of_its_call_and_the_other_session_keeps_its_own(tmp_path: Path) -> None:
    on = disk_ground(tmp_path / "state")
    async with Runtime(ground=on, drain_seconds=0) as runtime:
        one, first = await started(runtime, tmp_path / "1", "one")
        _, second = await started(runtime, tmp_path / "2", "two")
        assert alive(first)
        await runtime.cancel("one")
        result = await one.result()
        assert isinstance(result, Interrupted)  # a once call that was ended by force: nobody knows what it did
        assert alive(first) == {}
        assert len(alive(second)) >= 4
        assert runtime.resources().processes != ()
    assert alive(second) == {}, "leaving the runtime ends what may be interrupted"
    assert runtime.resources().processes == ()


async def test_b37_a_call_that_is_over_its_time_is_ended_as_a_whole(tmp_path: Path) -> None:
    clock = StandingClock()
    async with Runtime(ground=disk_ground(tmp_path / "state", clock=clock)) as runtime:
        run, key = await started(runtime, tmp_path / "1", "one", timeout=60)
        clock.advance(61)
        assert isinstance(await run.result(), Interrupted)
        assert alive(key) == {}
        await asyncio.sleep(0)
        assert (runtime.resources().tasks, runtime.resources().processes) == (0, ())
