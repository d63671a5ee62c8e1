"""A tool on the event loop that ignores its cancellation is named, and keeps no process from ending, whoever owns the loop."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.engine.fakes import call, script_file
from tests.faces.support import Shop

EXIT_SECONDS_MOST = 30
STAYS_SECONDS = 1.0
NAMED = "did not end when told to, and is not waited for: tool pay"
# How long a deaf tool is waited for is cut down, so that this test takes less time.
AGENT = """\
import asyncio
import os

from semel import Agent, tool
from semel.adapters.tools import threads
from semel.engine import flight
from semel.faces import own_loop

flight.CANCEL_GRACE_SECONDS = threads.CANCEL_GRACE_SECONDS = own_loop.ENDING_SECONDS_MOST = 0.05
if "PLANTED" in os.environ:
    own_loop._ended = lambda: asyncio.sleep(0, True)  # takes all for ended, and closes the loop as asyncio.run does


@tool(timeout=0.05)
async def pay() -> str:
    "Deaf."
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass


agent = Agent("a", model="{model}", tools=[pay])
"""
IN_A_THREAD = (
    AGENT.replace("async def pay() -> str:", "def pay() -> str:")
    .replace("try:\n            await asyncio.Event().wait()", "try:\n            threading.Event().wait()")
    .replace("import os\n", "import os\nimport threading\n")
)
SERVICE = """\
import asyncio

from deaf import agent
from semel import Runtime


async def serve() -> str:
    async with Runtime("state", agents=[agent]) as runtime:
        result = await (await runtime.session("s", agent=agent).send("go")).result()
    return f"{result.reason} {runtime.stop_outcome.deaf}"


print(asyncio.run(serve()))
"""
SYNC = """\
from deaf import agent
from semel import run_sync

raise SystemExit(3 if run_sync(agent, "go").reason == "interrupted" else 1)
"""
COMMANDS = {
    "run": ["-m", "semel", "run", "--agent", "deaf:agent", "go"],
    "chat": ["-m", "semel", "chat", "--agent", "deaf:agent"],
    "run_sync": ["-c", SYNC],
}


@pytest.fixture(params=COMMANDS)
def words(request: pytest.FixtureRequest, tmp_path: Path) -> list[str]:
    model = script_file(tmp_path / "m.json", {"calls": [call("pay")]}, {"text": "done"})
    (tmp_path / "deaf.py").write_text(AGENT.replace("{model}", model))
    return COMMANDS[request.param]


def start(words: list[str], place: Path, **variables: str) -> "subprocess.Popen[str]":
    process = subprocess.Popen(
        [sys.executable, *words],
        cwd=place,
        env=Shop(place).environment(variables),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()
    return process


def test_a_process_with_a_deaf_tool_names_it_and_exits_with_the_code_of_its_run(words: list[str], tmp_path: Path) -> None:
    process = start(words, tmp_path)
    _, err = process.communicate(timeout=EXIT_SECONDS_MOST)
    assert process.returncode == 3, err
    assert NAMED in err
    assert "destroyed" not in err
    assert "Traceback" not in err


def test_canary_an_event_loop_that_waits_for_all_that_was_cancelled_never_ends(words: list[str], tmp_path: Path) -> None:
    process = start(words, tmp_path, PLANTED="1")
    assert process.stdin is not None
    process.stdin.close()
    assert process.stderr is not None
    try:
        assert any(NAMED in line for line in process.stderr)  # it is done with everything but the tool
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(STAYS_SECONDS)
    finally:
        process.kill()
        process.wait()
        process.stderr.close()
        assert process.stdout is not None
        process.stdout.close()


def test_a_service_whose_plain_function_hears_nothing_names_its_thread_and_ends(tmp_path: Path) -> None:
    model = script_file(tmp_path / "m.json", {"calls": [call("pay")]}, {"text": "done"})
    (tmp_path / "deaf.py").write_text(IN_A_THREAD.replace("{model}", model))
    out, err = start(["-c", SERVICE], tmp_path).communicate(timeout=EXIT_SECONDS_MOST)
    assert (out, err) == ("interrupted ('tool pay',)\n", "")
