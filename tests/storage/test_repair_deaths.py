"""P3, P7: a repair dies at each of its calls, of a log that was cut between two frames of a write, which only a witness knows."""

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from msgspec import json

from semel.adapters.file.disk import Disk
from semel.adapters.file.index import Index
from semel.adapters.file.repair import assess, repair
from semel.adapters.file.root import Place, Root
from semel.adapters.system import SystemClock, SystemIds
from semel.core.frame import Frame, TailKind, incomplete, line_of, scan
from semel.core.open_log import state_of
from semel.engine.park import park
from semel.engine.resume import Ground
from semel.errors import LogDamaged, NotParked
from semel.testing.faults import FaultyDisk
from storage.conftest import plant
from storage.scenario import copy_tree
from storage.test_upkeep import FEATURES, store_at, sweep
from tests.engine.fakes import call, script_file
from tests.engine.test_parking import whole_log

WITNESSES = ("status.json", "index.db")


class CutLog(NamedTuple):
    """A log whose calls were sent, without the last intent of their write and all behind it."""

    data: bytes
    whole_bytes: int  # where its last whole write ends
    lineage: str
    head: int  # what was durable


@pytest.fixture
def cut_log(tmp_path: Path) -> CutLog:
    frames = asyncio.run(whole_log(script_file(tmp_path / "m.json", {"calls": [call("pay"), call("pay")]}, {"text": "done"})))
    last = max(at for at, frame in enumerate(frames) if b'"type":"tool_dispatch_intent"' in frame.payload)
    assert frames[last - 1].left == 1
    first = max(at for at in range(last) if frames[at].left == 0) + 1
    lineage = scan(line_of(frames[0])).point.lineage
    assert lineage is not None
    return CutLog(b"".join(map(line_of, frames[:last])), frames[first].offset, lineage.lineage, frames[-1].seq)


def planted(root: Path, cut: CutLog, witness: str) -> None:
    """The log in a state directory, with one witness of what it lacks."""
    path = plant(root, cut.data, "s")
    if witness == "status.json":
        path.with_name(witness).write_bytes(json.encode({"schema": 1, "head_seq": cut.head}))
    else:
        Index(root).remember("s", "of what was there", json.encode({"lineage": cut.lineage, "head_seq": cut.head}))


def closed(root: Path) -> tuple[Frame, ...]:
    """What the log holds once a repair came to its end and the open run was closed."""
    repair(Root(root, Disk()), "s", FEATURES)
    parks(root, FaultyDisk())
    return scan((root / "sessions" / "s" / "wal.log").read_bytes()).frames


def denied(frames: tuple[Frame, ...]) -> list[dict[str, Any]]:
    """The calls that a log says were never sent."""
    records = [json.decode(frame.payload) for frame in frames]
    return [record for record in records if record["type"] == "tool_no_dispatch"]


def repair_on(root: Path, disk: Disk) -> None:
    repair(Root(root, disk), "s", FEATURES)


def dies_anywhere(place: Path, cut: CutLog, prepare: Callable[[Path], object]) -> tuple[int, int]:
    """Let a repair die at each of its calls; returns how many deaths that were, and how many of them behind the cut."""
    left, behind = sweep(place, prepare, repair_on), 0
    for root, _ in left:
        log = root / "sessions" / "s" / "wal.log"
        found = assess(Root(root, Disk()), "s", FEATURES)
        assert log.read_bytes() in (cut.data, cut.data[: cut.whole_bytes])
        if log.read_bytes() == cut.data:
            assert found is not None, "what is not cut yet counts as whole"
        else:
            behind += 1
            kept = [path.read_bytes() for path in log.parent.glob(f"wal.damaged-{cut.whole_bytes}*")]
            assert cut.data[cut.whole_bytes :] in kept
        assert found is None or found.offset == cut.whole_bytes
        with pytest.raises((LogDamaged, NotParked)):
            asyncio.run(store_at(root).open("s"))
        frames = closed(root)
        assert denied(frames) == []
        assert b"".join(map(line_of, frames)).startswith(cut.data[: cut.whole_bytes])
        assert scan(log.read_bytes()).tail.kind is TailKind.CLEAN
    return len(left), behind


@pytest.mark.parametrize("witness", WITNESSES)
def test_what_only_a_witness_knows_is_cut_at_the_same_place_after_every_death_and_no_sent_call_is_denied(
    witness: str, cut_log: CutLog, tmp_path: Path
) -> None:
    deaths, behind = dies_anywhere(tmp_path, cut_log, lambda root: planted(root, cut_log, witness))
    print(f"{deaths} deaths of a repair that {witness} asked for, {behind} of them behind the cut")
    assert deaths >= 40
    assert behind >= 5


@pytest.mark.prove
@pytest.mark.timeout(1700)
@pytest.mark.parametrize("witness", WITNESSES)
def test_the_repair_of_a_repair_that_died_may_die_at_any_call_as_well(witness: str, cut_log: CutLog, tmp_path: Path) -> None:
    (tmp_path / "first").mkdir()
    first = sweep(tmp_path / "first", lambda root: planted(root, cut_log, witness), repair_on)
    deaths = 0
    for number, (left, _) in enumerate(first):
        deaths += dies_anywhere(tmp_path / str(number), cut_log, partial(copy_tree, left))[0]
    print(f"{deaths} deaths of a repair behind {len(first)} that died")
    assert deaths >= 1_500


def test_a_repair_that_drops_the_witness_before_it_cuts_is_caught(
    cut_log: CutLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from semel.adapters.file.repair import _cut

    def careless(place: Place, directory: int, offset: int) -> str:
        place.disk.sync_directory(directory)
        Index(place.root.path).forget(place.session)
        place.status.unlink(missing_ok=True)
        return _cut(place, directory, offset)

    monkeypatch.setattr("semel.adapters.file.repair._cut", careless)
    with pytest.raises(AssertionError, match="counts as whole"):
        dies_anywhere(tmp_path, cut_log, lambda root: planted(root, cut_log, "status.json"))


def parks(root: Path, disk: Disk) -> None:
    store = store_at(root, disk, parking=True)
    asyncio.run(park(Ground(store=store, clock=SystemClock(), ids=SystemIds()), "s"))
    store.parked("s")


def closing_dies_anywhere(place: Path, data: bytes) -> int:
    """Let the close of a restored session with two payments under way die at each call; returns the deaths behind its end."""

    def prepare(root: Path) -> None:
        plant(root, data, "s").with_name("parking").write_bytes(b"")
        (root / "sessions" / "s" / "parking").chmod(0o600)

    left, over = sweep(place, prepare, parks), 0
    for root, _ in left:
        marked = (root / "sessions" / "s" / "parking").exists()
        if marked:
            with pytest.raises(NotParked):
                asyncio.run(store_at(root).open("s"))
            assert repair(Root(root, Disk()), "s", FEATURES) is None
            parks(root, FaultyDisk())
        over += not marked
        frames = scan((root / "sessions" / "s" / "wal.log").read_bytes()).frames
        state = state_of(frames, incomplete(frames), "s")
        assert state.run is None, "the mark went before the run was closed"
        assert [call.tool for call in state.unknown] == ["pay", "pay"]
        assert b"Nothing happened" not in b"".join(frame.payload for frame in frames)
    print(f"{len(left)} deaths of a close, {over} behind the mark")
    assert len(left) >= 50
    return over


@pytest.fixture
def under_way(tmp_path: Path) -> bytes:
    """A log up to where both payments had left."""
    frames = asyncio.run(whole_log(script_file(tmp_path / "m.json", {"calls": [call("pay"), call("pay")]}, {"text": "done"})))
    last = max(at for at, frame in enumerate(frames) if b'"type":"tool_dispatch_intent"' in frame.payload)
    return b"".join(map(line_of, frames[: last + 1]))


def test_the_close_of_a_restored_run_may_die_at_any_call_and_both_calls_stay_unknown(under_way: bytes, tmp_path: Path) -> None:
    assert closing_dies_anywhere(tmp_path, under_way) >= 2


def test_a_mark_that_goes_before_the_run_is_closed_is_caught(
    under_way: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = parks

    def hasty(root: Path, disk: Disk) -> None:
        (root / "sessions" / "s" / "parking").unlink()
        real(root, disk)

    monkeypatch.setattr("storage.test_repair_deaths.parks", hasty)
    with pytest.raises(AssertionError, match="before the run was closed"):
        closing_dies_anywhere(tmp_path, under_way)


def test_a_repair_that_finds_the_cut_made_names_the_file_that_holds_what_was_cut(cut_log: CutLog, tmp_path: Path) -> None:
    root = tmp_path / "state"
    planted(root, cut_log, "status.json")
    place = root / "sessions" / "s"
    status = (place / "status.json").read_bytes()
    first = repair(Root(root, Disk()), "s", FEATURES)
    (place / "status.json").write_bytes(status)  # as if it had died before that went
    again = repair(Root(root, Disk()), "s", FEATURES)
    assert first is not None
    assert again is not None
    assert (again.kept_as, again.lost_bytes) == (first.kept_as, 0)
    assert [path.name for path in place.glob("wal.damaged-*")] == [first.kept_as]
