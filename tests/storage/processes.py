"""Real processes for tests: started with this interpreter, spoken to by lines, ended by their own pid."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import semel

TESTS = Path(__file__).parents[1]
SOURCE = Path(semel.__file__).parents[1]  # the child runs what this process runs, which may be a mutant


class Process:
    def __init__(self, program: str, *arguments: object, **environment: str) -> None:
        path = os.pathsep.join([str(TESTS), str(SOURCE)])
        self.child = subprocess.Popen(
            [sys.executable, "-m", f"storage.programs.{program}", *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment, "PYTHONPATH": path},
        )

    def hear(self) -> str:
        assert self.child.stdout is not None
        return self.child.stdout.readline().strip()

    def tell(self, line: str) -> None:
        assert self.child.stdin is not None
        self.child.stdin.write(line + "\n")
        self.child.stdin.flush()

    def ask(self, line: str) -> str:
        self.tell(line)
        return self.hear()

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.child.pid, number)

    def kill(self) -> None:
        if self.child.poll() is None:
            self.signal(signal.SIGKILL)
        self.child.wait(20)


@contextmanager
def process(program: str, *arguments: object, **environment: str) -> Iterator[Process]:
    started = Process(program, *arguments, **environment)
    try:
        yield started
    finally:
        started.kill()
        for stream in (started.child.stdin, started.child.stdout):
            assert stream is not None
            with suppress(BrokenPipeError):  # it died before it read
                stream.close()
