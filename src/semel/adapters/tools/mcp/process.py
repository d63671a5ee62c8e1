"""The process of an MCP server: started with three pipes in a session of its own, and ended with all that belongs to it (B37)."""

import asyncio
import contextlib
import os
import subprocess
from collections.abc import Mapping
from functools import partial

from semel.adapters.tools.capture import Capture, PipeReader
from semel.adapters.tools.execution import Command
from semel.adapters.tools.processes import KILL_SECONDS_MAX, end_processes, is_running, mark_process, wait_for_exit
from semel.adapters.tools.threads import in_daemon_thread
from semel.adapters.tools.waits import undisturbed, within
from semel.core.outcomes import describe
from semel.core.values import printable
from semel.errors import CallNotSent
from semel.ports.roster import ROSTER
from semel.ports.world import Clock

WORDS_CHARS_MAX = 300  # of its standard error, where it is told why it ended
SECRET_CHARS_MIN = 4  # a shorter value, such as the 1 of a switch, is no secret and stands in too many words


class ServerProcess:
    """A server that was started. `stdin` and `stdout` are descriptors that belong to whoever speaks with it."""

    def __init__(self, command: Command, clock: Clock) -> None:
        """Start it. Raises CallNotSent if it cannot be started."""
        self._clock = clock
        self._grace_seconds = command.grace_seconds
        self._errors = Capture(command.output_bytes_max)
        self._handed_over = {name: command.environment.get(name, "") for name in command.declared}
        self._process, self.stdin, self.stdout, reading = _start(command)
        self._stderr = PipeReader(reading, self._errors.add)
        self.mark = mark_process(self._process.pid, command.call_key)
        self._entry = ROSTER.enter("process", f"{command.argv[0]} (pid {self._process.pid})")
        waiting = in_daemon_thread(partial(wait_for_exit, self._process), name=f"wait for {self._process.pid}")
        self.exited = asyncio.ensure_future(waiting)
        self._ending: asyncio.Task[None] | None = None

    def fate(self) -> str:
        """How it ended, or that it has not, and its last words on standard error, without what it was handed over (A13)."""
        self._stderr.drain()
        if not self.exited.done():
            how = "closed its output"
        elif self.exited.exception() is not None:
            how = "ended, and another part of this process took its exit status"
        else:
            code = self.exited.result()
            how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
        said = printable(_without(self._errors.text, self._handed_over)[-WORDS_CHARS_MAX:], limit=WORDS_CHARS_MAX)
        return f"{how}; it had said: {said}" if said else how

    async def end(self, patience_seconds: float = 0.0) -> None:
        """End every process of it; one that exits by itself within `patience_seconds` is not asked. Not cut short by a cancel."""
        if self._ending is None:
            self._ending = asyncio.ensure_future(self._end(patience_seconds))
        await undisturbed(_awaited(self._ending))

    async def _end(self, patience_seconds: float) -> None:
        await within(patience_seconds, [self.exited], self._clock)
        await end_processes(self.mark, clock=self._clock, grace_seconds=self._grace_seconds)
        await within(KILL_SECONDS_MAX, [self.exited], self._clock)
        self._stderr.drain()
        self._stderr.close()
        if self.exited.done():
            self._process.poll()  # the zombie has kept the pid ours; now it can go
        ROSTER.leave(self._entry, partial(is_running, self.mark))  # one that cannot be ended is named where a runtime is left


def _without(text: str, handed_over: Mapping[str, str]) -> str:
    """The text with the names of variables in the places of what they hold, whole or one line of it. Before it is cut short."""
    held = {part: name for name, value in handed_over.items() for part in (value, *value.splitlines())}
    for part in sorted(held, key=len, reverse=True):  # one may be within another
        if len(part) >= SECRET_CHARS_MIN:
            text = text.replace(part, f"[{held[part]}]")
    return text


async def _awaited(task: "asyncio.Task[None]") -> None:
    await asyncio.wait({task})
    task.result()


def _start(command: Command) -> tuple["subprocess.Popen[bytes]", int, int, int]:
    """The child, and our ends of its three pipes."""
    with contextlib.ExitStack() as theirs, contextlib.ExitStack() as ours:
        pipes = [os.pipe() for _ in range(3)]
        for number, (reading, writing) in enumerate(pipes):
            mine, its = (writing, reading) if number == 0 else (reading, writing)
            theirs.callback(os.close, its)
            ours.callback(os.close, mine)
        try:
            process = subprocess.Popen(  # noqa: S603 - an operator's argument list, no shell (A16)
                command.argv,
                cwd=command.directory,
                env=command.environment,
                stdin=pipes[0][0],
                stdout=pipes[1][1],
                stderr=pipes[2][1],
                start_new_session=True,
            )
        except (OSError, ValueError) as error:  # not found, not executable, NUL in an argument: nothing ran
            raise CallNotSent(f"it could not be started: {describe(error)}") from error
        ours.pop_all()
    return process, pipes[0][1], pipes[1][0], pipes[2][0]
