"""Repairs, copies, restores and collections die at each of their calls: nothing is lost, and nothing half done goes on."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from semel.adapters.file.backup import BadBackup, NotEmpty, back_up, restore
from semel.adapters.file.disk import Disk
from semel.adapters.file.floor import FileFloor
from semel.adapters.file.repair import assess, repair
from semel.adapters.file.root import Root
from semel.adapters.file.store import FileStore
from semel.adapters.system import SystemClock, SystemIds
from semel.core.features import KNOWN
from semel.core.frame import TailKind, scan
from semel.engine.feed import Feed
from semel.engine.resume import Ground, open_session
from semel.errors import IsCopy, LogDamaged, NewerWriter, NotParked
from semel.testing.faults import Crashed, Fault, FaultyDisk
from semel.testing.power import ForgetfulDisk
from storage.conftest import contents, plant
from storage.golden_logs import SESSION
from storage.logs import reference_log
from storage.media_log import NAMES, PICTURES, blob_place, media_log, plant_media

LOG = reference_log()
FEATURES = KNOWN | {"a/v1"}


def store_at(root: Path, disk: Disk | None = None, *, parking: bool = False) -> FileStore:
    return FileStore(root, SystemClock(), known=FEATURES, disk=disk, parking=parking)


def sweep(place: Path, prepare: Callable[[Path], object], act: Callable[[Path, FaultyDisk], object]) -> "list[tuple[Path, bool]]":
    """Let `act` die before each call, and right after it with the power gone, too; returns what each death left behind."""
    left: list[tuple[Path, bool]] = []
    for at in range(1, 500):
        over = False
        for kind, power in (("crash_entry", False), ("crash_exit", True)):
            root, fault = place / f"{at}-{kind}", Fault(at=at, kind=kind)
            prepare(root)
            disk = ForgetfulDisk(fault) if power else FaultyDisk(fault)
            try:
                act(root, disk)
                over = True
            except Crashed:
                left.append((root, power))
            if isinstance(disk, ForgetfulDisk):
                disk.lose_power()
            else:
                disk.bury()
        if over:
            return left
    raise AssertionError("it never ends")


BAD = bytearray(LOG.data)
BAD[LOG.frames[10].offset + 5] ^= 1
KEPT = LOG.writes[4].frames[0].offset  # record 10 is within the write of records 10 to 14
STATUS = b'{"schema":1,"head_seq":26}'


def _damaged(root: Path) -> None:
    plant(root, bytes(BAD)).with_name("status.json").write_bytes(STATUS)


def test_a_repair_that_dies_at_any_call_loses_no_byte_and_leaves_no_session_that_goes_on(tmp_path: Path) -> None:
    left = sweep(tmp_path, _damaged, lambda root, disk: repair(Root(root, disk), "box", FEATURES))
    cut = 0
    for root, _ in left:
        place = root / "sessions" / "box"
        log = (place / "wal.log").read_bytes()
        if log == bytes(BAD):
            assert (place / "status.json").exists() or (place / f"status.damaged-{KEPT}").read_bytes() == STATUS
            with pytest.raises((LogDamaged, NotParked)):
                asyncio.run(store_at(root).open("box"))
        else:
            cut += 1
            assert log + (place / f"wal.damaged-{KEPT}").read_bytes() == bytes(BAD)
            assert (place / f"status.damaged-{KEPT}").read_bytes() == STATUS
            with pytest.raises(NotParked, match="semel repair box --accept-loss"):
                asyncio.run(store_at(root).open("box"))
        repair(Root(root, Disk()), "box", FEATURES)  # and again, to its end
        parking = store_at(root, parking=True)
        writer = asyncio.run(parking.open("box"))
        assert writer.frames == LOG.frames[: len(writer.frames)]
        assert len(writer.frames) == 10
        asyncio.run(writer.close())
        parking.parked("box")
        asyncio.run(asyncio.run(store_at(root).open("box")).close())
    print(f"{len(left)} deaths of a repair, {cut} of them behind the cut")
    assert len(left) >= 46
    assert cut >= 3


def test_a_repair_whose_mark_comes_too_late_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("semel.adapters.file.repair.mark", lambda _place, _directory: None)
    with pytest.raises((pytest.fail.Exception, LogDamaged)):
        test_a_repair_that_dies_at_any_call_loses_no_byte_and_leaves_no_session_that_goes_on(tmp_path)


def test_the_log_of_another_session_is_damaged_for_a_repair_as_for_an_open_and_is_kept_whole(tmp_path: Path) -> None:
    plant(tmp_path, LOG.data, "other").with_name("status.json").write_bytes(STATUS)
    plant(tmp_path, LOG.data)
    with pytest.raises(LogDamaged, match="the log of session 'box'"):
        asyncio.run(store_at(tmp_path).open("other"))
    found = assess(Root(tmp_path, Disk()), "other", FEATURES)
    assert found is not None
    assert (found.offset, found.seq, found.kept_records, found.lost_bytes) == (0, 0, 0, len(LOG.data))
    assert (found.reason, found.readable_records) == ("it is the log of session 'box', not of 'other'", len(LOG.frames))
    cut = repair(Root(tmp_path, Disk()), "other", FEATURES)
    assert cut is not None
    kept = tmp_path / "sessions" / "other" / str(cut.kept_as)
    assert kept.read_bytes() == LOG.data
    assert kept.with_name("wal.log").read_bytes() == b""
    assert assess(Root(tmp_path, Disk()), "other", FEATURES) is None
    assert assess(Root(tmp_path, Disk()), "box", FEATURES) is None, "control: whose log it is"


def test_w18_a_repair_by_a_build_that_lacks_a_feature_of_the_floor_or_of_the_log_changes_nothing(tmp_path: Path) -> None:
    for name, floor, known in (("floor", ["future/v1"], FEATURES), ("log", [], frozenset({"early-return/v1"}))):
        root = tmp_path / name
        _damaged(root)
        (root / "sessions" / "box" / "wal.log").write_bytes(LOG.data[: LOG.frames[20].offset])  # behind what its features gate
        FileFloor(Root(root, Disk())).raise_to(floor)
        before = contents(root)
        for act in (assess, repair):
            with pytest.raises(NewerWriter, match="future/v1" if floor else "terminate/v1"):
                act(Root(root, Disk()), "box", known)
        assert contents(root) == before
    assert repair(Root(root, Disk()), "box", FEATURES) is not None, "control: a build that has them cuts"


def _copied(place: Path) -> Path:
    """A copy of a root with two sessions, one of which names blobs."""
    plant_media(place / "origin")
    plant(place / "origin", LOG.data)
    back_up(store_at(place / "origin"), place / "copy", 1)
    return place / "copy"


def test_a_backup_that_dies_at_any_call_is_no_whole_backup_and_changes_nothing_of_what_it_copies(tmp_path: Path) -> None:
    def prepare(place: Path) -> None:
        place.mkdir(parents=True)
        plant_media(place / "origin")

    def act(place: Path, disk: FaultyDisk) -> None:
        store = store_at(place / "origin")
        store.root.disk = disk  # its target uses it, too
        back_up(store, place / "copy", 1)

    before = None
    left = sweep(tmp_path, prepare, act)
    for place, _ in left:
        before = before or contents(place / "origin")
        assert contents(place / "origin") == before
        if not (place / "copy" / "backup.json").exists():
            with pytest.raises(BadBackup, match="is no whole backup"):
                restore(place / "copy", Root(place / "new", Disk()), FEATURES)
            assert not (place / "new").exists()
            continue
        listed = restore(place / "copy", Root(place / "new", Disk()), FEATURES)
        assert [copied.session for copied in listed.sessions] == [SESSION]
        assert contents(blob_place(place / "new")) == dict(zip(NAMES, PICTURES, strict=True))
    print(f"{len(left)} deaths of a backup")
    assert len(left) >= 90


def test_a_restore_that_dies_at_any_call_leaves_no_session_that_goes_on(tmp_path: Path) -> None:
    copy = _copied(tmp_path)
    kept = contents(copy)
    left = sweep(
        tmp_path / "deaths",
        lambda root: root.parent.mkdir(exist_ok=True),
        lambda root, disk: restore(copy, Root(root, disk), FEATURES),
    )
    begun = 0
    for root, _ in left:
        for session, whole in ((SESSION, media_log()), ("box", LOG.data)):
            log = root / "sessions" / session / "wal.log"
            if log.exists():
                begun += 1
                assert whole.startswith(log.read_bytes())
                with pytest.raises((IsCopy, NotParked)):
                    asyncio.run(store_at(root).open(session))
        if root.exists() and any(root.iterdir()):
            with pytest.raises((IsCopy, NotEmpty)):
                restore(copy, Root(root, Disk()), FEATURES)
    assert contents(copy) == kept
    print(f"{len(left)} deaths of a restore, {begun} of them with a log")
    assert len(left) >= 110
    assert begun >= 60


def _collected(root: Path, disk: Disk | None = None) -> None:
    """What every run does first."""
    store = store_at(root, disk)
    ground = Ground(store=store, clock=SystemClock(), ids=SystemIds())

    async def act() -> None:
        writer, _ = await open_session(ground, SESSION, Feed())
        await writer.close()

    asyncio.run(act())


def test_opening_a_session_collects_what_no_record_names_and_keeps_the_rest_wherever_it_dies(tmp_path: Path) -> None:
    def prepare(root: Path) -> None:
        place = plant_media(root, (*PICTURES, b"nobody names me", b"nor me"))
        (place / f"{NAMES[0]}.new").write_bytes(b"a put that died")

    left = sweep(tmp_path, prepare, _collected)
    for root, _ in left:
        assert {path.name for path in blob_place(root).iterdir()} >= set(NAMES)
        _collected(root)
        assert contents(blob_place(root)) == dict(zip(NAMES, PICTURES, strict=True))
    print(f"{len(left)} deaths of an open that collects")
    assert len(left) >= 60


def test_a_session_that_cannot_be_read_and_one_that_was_repaired_keep_all_their_blobs(tmp_path: Path) -> None:
    place = plant_media(tmp_path / "state", (*PICTURES, b"named by what was cut"))
    log = place.with_name("wal.log")
    whole = log.read_bytes()
    log.write_bytes(whole[:400] + b"~" + whole[401:])
    before = contents(place)
    with pytest.raises(LogDamaged):
        _collected(tmp_path / "state")
    assert contents(place) == before
    log.write_bytes(whole)
    log.with_name("wal.damaged-1").write_bytes(b"")
    _collected(tmp_path / "state")
    assert contents(place) == before
    log.with_name("wal.damaged-1").unlink()
    _collected(tmp_path / "state")
    assert set(contents(place)) == set(NAMES)


def test_a_copy_names_the_blobs_that_it_lacks_and_restores_the_others(tmp_path: Path) -> None:
    place = plant_media(tmp_path / "state")
    (place / NAMES[0]).write_bytes(b"something else")
    (copied,) = back_up(store_at(tmp_path / "state"), tmp_path / "copy", 1).sessions
    assert (copied.blobs, copied.lacking) == ((NAMES[1],), (NAMES[0],))
    restore(tmp_path / "copy", Root(tmp_path / "new", Disk()), FEATURES)
    assert contents(blob_place(tmp_path / "new")) == {NAMES[1]: PICTURES[1]}
    assert scan((tmp_path / "new" / "sessions" / SESSION / "wal.log").read_bytes()).tail.kind is TailKind.CLEAN


@pytest.mark.parametrize("first", [b"", b"2 0 17672", LOG.data[: LOG.frames[0].offset + 60]])
def test_a_session_of_which_nothing_is_durable_yet_keeps_no_other_from_being_copied(first: bytes, tmp_path: Path) -> None:
    plant(tmp_path / "state", first, "begun")
    plant(tmp_path / "state", LOG.data)
    copied = back_up(store_at(tmp_path / "state"), tmp_path / "copy", 1)
    assert [one.session for one in copied.sessions] == ["box"]
    assert copied.left_out == {}, "nothing of it was ever acknowledged"
    restore(tmp_path / "copy", Root(tmp_path / "new", Disk()), FEATURES)


def test_a_session_that_lost_all_of_its_log_is_left_out_by_name(tmp_path: Path) -> None:
    plant(tmp_path / "state", b"2 0 17672", "lost").with_name("status.json").write_bytes(STATUS)
    copied = back_up(store_at(tmp_path / "state"), tmp_path / "copy", 1)
    assert copied.left_out["lost"].startswith("log_damaged: ")


def test_w18_a_copy_that_a_newer_build_made_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    copy = _copied(tmp_path)
    listed = json.loads((copy / "backup.json").read_bytes())
    for change, known, named in (
        ({"schema": 2, "sessions": "otherwise"}, FEATURES, "schema 2"),
        ({"features": ["future/v1"]}, FEATURES, "future/v1"),
        ({"features": []}, FEATURES - {"terminate/v1"}, "terminate/v1"),
    ):
        (copy / "backup.json").write_bytes(json.dumps({**listed, **change}).encode())
        with pytest.raises(NewerWriter, match=named):
            restore(copy, Root(tmp_path / "new", Disk()), known)
        assert not (tmp_path / "new").exists()
    (copy / "backup.json").write_bytes(json.dumps(listed).encode())
    restore(copy, Root(tmp_path / "new", Disk()), FEATURES)  # control


def test_a_copy_whose_blobs_were_changed_restores_nothing(tmp_path: Path) -> None:
    copy = _copied(tmp_path)
    for spoil in (lambda path: path.write_bytes(b"x"), Path.unlink):
        spoil(blob_place(copy) / NAMES[1])
        with pytest.raises(BadBackup, match=NAMES[1]):
            restore(copy, Root(tmp_path / "new", Disk()), FEATURES)
        assert not (tmp_path / "new").exists()
