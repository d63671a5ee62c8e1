"""A process that opens a session again and again, and proves with an exclusive file that nobody else holds it meanwhile.

racer ROOT SESSION WINS EVERY SYNCS [FAULT]: says `ready`, waits for a line, and stops after that many turns at the lease. At
every so manyth it appends, waits until somebody was refused, and looks whether a byte of the state changed meanwhile. Says in the
end `won <turns> busy <refusals> watched <looks behind a refusal> records <seq,...>`, or at once what is wrong: `two holders`,
`changed <files>`, or the code of an error.

With SYNCS `unsynced` nothing is flushed, which changes nothing as long as the machine is up, and takes a fraction of the time.
FAULT is a planted one: `writes to the log`, `stamps the lease`, `makes a file`, each where it is refused, or `has no locks`.
"""

import asyncio
import os
import sys
from pathlib import Path

from semel.adapters.file.disk import Disk
from semel.adapters.file.locks import OpenFileLocks
from semel.adapters.file.store import FileStore
from semel.adapters.system import SystemClock
from semel.errors import SemelError, SessionBusy
from semel.testing.conformance import records
from storage.logs import lineage_payload


class NoLocks(OpenFileLocks):
    """Excludes nobody: the planted fault."""

    def lock(self, fd: int) -> bool:
        """Always yes."""
        return True


class Unsynced(Disk):
    """Flushes nothing."""

    def sync(self, fd: int) -> None:
        """Nothing."""

    def sync_directory(self, fd: int) -> None:
        """Nothing."""


class Race:
    """What racers know of each other, beside the state: who takes part, who holds, and how many were refused."""

    def __init__(self, root: Path) -> None:
        self.place = root.with_name(f"{root.name}-race")
        self.place.mkdir(exist_ok=True)
        (self.place / f"{os.getpid()}.racing").touch()

    def hold(self) -> None:
        """Raises FileExistsError where there are two holders at once."""
        os.close(os.open(self.place / "held", os.O_CREAT | os.O_EXCL))

    def let_go(self) -> None:
        (self.place / "held").unlink()

    def refused(self) -> None:
        with (self.place / "refused").open("ab") as count:
            count.write(b".")

    def refusals(self) -> int:
        count = self.place / "refused"
        return count.stat().st_size if count.exists() else 0

    async def until_refused(self) -> bool:
        """Wait until one more was refused; False if nobody else takes part any more."""
        before = self.refusals()
        while self.refusals() == before:
            if len(list(self.place.glob("*.racing"))) < 2:
                return False
            await asyncio.sleep(0.0005)
        return True

    def leave(self) -> None:
        (self.place / f"{os.getpid()}.racing").unlink()


def state_of(root: Path) -> dict[str, tuple[bytes, int, int]]:
    """Every file of the state: its bytes, which file it is, and when it was last written, be it with the same bytes."""
    found = {}
    for path in root.rglob("*"):
        if path.is_file():
            status = path.stat()
            found[str(path.relative_to(root))] = path.read_bytes(), status.st_ino, status.st_mtime_ns
    return found


def spoil(fault: str, place: Path, number: int) -> None:
    """What a loser must not do."""
    if fault == "writes to the log":
        with (place / "wal.log").open("ab") as log:
            log.write(b"x")
    elif fault == "stamps the lease":
        (place / "lease").write_bytes((place / "lease").read_bytes())
    elif fault == "makes a file":
        (place / f"refused-{number}").touch()


async def turns(store: FileStore, race: Race, session: str, wins: int, every: int, fault: str) -> str:
    """Race, and what is then said."""
    won, busy, watched, seqs, name = 0, 0, 0, list[int](), f"{os.getpid()}"
    while won < wins:
        try:
            writer = await store.open(session)
        except SessionBusy:
            busy += 1
            spoil(fault, store.path / "sessions" / session, busy)
            race.refused()
            await asyncio.sleep(0.0001)
            continue
        race.hold()
        if won % every == 0:
            batch = records(name) if writer.frames else [lineage_payload(session), *records(name)]
            seqs += [frame.seq for frame in await writer.append(batch)]
            before = state_of(store.path)
            watched += await race.until_refused()
            after = state_of(store.path)
            if after != before:
                return f"changed {' '.join(sorted(path for path in {*before, *after} if before.get(path) != after.get(path)))}"
        race.let_go()
        await writer.close()
        won += 1
    return f"won {won} busy {busy} watched {watched} records {','.join(map(str, seqs))}"


async def main(root: str, session: str, wins: str, every: str, syncs: str, fault: str = "") -> None:
    disk = (Unsynced if syncs == "unsynced" else Disk)(NoLocks() if fault == "has no locks" else None)
    store, race = FileStore(Path(root), SystemClock(), known=frozenset(), disk=disk), Race(Path(root))
    print("ready", flush=True)
    sys.stdin.readline()
    try:
        said = await turns(store, race, session, int(wins), int(every), fault)
    except FileExistsError:
        said = "two holders"
    except SemelError as error:
        said = error.code
    finally:
        race.leave()
    print(said, flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
