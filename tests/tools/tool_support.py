"""Shared by the tests of tools: a call, a clock, and an outside view of which processes belong to a call."""

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from semel.ports.tool import Call, ProcessMark

DATA = Path(__file__).parent / "data"


class SystemClock:
    """The real clocks."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def a_call(
    key: str = "key-1", *, deps: Any = None, arguments: Any = None, spawned: Callable[[ProcessMark], None] = lambda _mark: None
) -> Call[Any]:
    return Call(
        key=key,
        tool="tool",
        session="box",
        run_id="r1",
        step_id=1,
        ordinal=0,
        context={"tenant": "acme"},
        deps=deps,
        arguments=arguments,
        spawned=spawned,
    )


def alive(key: str) -> dict[int, str]:
    """pid -> start time of every process that carries the key in its environment and still runs; written apart from semel."""
    found = {}
    for entry in Path("/proc").iterdir():
        try:
            carries = f"SEMEL_CALL_KEY={key}\0".encode() in (entry / "environ").read_bytes()
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if carries and entry.name.isdigit() and int(entry.name) != os.getpid() and fields[0] not in "ZX":
            found[int(entry.name)] = fields[19]
    return found


def make_fifos(directory: Path) -> tuple[Path, Path]:
    """The two files to which the processes of B37-spawn.sh write their beats, as pipes that block them until they are read."""
    marker = directory / "beat"
    other = directory / "beat.2"
    os.mkfifo(marker)
    os.mkfifo(other)
    return marker, other


async def first_lines(*fifos: Path) -> None:
    """Return when something was written to every one of the pipes."""

    def read(fifo: Path) -> str:
        with fifo.open() as stream:
            return stream.readline()

    for line in await asyncio.gather(*(asyncio.to_thread(read, fifo) for fifo in fifos)):
        assert line
