"""A process that opens a session and writes to it until it is killed or done: writer ROOT SESSION; says `done` at the end."""

import asyncio
import sys
from pathlib import Path

from semel.adapters.file.store import FileStore
from semel.adapters.system import SystemClock
from semel.testing.conformance import records
from semel.testing.faults import KillingDisk
from storage.logs import lineage_payload


async def main(root: str, session: str) -> None:
    store = FileStore(Path(root), SystemClock(), known=frozenset(), disk=KillingDisk.from_environment())
    writer = await store.open(session)
    if not writer.frames:
        await writer.append([lineage_payload(session), *records("first")])
    for turn in range(4):
        writer.note(records(f"noted {turn}"))
        frames = await writer.append(records(f"a {turn}", f"b {turn}"))
        if turn % 2:
            writer.publish_status(b'{"head_seq":%d}' % frames[-1].seq)
    await writer.close()
    print("done", flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
