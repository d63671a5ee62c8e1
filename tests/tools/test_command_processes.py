"""No process of a call is left behind, and none but those of the call is touched (B37, A15, TOOL-3, TOOL-5).

Linux only: elsewhere semel knows the process group of a call and no more.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tool_support import DATA, SystemClock, a_call, alive, first_lines, make_fifos

from semel.adapters.tools.command import CommandDeclaration, CommandTool
from semel.adapters.tools.execution import PIPE_GRACE_SECONDS
from semel.adapters.tools.processes import end_processes, is_running
from semel.errors import OutcomeUnknown
from semel.ports.roster import ROSTER
from semel.ports.tool import ProcessMark
from semel.ports.world import Clock

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(
        not sys.platform.startswith("linux"), reason="needs /proc: processes that left their group are found there"
    ),
]

GRACE_SECONDS = 0.3
TREE_SIZE_MIN = 5  # of B37-spawn.sh: the shell, its sleep, the deaf child in its own session, that one's date, the orphan


def spawner(*, clock: Clock | None = None) -> CommandTool:
    declaration = CommandDeclaration(command=("sh", "B37-spawn.sh", "{marker}"), args={"marker": "string"})
    return CommandTool("spawn", declaration, directory=DATA, clock=clock or SystemClock(), grace_seconds=GRACE_SECONDS)


def holder(*, clock: Clock | None = None) -> CommandTool:
    declaration = CommandDeclaration(command=("sh", "B37-pipe-holder.sh"))
    return CommandTool("hold", declaration, directory=DATA, clock=clock or SystemClock(), grace_seconds=GRACE_SECONDS)


def unused(name: str) -> str:
    """A call key that no other run of the tests uses."""
    return f"{name}-{os.getpid()}"


async def start_tree(directory: Path, key: str, marks: list[ProcessMark]) -> "asyncio.Task[Any]":
    """Run B37-spawn.sh until all of its processes have shown themselves."""
    fifos = make_fifos(directory)
    task = asyncio.create_task(spawner().run({"marker": str(fifos[0])}, a_call(key, spawned=marks.append)))
    await first_lines(*fifos)
    return task


async def test_b37_cancelling_ends_the_whole_tree_and_then_goes_on(tmp_path: Path) -> None:
    key, marks = unused("cancel"), list[ProcessMark]()
    task = await start_tree(tmp_path, key, marks)
    before = alive(key)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    print(f"{len(before)} processes before the cancel, {len(alive(key))} after it")
    assert len(before) >= TREE_SIZE_MIN - 1  # `date` comes and goes
    assert alive(key) == {}
    assert not is_running(marks[0])


async def test_b37_a_second_cancel_does_not_stop_the_clean_up(tmp_path: Path) -> None:
    key = unused("twice")
    task = await start_tree(tmp_path, key, [])
    for _ in range(5):
        task.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert alive(key) == {}


@pytest.mark.parametrize(
    ("code", "state"),
    [
        ("trap '' TERM INT HUP; echo up > {fifo}; while :; do sleep 1; done", "S"),
        ("echo up > {fifo}; kill -STOP $$", "T"),
        ("(trap '' TERM; (setsid sleep 300 &) ; exec sleep 300) & echo up > {fifo}; wait", "S"),
    ],
    ids=["deaf to TERM", "stopped", "forked twice"],
)
async def test_a_child_that_does_not_want_to_end_is_killed(tmp_path: Path, code: str, state: str) -> None:
    key, marks, fifo = unused("deaf"), list[ProcessMark](), tmp_path / "up"
    os.mkfifo(fifo)
    declaration = CommandDeclaration(command=("sh", "-c", code.replace("{fifo}", str(fifo))))
    found = CommandTool("deaf", declaration, directory=DATA, clock=SystemClock(), grace_seconds=0.05)
    task = asyncio.create_task(found.run({}, a_call(key, spawned=marks.append)))
    await first_lines(fifo)
    while Path(f"/proc/{marks[0].pid}/stat").read_text().rpartition(")")[2].split()[0] != state:
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert alive(key) == {}


async def test_b37_only_the_tree_of_the_cancelled_call_is_ended(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    one, two = unused("one"), unused("two")
    tasks = [await start_tree(tmp_path / "one", one, []), await start_tree(tmp_path / "two", two, [])]
    tasks[0].cancel()
    await asyncio.gather(tasks[0], return_exceptions=True)
    assert alive(one) == {}
    assert len(alive(two)) >= TREE_SIZE_MIN - 1
    tasks[1].cancel()
    await asyncio.gather(tasks[1], return_exceptions=True)
    assert alive(two) == {}


async def test_a_call_whose_start_cannot_be_noted_is_ended_and_its_outcome_is_unknown(tmp_path: Path) -> None:
    key, fifos = unused("unnoted"), make_fifos(tmp_path)

    def refuse(_mark: ProcessMark) -> None:
        raise OSError("the log is full")

    with pytest.raises(OutcomeUnknown, match="started and then ended again: OSError: the log is full"):
        await spawner().run({"marker": str(fifos[0])}, a_call(key, spawned=refuse))
    assert alive(key) == {}


async def test_b37_a_background_process_that_holds_the_pipe_is_not_waited_for() -> None:
    key, marks = unused("holder"), list[ProcessMark]()
    told = await holder().run({}, a_call(key, spawned=marks.append))
    assert told == "done\n[a background process holds the output open; what it writes from now on is lost]"
    assert len(alive(key)) == 1, "it is the command's own doing that it runs on"
    named = f"sh (pid {marks[0].pid})"
    assert named in ROSTER.names("process"), "it is named for as long as it does"
    assert await holder().end_leftovers(marks[0])
    assert alive(key) == {}
    assert named not in ROSTER.names("process"), "and no longer"


class HeldClock(SystemClock):
    """A clock on which the wait for the pipes never ends by itself."""

    def __init__(self) -> None:
        self.waiting = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        if seconds == PIPE_GRACE_SECONDS:
            self.waiting.set()
            await asyncio.Event().wait()
        await super().sleep(seconds)


async def test_a_cancel_after_the_exit_keeps_the_known_outcome_and_ends_what_is_left() -> None:
    key, clock = unused("late"), HeldClock()
    task = asyncio.create_task(holder(clock=clock).run({}, a_call(key)))
    await clock.waiting.wait()
    assert len(alive(key)) == 1
    task.cancel()
    assert str(await task).startswith("done\n")
    assert alive(key) == {}


RUNTIME = """
import asyncio, sys
import msgspec
sys.path.insert(0, sys.argv[1])
from test_command_processes import spawner
from tool_support import a_call

def noted(mark):
    print(msgspec.json.encode(mark).decode(), flush=True)

asyncio.run(spawner().run({"marker": sys.argv[2]}, a_call(sys.argv[3], spawned=noted)))
"""


async def kill_a_runtime(directory: Path, key: str) -> ProcessMark:
    """Start a runtime with a call in it, kill the runtime with SIGKILL, and return what it had noted of the call."""
    fifos = make_fifos(directory)
    command = [sys.executable, "-c", RUNTIME, str(Path(__file__).parent), str(fifos[0]), key]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as runtime:
        assert runtime.stdout is not None
        line = await asyncio.to_thread(runtime.stdout.readline)
        await first_lines(*fifos)
        runtime.kill()
        assert await asyncio.to_thread(runtime.wait) == -signal.SIGKILL
    return msgspec.json.decode(line, type=ProcessMark)


async def test_b37_what_a_killed_runtime_left_running_is_found_and_ended(tmp_path: Path) -> None:
    key = unused("killed")
    mark = await kill_a_runtime(tmp_path, key)
    before = alive(key)
    assert await spawner().end_leftovers(mark)
    print(f"{len(before)} processes outlived their runtime, {len(alive(key))} outlived end_leftovers")
    assert len(before) >= TREE_SIZE_MIN - 1
    assert alive(key) == {}
    assert not await spawner().end_leftovers(mark), "asked again, there is nothing to end"


async def test_leftovers_are_found_when_the_first_process_is_gone(tmp_path: Path) -> None:
    key = unused("orphans")
    mark = await kill_a_runtime(tmp_path, key)
    os.kill(mark.pid, signal.SIGKILL)
    while is_running_pid(mark.pid):
        await asyncio.sleep(0)
    assert len(alive(key)) >= TREE_SIZE_MIN - 2
    assert await spawner().end_leftovers(mark)
    assert alive(key) == {}


async def test_leftovers_are_found_by_their_key_when_nobody_wrote_down_the_process(tmp_path: Path) -> None:
    key = unused("unmarked")
    await kill_a_runtime(tmp_path, key)
    assert len(alive(key)) >= TREE_SIZE_MIN - 1
    assert await spawner().end_leftovers(ProcessMark(pid=0, started=0, boot="", call_key=key))
    assert alive(key) == {}


def is_running_pid(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


async def test_a_process_is_never_ended_by_its_pid_alone() -> None:
    with subprocess.Popen(["sleep", "300"], start_new_session=True) as innocent:
        true = ProcessMark(pid=innocent.pid, started=started_of(innocent.pid), boot=boot(), call_key=None)
        wrong = {
            "another start": msgspec.structs.replace(true, started=true.started - 1),
            "a later start": msgspec.structs.replace(true, started=true.started + 1),
            "another boot": msgspec.structs.replace(true, boot="0" * 36),
            "a key that nobody carries": msgspec.structs.replace(true, started=1, call_key=unused("nobody")),
        }
        for why, mark in wrong.items():
            assert not await spawner().end_leftovers(mark), why
            assert innocent.poll() is None, why
        assert await end_processes(true, clock=SystemClock(), grace_seconds=GRACE_SECONDS)
        assert innocent.wait() == -signal.SIGTERM


def started_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])


def boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


async def test_no_child_of_ours_is_left_as_a_zombie() -> None:
    marks: list[ProcessMark] = []
    declaration = CommandDeclaration(command=("true",))
    found = CommandTool("true", declaration, directory=DATA, clock=SystemClock())
    for _ in range(20):
        await found.run({}, a_call(spawned=marks.append))
    assert len({mark.pid for mark in marks}) == 20
    with pytest.raises(ChildProcessError):
        os.waitpid(marks[-1].pid, os.WNOHANG)
    assert not [mark for mark in marks if Path(f"/proc/{mark.pid}").exists() and started_of(mark.pid) == mark.started]


async def test_no_descriptor_is_left_open() -> None:
    declaration = CommandDeclaration(command=("echo", "hi"))
    found = CommandTool("echo", declaration, directory=DATA, clock=SystemClock())
    missing = CommandTool("gone", CommandDeclaration(command=("./gone",)), directory=DATA, clock=SystemClock())
    await found.run({}, a_call())
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        await found.run({}, a_call())
        await asyncio.gather(missing.run({}, a_call()), return_exceptions=True)
    assert len(os.listdir("/proc/self/fd")) == before


async def test_many_commands_run_beside_each_other() -> None:
    declaration = CommandDeclaration(command=("echo", "{text}"), args={"text": "string"})
    found = CommandTool("echo", declaration, directory=DATA, clock=SystemClock())
    told = await asyncio.gather(*(found.run({"text": str(number)}, a_call(f"key-{number}")) for number in range(40)))
    assert told == [str(number) for number in range(40)]


FLOOD = """
import asyncio, resource, sys
sys.path.insert(0, sys.argv[1])
from tool_support import DATA, SystemClock, a_call
from semel.adapters.tools.command import CommandDeclaration, CommandTool

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

async def main():
    small, large = (
        CommandTool("flood", CommandDeclaration(command=("head", "-c", size, "/dev/zero")), directory=DATA, clock=SystemClock())
        for size in ("1M", "1G")
    )
    await small.run({}, a_call())
    before = peak()
    told = await large.run({}, a_call())
    print(peak() - before, len(told))

asyncio.run(main())
"""


@pytest.mark.prove
def test_a_gibibyte_on_one_line_takes_bounded_memory() -> None:
    command = [sys.executable, "-c", FLOOD, str(Path(__file__).parent)]
    grown_kib, length = map(int, subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())
    print(f"1 GiB of output: {grown_kib} KiB more memory, {length} characters kept")
    assert grown_kib < 8 * 1024
    assert length < 66_000


def test_a_mark_survives_its_encoding() -> None:
    mark = ProcessMark(pid=1, started=2, boot="b", call_key="k")
    assert msgspec.json.decode(msgspec.json.encode(mark), type=ProcessMark) == mark
    old = json.dumps({"pid": 1, "started": 2, "boot": "b"})
    assert msgspec.json.decode(old, type=ProcessMark) == ProcessMark(pid=1, started=2, boot="b")
