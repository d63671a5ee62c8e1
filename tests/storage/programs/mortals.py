"""Holders that are soon dead: for each line, a forked process opens the session, appends, says `open <pid> <fence>` and waits.

mortals ROOT SESSION: when a holder has ended, says `dead <exit code>`, and reads the next line. Nothing is flushed, since the
machine stays up.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path

from semel.adapters.file.store import FileStore
from semel.adapters.system import SystemClock
from semel.testing.conformance import records
from semel.testing.faults import FaultyDisk
from storage.logs import lineage_payload


async def hold(root: Path, session: str) -> None:
    writer = await FileStore(root, SystemClock(), known=frozenset(), disk=FaultyDisk()).open(session)
    await writer.append(records("x") if writer.head else [lineage_payload(session), *records("x")])
    print(f"open {os.getpid()} {writer.fence}", flush=True)
    signal.pause()


def main(root: str, session: str) -> None:
    for _ in sys.stdin:
        child = os.fork()
        if child == 0:
            asyncio.run(hold(Path(root), session))
        _, status = os.waitpid(child, 0)
        print(f"dead {os.waitstatus_to_exitcode(status)}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
