"""Processes of a call: how they are known again, and how all of them are ended (A15, B37, TOOL-3, TOOL-5).

A process is known by pid, start time and boot, never by pid alone. The processes of a call are its process group and
session, all their descendants, and whatever else carries the call's key in its environment, since a child may have left
the group. Where there is no /proc (macOS), only the group is known, and nothing by its key alone.
"""

import contextlib
import errno
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from semel.ports.tool import ProcessMark
from semel.ports.world import Clock

CALL_KEY_VARIABLE = "SEMEL_CALL_KEY"
POLL_SECONDS = 0.02
KILL_SECONDS_MAX = 5.0  # how long a killed process may take to be gone before it counts as one that cannot be ended

_PROC = Path("/proc")
_HAS_PROC = (_PROC / "self" / "stat").exists()


class Process(NamedTuple):
    """One line of the process table. `started` is in clock ticks since boot."""

    pid: int
    state: str
    parent: int
    group: int
    session: int
    started: int


def mark_process(pid: int, call_key: str) -> ProcessMark:
    """The mark of a child that was just started and is not yet waited for."""
    return ProcessMark(pid=pid, started=_started(pid) or 0, boot=boot_identity(), call_key=call_key)


def boot_identity() -> str:
    """What tells this boot of the machine from all others."""
    if _HAS_PROC:
        return (_PROC / "sys/kernel/random/boot_id").read_text().strip()
    return _ask("sysctl", "-n", "kern.bootsessionuuid")


def wait_for_exit(process: "subprocess.Popen[bytes]") -> int:
    """Block until the process ends; its exit code, or minus the signal that ended it.

    On Linux the process stays a zombie, so that its pid and group cannot be given to others before all is cleaned up.
    Raises ChildProcessError if somebody else took the status.
    """
    if not hasattr(os, "waitid"):
        return process.wait()
    ended = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    if ended is None:
        raise ChildProcessError(process.pid)
    return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status


async def end_processes(mark: ProcessMark, *, clock: Clock, grace_seconds: float) -> bool:
    """Ask all processes of the call to end, then kill them; True if there were any.

    `grace_seconds` lie between the two at most. If that wait is cancelled, they are killed at once.
    """
    if mark.pid and mark.boot != boot_identity():
        return False
    found = False
    try:
        found = _signal_all(mark, signal.SIGTERM)
        await _wait_until_gone(mark, clock, grace_seconds)
    finally:
        remain = _signal_all(mark, signal.SIGKILL)
    deadline = clock.monotonic() + KILL_SECONDS_MAX
    while remain and clock.monotonic() < deadline:
        await clock.sleep(POLL_SECONDS)
        remain = _signal_all(mark, signal.SIGKILL)
    return found


def is_running(mark: ProcessMark) -> bool:
    """Whether any process of the call still runs."""
    return any(members(mark)) if _HAS_PROC else _signal_group(mark, 0)


def members(mark: ProcessMark) -> list[Process]:
    """All processes of the call that run now, as far as /proc tells; our own process is never one."""
    table = {process.pid: process for process in _process_table()}
    root = table.get(mark.pid)
    # As long as the leader exists, if only as a zombie, its pid names this group and no other.
    leads = root is not None and root.started == mark.started
    found = {
        process.pid
        for process in table.values()
        if (leads and mark.pid in (process.group, process.session)) or _carries(process, mark)
    }
    while more := {process.pid for process in table.values() if process.parent in found} - found:
        found |= more
    return [table[pid] for pid in found if table[pid].state not in "ZX" and pid != os.getpid()]


async def _wait_until_gone(mark: ProcessMark, clock: Clock, seconds: float) -> None:
    deadline = clock.monotonic() + seconds
    while is_running(mark) and clock.monotonic() < deadline:
        await clock.sleep(POLL_SECONDS)


def _signal_all(mark: ProcessMark, number: int) -> bool:
    """Send a signal to every process of the call; True if there were any."""
    if not _HAS_PROC:
        return _signal_group(mark, number)
    found = members(mark)
    for process in found:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            _signal(process, number)
    return bool(found)


def _signal(process: Process, number: int) -> None:
    """Send a signal to this process, never to one that has its pid by now."""
    try:
        handle = os.pidfd_open(process.pid)
    except OSError as error:
        if error.errno not in (errno.ENOSYS, errno.EPERM):
            raise
        if _started(process.pid) == process.started:  # an old kernel or a sandbox: the best that is left
            os.kill(process.pid, number)
        return
    try:
        if _started(process.pid) == process.started:  # asked while the handle keeps the pid from meaning another
            signal.pidfd_send_signal(handle, number)
    finally:
        os.close(handle)


def _signal_group(mark: ProcessMark, number: int) -> bool:
    if _started(mark.pid) != mark.started:
        return False
    try:
        os.killpg(mark.pid, number)
    except (ProcessLookupError, PermissionError):  # macOS says EPERM for a group of zombies
        return False
    return True


def _carries(process: Process, mark: ProcessMark) -> bool:
    """Whether it started after the call's process with the call's key in its environment."""
    if mark.call_key is None or process.started < mark.started:
        return False
    try:
        environment = (_PROC / str(process.pid) / "environ").read_bytes()
    except OSError:  # it ended, or it is somebody else's
        return False
    return f"{CALL_KEY_VARIABLE}={mark.call_key}".encode() in environment.split(b"\0")


def _process_table() -> Iterator[Process]:
    for entry in _PROC.iterdir():
        if entry.name.isdigit() and (process := _read_process(int(entry.name))) is not None:
            yield process


def _read_process(pid: int) -> Process | None:
    try:
        line = (_PROC / str(pid) / "stat").read_bytes()
    except OSError:  # it ended meanwhile
        return None
    # The name, in parentheses, may hold anything; the fields start behind its last one.
    state, parent, group, session, *others = line[line.rindex(b")") + 2 :].split()
    return Process(pid, state.decode(), int(parent), int(group), int(session), int(others[15]))


def _started(pid: int) -> int | None:
    if _HAS_PROC:
        process = _read_process(pid)
        return None if process is None else process.started
    told = _ask("ps", "-o", "lstart=", "-p", str(pid))
    return int(time.mktime(time.strptime(told, "%a %b %d %H:%M:%S %Y"))) if told else None


def _ask(*argv: str) -> str:
    environment: Mapping[str, str] = {"LC_ALL": "C", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
    return subprocess.run(argv, capture_output=True, env=environment, text=True, check=False).stdout.strip()  # noqa: S603 - fixed words and a number
