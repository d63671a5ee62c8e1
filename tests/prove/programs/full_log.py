"""Fill a session to its ceiling with ordinary turns, or open it, and print what that took as JSON. Not a test.

    python -m tests.prove.programs.full_log fill ROOT BYTES | open | fold | keep | floor ROOT

A turn is that of design 13: 600 B of text, three calls with 200 B of arguments, three results of 1 KiB.
"""

import asyncio
import hashlib
import json
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from semel.adapters.file.disk import Disk
from semel.adapters.file.store import FileStore
from semel.adapters.system import SystemClock, SystemIds
from semel.core import open_log
from semel.core.ceiling import CEILING_BYTES
from semel.core.decide import decide, send
from semel.core.effects import Answered, CameBack, Send
from semel.core.features import KNOWN
from semel.core.frame import Frame
from semel.core.limits import Limits
from semel.core.outcomes import Outcome as Became
from semel.core.outcomes import Settlement
from semel.core.records import AgentRef, Config, ModelAttemptFinished, Record, ToolResult
from semel.core.values import Bundle, Effect, Stop, Text, ToolCall, ToolSpec, Usage
from semel.engine.feed import Feed
from semel.engine.loop import commit
from semel.engine.resume import Ground, open_session
from semel.errors import NewerWriter, SessionFull

SESSION = "full"
BUNDLE = Bundle(family="scripted", model="m", endpoint="", renderer=1)
SPEC = ToolSpec(name="pay", description="pay", parameters='{"type":"object"}', effect=Effect.ONCE)


class UnsyncedDisk(Disk):
    """Filling is not what is measured."""

    def sync(self, fd: int) -> None:
        pass


def ground_at(root: str, disk: Disk, ceiling_bytes: int = CEILING_BYTES) -> Ground:
    clock = SystemClock()
    store = FileStore(Path(root), clock, known=KNOWN, disk=disk, ceiling_bytes=ceiling_bytes)
    return Ground(store=store, clock=clock, ids=SystemIds())


def peak_bytes() -> int:
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(found[1]) * 1024 if found else 0


def answer(number: int) -> Answered:
    calls = [ToolCall(id=f"call_{number}_{at}", name="pay", arguments=json.dumps({"for": "x" * 188})) for at in range(3)]
    attempt = ModelAttemptFinished(
        step_id=number,
        attempt=1,
        http_attempt=0,
        request_body_len=1,
        request_body_sha256="0" * 64,
        response_body_len=1,
        outcome="completed",
        ts_ms=0,
    )
    usage = Usage(input=1, output=1)
    return Answered(attempt=attempt, blocks=(Text(text="t" * 600), *calls), stop=Stop.TOOL_USE, usage=usage)


def results() -> CameBack:
    done = Settlement(outcome=Became.COMPLETED, is_error=False, text="r" * 1024)
    return CameBack(settled=dict.fromkeys(range(3), done))


async def fill(root: str, ceiling_bytes: int) -> dict[str, object]:
    ground = ground_at(root, UnsyncedDisk(), ceiling_bytes)
    writer, barrier = await open_session(ground, SESSION, Feed())
    config = Config(bundle=BUNDLE, limits=Limits(steps=10**9, tokens=10**12, wall_ms=10**9, repeated_calls=10**9))
    command = Send(key="k", text="fill it", agent=AgentRef(name="a"), config=config, instructions="", tools=(SPEC,))
    await barrier.commit(send(barrier.state, command).records)
    turns = 0
    while barrier.state.run is not None:
        for outcome in (answer(turns + 1), results()):
            if barrier.state.run is None:
                break
            decision = decide(barrier.state, outcome, doubt=frozenset(), now_ms=ground.clock.now_ms())
            await commit(decision, barrier, outcome, frozenset())
        turns += 1
    ended = barrier.state.ended[barrier.state.newest or ""]
    before = writer.size_bytes
    refused = False
    try:
        await barrier.commit(send(barrier.state, replace(command, key="next", text="q" * 4096)).records)
    except SessionFull:
        refused = writer.size_bytes == before
    await writer.close()
    return {
        "turns": turns,
        "bytes": before,
        "reason": ended.reason,
        "code": ended.error.code if ended.error else None,
        "refused": refused,
        "digest": writer.digest,
    }


async def open_only(root: str) -> dict[str, object]:
    """Take the lease, verify everything, hand out the frames, and be ready to append."""
    store, frames, base = ground_at(root, Disk()).store, 0, peak_bytes()

    def count(piece: object) -> None:
        nonlocal frames
        frames += len(piece)  # type: ignore[arg-type]  # a piece is a sequence of frames

    started = time.perf_counter()
    writer = await store.open(SESSION, take=count)
    seconds = time.perf_counter() - started
    await writer.close()
    return {"frames": frames, "seconds": seconds, "over": peak_bytes() - base, "digest": writer.digest}


async def fold(root: str) -> dict[str, object]:
    """As `open`, and fold the frames as they are read."""
    base, started = peak_bytes(), time.perf_counter()
    writer, barrier = await open_session(ground_at(root, Disk()), SESSION, Feed())
    seconds = time.perf_counter() - started
    await writer.close()
    return {"head": barrier.state.head, "seconds": seconds, "over": peak_bytes() - base}


async def keep(root: str) -> dict[str, object]:
    """As `fold`, with a fault that the bound on memory must notice: what tools gave stays in memory."""
    outputs, decode_all = list[object](), open_log.decode_all

    def keeping(frames: Sequence[Frame], where: str) -> tuple[Sequence[Record | None], NewerWriter | None]:
        records, refusal = decode_all(frames, where)
        outputs.extend(record.output for record in records if isinstance(record, ToolResult))
        return records, refusal

    open_log.decode_all = keeping  # type: ignore[assignment]  # the planted fault
    return {**await fold(root), "kept": len(outputs)}


def floor(root: str) -> dict[str, object]:
    """Reading and hashing the same bytes, and nothing else."""
    started, digest = time.perf_counter(), hashlib.sha256()
    with (Path(root) / "sessions" / SESSION / "wal.log").open("rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return {"seconds": time.perf_counter() - started}


if __name__ == "__main__":
    what, place, *rest = sys.argv[1:]
    if what == "fill":
        found = asyncio.run(fill(place, int(rest[0])))
    elif what == "floor":
        found = floor(place)
    else:
        found = asyncio.run({"open": open_only, "fold": fold, "keep": keep}[what](place))
    print(json.dumps(found))
