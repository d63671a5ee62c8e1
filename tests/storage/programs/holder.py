"""A process that holds sessions and does what it is told on stdin, one word a line; answers each with one line.

holder ROOT SESSION: opens the session, says `open <fence>`, or the code of the error.
"""

import asyncio
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from semel.adapters.file.store import FileStore
from semel.adapters.system import SystemClock
from semel.errors import SemelError
from semel.testing.conformance import records
from semel.testing.faults import KillingDisk
from storage.logs import lineage_payload


def say(text: object) -> None:
    print(text, flush=True)


def _tool(*, close_fds: bool) -> int:
    """The pid of a process that outlives us, and is at work: within its exec it would still hold all that we hold."""
    program = [sys.executable, "-c", "import signal; print(flush=True); signal.pause()"]
    child = subprocess.Popen(program, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, close_fds=close_fds)
    assert child.stdout is not None
    child.stdout.readline()
    return child.pid


async def main(root: str, session: str) -> None:
    store = FileStore(Path(root), SystemClock(), known=frozenset(), disk=KillingDisk.from_environment())
    try:
        writer = await store.open(session)
    except SemelError as error:
        say(f"{error.code} {error}")
        return
    say(f"open {writer.fence}")
    for line in sys.stdin:
        word, _, rest = line.strip().partition(" ")
        try:
            if word == "append":
                batch = records(rest) if writer.frames or writer.head else [lineage_payload(session), *records(rest)]
                say(f"appended {(await writer.append(batch))[-1].seq}")
            elif word == "note":
                say(f"noted {writer.note(records(rest))[-1].seq}")
            elif word == "check":
                writer.check()
                say("held")
            elif word == "child":  # a tool that outlives us; it holds none of our descriptors
                say(f"child {_tool(close_fds=True)}")
            elif word == "leaky":  # a tool that is given every descriptor that can be given
                say(f"child {_tool(close_fds=False)}")
            elif word == "bequeath":  # and one that is given those that cannot, our lock's too: the planted fault
                for fd in range(3, 256):
                    with suppress(OSError):
                        os.set_inheritable(fd, True)
                say(f"child {_tool(close_fds=False)}")
            elif word == "fork":  # a copy of this process, with all that it holds
                forked = os.fork()
                if forked == 0:
                    signal.pause()
                say(f"child {forked}")
            elif word == "close":
                await writer.close()
                say("closed")
        except SemelError as error:
            say(f"{error.code} {error}")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
