"""One run of a child process: started, read, waited for, and cleaned up whatever happens (B37, A14, A15)."""

import asyncio
import contextlib
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from semel.adapters.tools.capture import Capture, PipeReader
from semel.adapters.tools.processes import KILL_SECONDS_MAX, end_processes, is_running, mark_process, wait_for_exit
from semel.adapters.tools.threads import in_daemon_thread
from semel.adapters.tools.waits import undisturbed, within
from semel.core.outcomes import describe
from semel.errors import CallNotSent, OutcomeUnknown
from semel.ports.roster import ROSTER
from semel.ports.tool import ProcessMark
from semel.ports.world import Clock

PIPE_GRACE_SECONDS = 0.25  # between the end of the child and no longer waiting for other writers of its output


@dataclass(frozen=True, kw_only=True)
class Ended:
    """A child that has ended. `code` is its exit code, or minus the signal that ended it.

    `held` says that another process still holds its output open.
    """

    code: int
    stdout: str
    stderr: str
    held: bool = False


@dataclass(frozen=True, kw_only=True)
class Command:
    """What to run for which call. `argv[0]` is a path or a name to be found on the child's own PATH.

    `declared` are the variables of the environment that the operator handed over by name: what they hold may be secret.
    """

    argv: Sequence[str]
    directory: Path
    environment: Mapping[str, str]
    call_key: str
    output_bytes_max: int
    grace_seconds: float
    declared: Sequence[str] = ()


async def execute(command: Command, *, clock: Clock, spawned: Callable[[ProcessMark], None]) -> Ended:
    """Run it to the exit of the child itself, which need not be the end of its output.

    `spawned` is told at once how to find the child again. Cancelling ends every process of the call before the cancel goes
    on; one that comes after the exit ends what is left, but does not go on, since the outcome is known by then (HAZ8).
    Raises CallNotSent if the child could not be started, OutcomeUnknown for whatever goes wrong after that.
    """
    captures = Capture(command.output_bytes_max), Capture(command.output_bytes_max // 4)
    process, readers = _start(command, captures)
    exited = asyncio.ensure_future(in_daemon_thread(partial(wait_for_exit, process), name=f"wait for {process.pid}"))
    mark = mark_process(process.pid, command.call_key)
    entry = ROSTER.enter("process", f"{command.argv[0]} (pid {process.pid})")
    try:
        try:
            spawned(mark)
            code = await asyncio.shield(exited)
        except ChildProcessError as error:
            raise OutcomeUnknown("another part of this process took the exit status of the command") from error
        except (asyncio.CancelledError, Exception) as error:
            await undisturbed(_end(mark, exited, clock, command.grace_seconds))
            if is_running(mark):
                raise OutcomeUnknown("a process of the command could not be ended and may still run") from error
            if isinstance(error, asyncio.CancelledError):
                raise
            raise OutcomeUnknown(f"the command was started and then ended again: {describe(error)}") from error
        try:
            held = await _still_open(readers, clock)
        except asyncio.CancelledError:
            held = await undisturbed(_end(mark, exited, clock, command.grace_seconds))
        return Ended(code=code, stdout=captures[0].text, stderr=captures[1].text, held=held)
    finally:
        for reader in readers:
            reader.close()
        if exited.done():
            process.poll()  # the zombie has kept the pid ours; now it can go
        ROSTER.leave(entry, partial(is_running, mark))  # one that cannot be ended is named where a runtime is left


def _start(command: Command, captures: tuple[Capture, Capture]) -> tuple["subprocess.Popen[bytes]", list[PipeReader]]:
    """Start the child in a session of its own, with a pipe for each of the two things that it writes."""
    readers: list[PipeReader] = []
    with contextlib.ExitStack() as writing_ends:
        try:
            stdout, stderr = (_pipe(capture, readers, writing_ends) for capture in captures)
            process = subprocess.Popen(  # noqa: S603 - an operator's argument list, no shell (A16)
                command.argv,
                cwd=command.directory,
                env=command.environment,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:  # not found, not executable, too long, NUL in an argument: nothing ran
            for reader in readers:
                reader.close()
            raise CallNotSent(f"the command could not be started: {describe(error)}") from error
    return process, readers


def _pipe(capture: Capture, readers: list[PipeReader], writing_ends: contextlib.ExitStack) -> int:
    """The writing end of a new pipe; whoever reads it is ready before there is a child."""
    reading, writing = os.pipe()
    writing_ends.callback(os.close, writing)
    readers.append(PipeReader(reading, capture.add))
    return writing


async def _end(mark: ProcessMark, exited: "asyncio.Future[int]", clock: Clock, grace_seconds: float) -> bool:
    found = await end_processes(mark, clock=clock, grace_seconds=grace_seconds)
    await within(KILL_SECONDS_MAX, [exited], clock)
    return found


async def _still_open(readers: Sequence[PipeReader], clock: Clock) -> bool:
    """Read what the ended child has left; whether some other process keeps a pipe open beyond a moment."""
    for reader in readers:
        reader.drain()
    await within(PIPE_GRACE_SECONDS, [reader.ended for reader in readers], clock)
    return not all(reader.ended.done() for reader in readers)
