"""A process that is asked to stop: what is under way comes back, the rest is handed over, and nothing is left running."""

import asyncio
import json
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from semel import Agent, Completed, Runtime, tool
from semel.adapters.file.store import FileStore
from semel.adapters.system import SystemClock
from semel.adapters.tools import threads
from semel.core.features import KNOWN
from semel.core.values import Effect
from semel.engine import flight
from semel.faces.views import view_of, waiting_of
from tests.engine.fakes import call, counting, ground, loop_turns, script_file
from tests.engine.programs.service import PAY_SECONDS

SESSIONS, RESTARTS = 16, 4
SCRIPT = {
    "answers": [{"calls": [{"name": "pay", "args": {"n": 1}}]}, {"calls": [{"name": "pay", "args": {"n": 2}}]}, {"text": "done"}]
}
HANDED_OVER, DONE = 7, 0


def start(place: Path) -> "subprocess.Popen[str]":
    words = [str(place / "state"), str(place / "script.json"), str(place / "payments"), str(SESSIONS)]
    process = subprocess.Popen([sys.executable, "-m", "tests.engine.programs.service", *words], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    return process


@pytest.mark.timeout(120)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_rolling_restart_of_a_busy_service_leaves_no_outcome_unknown_and_pays_each_once(number: int, tmp_path: Path) -> None:
    (tmp_path / "script.json").write_text(json.dumps(SCRIPT))
    codes = []
    for at in range(RESTARTS):
        process = start(tmp_path)
        time.sleep(PAY_SECONDS * (at + 1) / RESTARTS)  # no timing is judged: wherever it falls, the same must hold
        process.send_signal(number)
        codes.append(process.wait())
        process.communicate()
    last = start(tmp_path)
    last.communicate()
    assert last.returncode == DONE
    assert set(codes) <= {HANDED_OVER, DONE}
    assert HANDED_OVER in codes, "some process was stopped in the middle of its work"
    store = FileStore(tmp_path / "state", SystemClock(), known=KNOWN)
    waiting = waiting_of(store)
    assert (waiting.calls, waiting.stranded, waiting.unreadable) == ((), (), {})
    assert all(view_of(store, name).state.run is None for name in store.sessions())
    paid = Counter(line.split()[0] for line in (tmp_path / "payments").read_text().splitlines())
    assert paid == {f"s{at}": 2 for at in range(SESSIONS)}


@pytest.mark.timeout(60)
def test_a_second_signal_leaves_at_once_and_the_log_says_that_the_outcome_is_unknown(tmp_path: Path) -> None:
    (tmp_path / "script.json").write_text(json.dumps(SCRIPT))
    process = start(tmp_path)
    store = FileStore(tmp_path / "state", SystemClock(), known=KNOWN)
    while not any(frame.payload.startswith(b'{"type":"tool_dispatch_intent"') for frame in frames_of(store, "s0")):
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGTERM)
    assert process.wait() in (128 + signal.SIGTERM, HANDED_OVER)  # two signals may reach it as one
    process.communicate()


def frames_of(store: FileStore, session: str) -> tuple[object, ...]:
    return store.read(session).frames if store.exists(session) else ()


@pytest.mark.anyio
async def test_nothing_is_under_way_when_a_run_has_ended(tmp_path: Path) -> None:
    agent = Agent(
        "a", model=script_file(tmp_path / "m.json", {"calls": [call("look"), call("wait")]}, {"text": "done"}), tools=[look, wait]
    )
    async with Runtime(agents=[agent], ground=ground()) as runtime:
        run = await runtime.session("s", agent=agent).send("go")
        assert not runtime.resources().none
        assert isinstance(await run.result(), Completed)
        await loop_turns()
        assert runtime.resources().none, runtime.resources()


@tool(effect="read")
def look() -> str:
    """In a thread."""
    return "seen"


@tool(effect="read")
async def wait() -> str:
    """In the loop."""
    await asyncio.sleep(0)
    return "waited"


@pytest.mark.anyio
async def test_a_deaf_thread_is_named_and_does_not_hold_anything_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (flight, threads):
        monkeypatch.setattr(module, "CANCEL_GRACE_SECONDS", 0.01)
    gate = threading.Event()

    @tool(effect="read", timeout=0.01)
    def sleep() -> str:
        """Deaf."""
        gate.wait()
        return "late"

    agent = Agent("a", model=script_file(tmp_path / "m.json", {"calls": [call("sleep")]}, {"text": "done"}), tools=[sleep])
    async with Runtime(agents=[agent], ground=ground()) as runtime:
        assert isinstance(await (await runtime.session("s", agent=agent).send("go")).result(), Completed)
        assert runtime.resources().threads == ("tool sleep",)
    assert runtime.stop_outcome is not None
    assert runtime.stop_outcome.deaf == ("tool sleep",)
    gate.set()


@pytest.mark.anyio
@pytest.mark.parametrize("interruptible", [False, True])
async def test_leaving_waits_for_a_call_that_may_not_be_interrupted_however_long_that_takes_and_says_so(
    interruptible: bool, tmp_path: Path
) -> None:
    """One that may be interrupted is the negative control."""
    begun, gate = asyncio.Event(), asyncio.Event()

    async def pay(_arguments: object, _call: object) -> str:
        begun.set()
        await gate.wait()
        return "paid"

    model = script_file(tmp_path / "m.json", {"calls": [call("pay")]}, {"text": "done"})
    agent = Agent("a", model=model, tools=[counting("pay", Effect.READ, behaviour=pay, interruptible=interruptible)])
    runtime = await Runtime(agents=[agent], ground=ground(), drain_seconds=0).__aenter__()
    await runtime.session("s", agent=agent).send("go")
    await begun.wait()
    leaving = asyncio.ensure_future(runtime.__aexit__(None, None, None))
    for _ in range(50):
        await loop_turns()
    assert leaving.done() is interruptible
    gate.set()
    await leaving
    for told in (Runtime.__doc__, Runtime.until_stopped.__doc__):
        assert "`interruptible=False`" in str(told)
