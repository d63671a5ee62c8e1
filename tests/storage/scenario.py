"""One scenario of a session, told to an oracle outside the store, for the sweeps that let it die or fail anywhere."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from semel.adapters.file.store import FileStore
from semel.adapters.system import SystemClock
from semel.core.frame import Frame
from semel.ports.log import Payload
from semel.testing.faults import Crashed, Fault, FaultyDisk
from semel.testing.power import ForgetfulDisk
from storage.conftest import KNOWN
from storage.logs import lineage_payload, payload

MakeStoreAt = Callable[[Path, FaultyDisk], FileStore]


@dataclass
class Oracle:
    """What the outside was told, and all that was ever handed to the store."""

    acknowledged: list[Frame] = field(default_factory=list)
    attempted: set[bytes] = field(default_factory=set)
    finished: bool = False


async def scenario(store: FileStore, oracle: Oracle) -> None:
    """Two tenures of one session: batches, notes, a gated record, a status."""

    async def append(batch: Sequence[Payload]) -> None:
        oracle.attempted.update(item.json for item in batch)
        oracle.acknowledged.extend(await writer.append(batch))

    writer = await store.open("box")
    await append([lineage_payload(), payload(20)])
    await append([payload(400), payload(30), payload(50)])
    oracle.attempted.add(payload(60).json)
    writer.note([payload(60)])
    await append([payload(70, requires=("a/v1",))])
    writer.publish_status(b'{"head_seq":6}')
    await writer.close()
    writer = await store.open("box")
    await append([payload(80), payload(90)])
    await append([payload(100)])
    await writer.close()
    oracle.finished = True


def store_at(root: Path, disk: FaultyDisk) -> FileStore:
    return FileStore(root, SystemClock(), known=KNOWN, disk=disk)


async def holds(root: Path, oracle: Oracle, disk: FaultyDisk | None = None) -> None:
    """The session opens, holds what was acknowledged, and nothing that was never handed over."""
    writer = await store_at(root, disk or FaultyDisk()).open("box")
    assert set(oracle.acknowledged) <= set(writer.frames)
    assert [frame.seq for frame in writer.frames] == list(range(len(writer.frames)))
    assert {frame.payload for frame in writer.frames} <= oracle.attempted
    before = [payload(11)] if writer.frames else [lineage_payload(), payload(11)]
    oracle.attempted.update(item.json for item in before)
    oracle.acknowledged[:] = [*writer.frames, *await writer.append(before)]
    await writer.close()


async def reference_calls(root: Path) -> list[str]:
    disk, oracle = FaultyDisk(), Oracle()
    await scenario(store_at(root, disk), oracle)
    assert oracle.finished
    assert [frame.seq for frame in oracle.acknowledged] == [0, 1, 2, 3, 4, 6, 7, 8, 9]
    return disk.calls


async def death_sweep(place: Path, make: MakeStoreAt = store_at, disk: type[FaultyDisk] = FaultyDisk) -> int:
    """Die at entry to and right after every persistence call; fails if that loses what was acknowledged.

    On a ForgetfulDisk the power goes as well.
    """
    place.mkdir(exist_ok=True)
    calls = await reference_calls(place / "reference")
    for at in range(1, len(calls) + 1):
        for kind in ("crash_entry", "crash_exit"):
            root, dying, oracle = place / f"{at}-{kind}", disk(Fault(at=at, kind=kind)), Oracle()
            with pytest.raises(Crashed):
                await scenario(make(root, dying), oracle)
            dying.lose_power() if isinstance(dying, ForgetfulDisk) else dying.bury()
            await holds(root, oracle)
    return 2 * len(calls)


def copy_tree(source: Path, target: Path) -> None:
    """Copy a state directory, private as it is; one that is not there makes none."""
    target.parent.mkdir(exist_ok=True)
    if not source.exists():
        return
    for path in [source, *sorted(source.rglob("*"))]:
        place = target / path.relative_to(source)
        if path.is_dir():
            place.mkdir(mode=0o700)
        else:
            place.write_bytes(path.read_bytes())
