"""A plain function as a tool: its thread is waited for behind a cancel, and keeps no process from ending."""

import asyncio
import dataclasses
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from tool_support import a_call

from semel.adapters.tools import threads
from semel.adapters.tools.function import tool
from semel.ports.roster import ROSTER

pytestmark = pytest.mark.anyio


class Slow:
    """A call of a sync function that is under way and has been cancelled; `release` lets the function return."""

    def __init__(self, value: Any = "in time") -> None:
        self.release = threading.Event()
        loop, started = asyncio.get_running_loop(), asyncio.Event()

        @tool
        def slow() -> Any:
            loop.call_soon_threadsafe(started.set)
            self.release.wait()
            return value

        self.cancelled = asyncio.Event()
        self.call = dataclasses.replace(a_call("slow-1"), cancelled=self.cancelled)
        self.task = asyncio.create_task(slow.run({}, self.call))
        self._started = started

    async def cancel(self) -> None:
        await self._started.wait()
        self.cancelled.set()
        self.task.cancel()
        await asyncio.sleep(0)


async def test_cancelling_abandons_a_sync_function_that_hears_nothing_within_the_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "CANCEL_GRACE_SECONDS", 0.01)
    slow = Slow()
    await slow.cancel()
    with pytest.raises(asyncio.CancelledError):
        await slow.task
    assert ROSTER.works_for("slow-1") == {"thread"}
    slow.release.set()
    while ROSTER.works_for("slow-1"):
        await asyncio.sleep(0.001)


async def test_a_sync_function_is_waited_for_within_the_grace_however_often_it_is_cancelled() -> None:
    slow = Slow()
    await slow.cancel()
    await slow.cancel()
    assert not slow.task.done()
    slow.release.set()
    assert await slow.task == "in time"


async def test_what_a_sync_function_returns_to_be_awaited_is_not_begun_behind_a_cancel() -> None:
    begun: list[str] = []

    async def act() -> None:
        begun.append("acts")

    slow = Slow(act())
    await slow.cancel()
    slow.release.set()
    with pytest.raises(asyncio.CancelledError):
        await slow.task
    assert begun == []


async def test_a_thread_that_cannot_be_started_works_for_no_call(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    @tool
    def act() -> None: ...

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        await act.run({}, a_call("never-1"))
    assert not ROSTER.works_for("never-1")


def test_a_deaf_function_does_not_keep_the_process_from_ending(tmp_path: Path) -> None:
    """Nor is it waited for until the end of its grace, where the event loop ends."""
    script = tmp_path / "deaf.py"
    script.write_text(
        "import asyncio, sys, threading\n"
        f"sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from tool_support import a_call\n"
        "from semel.adapters.tools import threads\n"
        "from semel.adapters.tools.function import tool\n"
        "started = threading.Event()\n"
        "@tool\n"
        "def deaf() -> None:\n"
        "    started.set()\n"
        "    threading.Event().wait()\n"
        "async def main():\n"
        "    task = asyncio.create_task(deaf.run({}, a_call()))\n"
        "    await asyncio.to_thread(started.wait)\n"
        "    task.cancel()\n"
        "    await asyncio.sleep(0)\n"
        "threads.CANCEL_GRACE_SECONDS = 1000.0\n"
        "asyncio.run(main())\n"
        "print('ended')\n"
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False, timeout=30)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ended\n", "")
