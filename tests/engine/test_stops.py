"""A stop is durable before it is answered: a process that dies behind that takes nothing along."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from semel import Agent, Completed, Failed, Paused, Rule, Runtime
from semel.adapters.file.store import FileStore
from semel.adapters.memory.store import Medium
from semel.adapters.system import SystemClock
from semel.core.features import KNOWN
from semel.core.status import decode_status
from semel.engine.resume import Ground
from semel.errors import ApprovalClosed
from tests.engine.fakes import call, counting, events_of, ground, script_file
from tests.engine.programs.stopper import agent_of
from tests.engine.test_live_requests import Waiting, types_of

pytestmark = pytest.mark.anyio


def records_of(on: Ground, kind: str) -> list[dict[str, Any]]:
    return [event["record"] for event in events_of(on.store) if event["type"] == kind]


SCRIPT = {"answers": [{"calls": [{"name": "look", "args": {}}]}, {"text": "done"}]}


@pytest.mark.parametrize("build", ["right", "forgets"])
async def test_a_process_that_is_killed_behind_the_answer_to_a_stop_leaves_a_run_that_a_resume_ends(
    build: str, tmp_path: Path
) -> None:
    script = tmp_path / "script.json"
    script.write_text(json.dumps(SCRIPT))
    words = [str(tmp_path / "state"), str(script), *([] if build == "right" else [build])]
    killed = subprocess.run([sys.executable, "-m", "tests.engine.programs.stopper", *words], check=False)
    assert killed.returncode == -signal.SIGKILL
    agent = agent_of(str(script))
    async with Runtime(tmp_path / "state", agents=[agent], recover="manual") as runtime:
        run = await runtime.resume("s")
        assert run is not None
        result = await run.result()
    store = FileStore(tmp_path / "state", SystemClock(), known=KNOWN)
    kinds = [event["type"] for event in events_of(store)]
    if build == "forgets":  # the control: without the record nobody knows of the stop
        assert isinstance(result, Completed)
        return
    assert isinstance(result, Failed)
    assert (result.reason, result.error.code if result.error is not None else None) == ("max_steps", "stopped")
    assert kinds.count("step_started") == 1, "no model was asked any more"
    (asked,) = [event["record"] for event in events_of(store) if event["type"] == "run_stop_requested"]
    assert asked["by"] == "anna"


async def test_the_same_stop_again_and_one_of_a_run_that_was_cancelled_write_nothing(tmp_path: Path) -> None:
    waiting, on = Waiting(tmp_path), ground()
    async with Runtime(agents=[waiting.agent], ground=on) as runtime:
        session = runtime.session("s", agent=waiting.agent)
        await session.send("go")
        await waiting.begun.wait()
        await session.stop()
        await session.stop()
        await session.cancel(at="step_boundary")
        await session.stop()
        waiting.gate.set()
    assert types_of(on).count("run_stop_requested") == 1
    assert [record["reason"] for record in records_of(on, "run_finished")] == ["cancelled"], "a cancel is the stronger wish"


async def test_a_message_to_a_run_that_is_stopped_waits_for_a_run_of_its_own(tmp_path: Path) -> None:
    waiting, on = Waiting(tmp_path), ground()
    async with Runtime(agents=[waiting.agent], ground=on) as runtime:
        session = runtime.session("s", agent=waiting.agent)
        run = await session.send("go")
        await waiting.begun.wait()
        await session.stop()
        steered = await session.steer("and this?")
        assert steered.run_id != run.run_id
        waiting.gate.set()
        assert (await run.result()).reason == "max_steps"
    assert types_of(on).count("queued") == 1


async def test_a_stop_of_a_run_that_nobody_carries_needs_neither_its_agent_nor_its_model(tmp_path: Path) -> None:
    model = script_file(tmp_path / "m.json", {"calls": [call("look")]}, {"text": "done"})
    medium = Medium()
    agent = Agent("a", model=model, tools=[counting("look")])
    on = ground(medium)
    async with Runtime(agents=[agent], ground=on, recover="manual") as runtime:
        run = await runtime.session("s", agent=agent).send("go")
        on.store.crash()
        with pytest.raises(Exception, match=r"."):
            await run.result()
    async with Runtime(ground=ground(medium), recover="manual") as runtime:
        ended = await runtime.stop("s")
        assert ended is not None
        result = await ended.result()
    assert isinstance(result, Failed)
    assert result.reason == "max_steps"


async def test_an_approval_of_a_stopped_run_is_refused_and_its_call_never_leaves(tmp_path: Path) -> None:
    pay = counting("pay")
    model = script_file(tmp_path / "m.json", {"calls": [call("pay")]}, {"text": "done"})
    agent = Agent("a", model=model, tools=[pay], policy=[Rule("ask", tool="pay")])
    on = ground()
    async with Runtime(agents=[agent], ground=on, recover="never") as runtime:
        session = runtime.session("s", agent=agent)
        paused = await (await session.send("go")).result()
        assert isinstance(paused, Paused)
        key = paused.waits[0].call_key or ""
        stopped = await session.stop()
        assert stopped is not None
        assert (await stopped.result()).reason == "max_steps"
        with pytest.raises(ApprovalClosed):
            await session.approve(key)
    assert pay.keys == []
    assert [record["decision"] for record in records_of(on, "approval_resolved")] == ["cancelled"]


async def test_the_published_status_says_that_a_run_waits_for_a_person_and_that_it_goes_on(tmp_path: Path) -> None:
    model = script_file(tmp_path / "m.json", {"calls": [call("pay")]}, {"text": "done"})
    agent = Agent("a", model=model, tools=[counting("pay")], policy=[Rule("ask", tool="pay")])
    on = ground()

    def published() -> tuple[str, str | None]:
        status = decode_status(on.store.read_status("s"))
        assert status is not None
        return status.state, status.reason

    async with Runtime(agents=[agent], ground=on) as runtime:
        session = runtime.session("s", agent=agent)
        paused = await (await session.send("go")).result()
        assert isinstance(paused, Paused)
        assert published() == ("paused", "approval")
        run = await session.approve(paused.waits[0].call_key or "")
        assert run is not None
        assert isinstance(await run.result(), Completed)
    assert published() == ("completed", "completed")
