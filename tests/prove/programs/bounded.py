"""One act on a state directory, in a process of its own that then says how much memory it took at most.

python -m tests.prove.programs.bounded ACT ROOT [TARGET]
"""

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from semel import wiring
from semel.adapters.system import SystemClock
from semel.core.decide import decide, send
from semel.core.effects import CameBack, Send
from semel.core.limits import Limits
from semel.core.outcomes import Outcome, Settlement
from semel.core.records import AgentRef, Config
from semel.core.values import Stop, Text
from semel.engine.feed import Feed
from semel.engine.loop import commit
from semel.engine.park import park
from semel.engine.resume import open_session
from semel.errors import LogDamaged
from semel.faces.cli.main import main
from semel.faces.listing import listing_of
from semel.faces.preview import preview_of
from semel.faces.verify import verify_log
from semel.faces.views import answered_approval
from semel.settings import read_settings
from semel.wiring import store_of
from tests.prove.programs.full_log import BUNDLE, SPEC, UnsyncedDisk, answer, ground_at, peak_bytes

SESSION = "s"
RESULT_BYTES = 100_000


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


def show(root: str, _target: str) -> object:
    """How it ended, and how many runs and bytes it printed."""
    out = os.dup(1)
    with tempfile.TemporaryFile() as printed:
        os.dup2(printed.fileno(), 1)
        try:
            main(["show", SESSION, "--state", root])
        except SystemExit as end:
            code = end.code
        os.dup2(out, 1)
        size = printed.tell()
        printed.seek(0)
        return [code, sum(line.startswith(b"run ") for line in printed), size]


def tell(root: str, target: str) -> object:
    """Fill a log of so many bytes with runs, each of a long text, a call and its long result; how many that took."""
    return asyncio.run(_tell(root, int(target)))


async def _tell(root: str, size_bytes: int) -> int:
    ground = ground_at(root, UnsyncedDisk())
    writer, barrier = await open_session(ground, SESSION, Feed())
    command = Send(
        key="", text="go", agent=AgentRef(name="a"), config=Config(bundle=BUNDLE, limits=Limits()), instructions="", tools=(SPEC,)
    )
    done = Settlement(outcome=Outcome.COMPLETED, is_error=False, text="r" * RESULT_BYTES)
    asked, said = answer(1), replace(answer(2), blocks=(Text(text="done"),), stop=Stop.END_TURN)
    asked = replace(asked, blocks=(Text(text="t" * RESULT_BYTES), asked.blocks[1]))
    runs = 0
    while writer.size_bytes < size_bytes:
        runs += 1
        await barrier.commit(send(barrier.state, replace(command, key=f"k{runs}")).records)
        for outcome in (asked, CameBack(settled={0: done}), said):
            now_ms = ground.clock.now_ms()
            await commit(decide(barrier.state, outcome, doubt=frozenset(), now_ms=now_ms), barrier, outcome, frozenset())
    await writer.close()
    return runs


def preview(root: str, _target: str) -> object:
    """The played log names no script; this gives it one."""
    script, frozen = Path(root) / "script.json", wiring.model_frozen
    script.write_text('{"answers": [{"text": "done"}]}')
    wiring.model_frozen = lambda bundle, options, clock: frozen(replace(bundle, endpoint=str(script)), options, clock)
    found = preview_of(store_of(read_settings(root)), SESSION, SystemClock(), "and now?")
    return [found.bundle.model, len(found.request.body)]


def answered(root: str, target: str) -> object:
    found = answered_approval(store_of(read_settings(root)), target)
    return None if found is None else found.decision


def keep(root: str, _target: str) -> object:
    """A fault that the bound must notice: all frames at once."""
    return len(store_of(read_settings(root)).read(SESSION).frames)


ACTS: dict[str, Callable[[str, str], object]] = {
    act.__name__: act for act in (verify, listing, reopen, backup, restore, repair, tell, show, preview, answered, keep)
}

if __name__ == "__main__":
    asyncio.run(asyncio.sleep(0))
    before = peak_bytes()
    said = ACTS[sys.argv[1]](sys.argv[2], sys.argv[3] if len(sys.argv) > 3 else "")
    print(json.dumps({"said": said, "over": peak_bytes() - before}))
