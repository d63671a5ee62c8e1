"""One act on a state directory, in a process of its own that then says how much memory it took at most.

python -m tests.prove.programs.bounded ACT ROOT [TARGET]
"""

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path

from semel import wiring
from semel.engine.park import park
from semel.errors import LogDamaged
from semel.faces.listing import listing_of
from semel.faces.verify import verify_log
from semel.settings import read_settings
from semel.wiring import store_of
from tests.prove.programs.full_log import peak_bytes

SESSION = "long"


def verify(root: str, _target: str) -> object:
    found = verify_log(Path(root) / "sessions" / SESSION / "wal.log", SESSION)
    return [found.verdict, found.records, found.behind_records]


def listing(root: str, _target: str) -> object:
    (one,) = listing_of(store_of(read_settings(root)))
    return [one.head_seq, one.error.code if one.error else None]


def reopen(root: str, _target: str) -> object:
    async def act() -> int:
        writer = await store_of(read_settings(root)).open(SESSION, take=lambda _frames: None)
        await writer.close()
        return writer.head

    try:
        return asyncio.run(act())
    except LogDamaged as error:
        return error.code


def backup(root: str, target: str) -> object:
    (copied,) = wiring.back_up(read_settings(root), Path(target)).sessions
    return [copied.head_seq, copied.size_bytes]


def restore(root: str, target: str) -> object:
    settings = read_settings(target)
    (copied,) = wiring.restore(settings, Path(root)).sessions
    ground, store = wiring.parking_ground(settings)
    asyncio.run(park(ground, SESSION))
    store.parked(SESSION)
    return [copied.head_seq, copied.size_bytes]


def repair(root: str, _target: str) -> object:
    loss = wiring.repair(read_settings(root), SESSION)
    return None if loss is None else [loss.kept_records, loss.lost_bytes, loss.readable_records]


ACTS: dict[str, Callable[[str, str], object]] = {act.__name__: act for act in (verify, listing, reopen, backup, restore, repair)}

if __name__ == "__main__":
    asyncio.run(asyncio.sleep(0))
    before = peak_bytes()
    said = ACTS[sys.argv[1]](sys.argv[2], sys.argv[3] if len(sys.argv) > 3 else "")
    print(json.dumps({"said": said, "over": peak_bytes() - before}))
