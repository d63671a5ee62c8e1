"""A process that opens a session again and again, and proves with an exclusive file that nobody else holds it meanwhile.

racer ROOT SESSION WINS EVERY: stops after that many turns at the lease, and appends at every so manyth; prints
`won <turns> busy <refusals> records <seq,...>`.
"""

import asyncio
import os
import sys
from pathlib import Path

from semel.adapters.file.store import FileStore
from semel.adapters.system import SystemClock
from semel.errors import SessionBusy
from semel.testing.conformance import records
from storage.logs import lineage_payload


async def main(root: str, session: str, wins: str, every: str) -> None:
    store = FileStore(Path(root), SystemClock(), known=frozenset())
    marker = Path(root) / "held"
    won, busy, seqs = 0, 0, []
    while won < int(wins):
        try:
            writer = await store.open(session)
        except SessionBusy:
            busy += 1
            await asyncio.sleep(0)
            continue
        os.close(os.open(marker, os.O_CREAT | os.O_EXCL))  # FileExistsError: two holders at once
        if won % int(every) == 0:
            batch = records(f"{os.getpid()}") if writer.frames else [lineage_payload(session), *records(f"{os.getpid()}")]
            seqs += [frame.seq for frame in await writer.append(batch)]
        marker.unlink()
        await writer.close()
        won += 1
    print(f"won {won} busy {busy} records {','.join(map(str, seqs))}", flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
