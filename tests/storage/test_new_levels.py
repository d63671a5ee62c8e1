"""W25, W26: an acknowledged log survives a power loss however many directories above it are new, whoever made them."""

import asyncio
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from semel.adapters.file.backup import back_up, restore
from semel.adapters.file.disk import Disk
from semel.adapters.file.floor import FileFloor
from semel.adapters.file.root import Root
from semel.adapters.file.store import FileStore
from semel.adapters.system import SystemClock
from semel.core.frame import scan
from semel.testing.faults import Crashed, Fault
from semel.testing.power import ForgetfulDisk
from storage.conftest import KNOWN, plant
from storage.logs import lineage_payload, payload, reference_log


def store_at(root: Path, disk: Disk) -> FileStore:
    return FileStore(root, SystemClock(), known=KNOWN, disk=disk)


async def _acknowledged(root: Path, disk: Disk) -> None:
    writer = await store_at(root, disk).open("box")
    await writer.append([lineage_payload(), payload(10)])
    await writer.close()


def acknowledge(root: Path, disk: Disk) -> None:
    asyncio.run(_acknowledged(root, disk))


def log_of(root: Path) -> Path:
    return root / "sessions" / "box" / "wal.log"


def deep_disk(fault: Fault | None = None) -> ForgetfulDisk:
    """One that forgets names at every level, up to the top of the file system."""
    disk = ForgetfulDisk(fault)
    disk.levels_above = None
    return disk


LEVELS = ("st", "a/st", "a/b/st", "a/b/c/d/e/st")


@pytest.mark.parametrize("where", LEVELS)
def test_w25_a_log_below_new_directories_survives_a_power_loss(where: str, tmp_path: Path) -> None:
    disk = deep_disk()
    acknowledge(tmp_path / where, disk)
    disk.lose_power()
    assert scan(log_of(tmp_path / where).read_bytes()).point.seq == 2


@pytest.mark.parametrize("where", LEVELS)
def test_w25_so_it_does_where_the_process_that_made_them_died_before_it_synced_one(where: str, tmp_path: Path) -> None:
    died = 0
    for at in range(1, 12):
        disk = deep_disk(Fault(at=at, kind="crash_exit"))
        root = tmp_path / str(at) / where
        root.parents[where.count("/")].mkdir()
        with pytest.raises(Crashed):
            acknowledge(root, disk)
        disk.live_again()
        acknowledge(root, disk)
        disk.lose_power()
        assert scan(log_of(root).read_bytes()).point.seq == 2, f"died at call {at}"
        died += 1
    assert died == 11


def test_a_sync_of_the_nearest_directories_alone_is_caught(tmp_path: Path) -> None:
    for number, where in enumerate(LEVELS):
        disk = deep_disk()
        disk.levels_above = 1
        root = tmp_path / str(number) / where
        root.parents[where.count("/")].mkdir()
        acknowledge(root, disk)
        disk.lose_power()
        assert log_of(root).exists() == (where == "st")


def test_w25_names_are_kept_in_the_directory_where_they_really_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def survives() -> bool:
        shutil.rmtree(tmp_path / "real", ignore_errors=True)
        (tmp_path / "real").mkdir()
        disk = deep_disk()
        acknowledge(tmp_path / "link" / "a" / "b" / "st", disk)
        disk.lose_power()
        return log_of(tmp_path / "real" / "a" / "b" / "st").exists()

    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert survives()
    monkeypatch.setattr(Disk, "above", lambda _disk, path: [*path.parents][:1])
    assert not survives(), "a disk that keeps to the name of the link is caught"


@pytest.mark.parametrize("gone", ["st", "st/sessions", "."])
def test_w25_what_is_made_anew_within_a_process_is_proven_anew(
    gone: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def act(place: Path) -> bool:
        disk = deep_disk()
        store = store_at(place / "st", disk)
        for _ in range(2):
            writer = await store.open("box")
            await writer.append([lineage_payload(), payload(10)])
            await writer.close()
            shutil.rmtree(place / gone)
        writer = await store.open("box")
        await writer.append([lineage_payload(), payload(10)])
        await writer.close()
        disk.lose_power()
        return log_of(place / "st").exists()

    (tmp_path / "top").mkdir()
    assert asyncio.run(act(tmp_path / "top" / "a"))

    def never_looks(root: Root, _descriptor: int, *, made: bool) -> None:
        note = root.life is None
        if note:
            noted(root, _descriptor, made=made)

    noted = Root._note
    monkeypatch.setattr(Root, "_note", never_looks)
    assert not asyncio.run(act(tmp_path / "top" / "b")), "a process that proves a path once and for all is caught"


@pytest.mark.anyio
async def test_a_directory_that_somebody_else_put_in_its_place_is_proven_anew(tmp_path: Path) -> None:
    disk = deep_disk()
    disk.levels_above = 1
    store = store_at(tmp_path / "st", disk)

    async def syncs() -> int:
        writer = await store.open("box")
        disk.calls.clear()
        await writer.append([payload(10)] if writer.frames else [lineage_payload(), payload(10)])
        await writer.close()
        return disk.calls.count("sync_directory")

    assert [await syncs(), await syncs()] == [4, 2]
    for moved, made in (("st", ("st", "st/sessions")), ("st/sessions", ("st/sessions",))):
        (tmp_path / moved).rename(tmp_path / f"old {Path(moved).name}")
        for name in made:
            (tmp_path / name).mkdir(mode=0o700)
        assert [await syncs(), await syncs()] == [4, 2]


def test_a_floor_that_was_removed_with_its_root_is_raised_anew(tmp_path: Path) -> None:
    async def act() -> frozenset[str]:
        store = store_at(tmp_path / "st", Disk())
        for _ in range(2):
            shutil.rmtree(tmp_path / "st", ignore_errors=True)
            writer = await store.open("box")
            await writer.append([lineage_payload(), payload(10), payload(10, requires=("a/v1",))])
            await writer.close()
        return FileFloor(Root(tmp_path / "st", Disk())).names()

    assert asyncio.run(act()) == {"a/v1"}


def test_backups_and_restores_below_new_directories_survive_a_power_loss(tmp_path: Path) -> None:
    plant(tmp_path / "origin", reference_log().data)
    store, disk = store_at(tmp_path / "origin", Disk()), deep_disk()
    store.root.disk = disk  # its target uses it, too
    back_up(store, tmp_path / "a" / "b" / "copy", 1)
    disk.lose_power()
    disk = deep_disk()
    restore(tmp_path / "a" / "b" / "copy", Root(tmp_path / "c" / "d" / "new", disk), KNOWN)
    disk.lose_power()
    assert log_of(tmp_path / "c" / "d" / "new").read_bytes() == reference_log().data


def ways(path: Path) -> Sequence[Path]:
    return Disk().above(path)


def test_the_way_to_a_directory_ends_where_its_file_system_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a" / "st").mkdir(parents=True)
    here = ways(tmp_path / "a" / "st")
    assert here[:2] == [tmp_path / "a", tmp_path]
    real = Path.stat

    def mounted(path: Path) -> os.stat_result:
        found = real(path)
        return found if path in {tmp_path, *tmp_path.parents} else os.stat_result((*found[:2], found.st_dev + 1, *found[3:10]))

    monkeypatch.setattr(Path, "stat", mounted)
    assert ways(tmp_path / "a" / "st") == [tmp_path / "a"]
    assert ways(tmp_path / "a") == []


def test_a_directory_that_we_may_neither_read_nor_change_leads_nowhere_for_us(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `/home` is on many machines: nothing in it was made with our rights, and nobody has to make it readable."""
    (tmp_path / "a" / "st").mkdir(parents=True)
    allowed = {tmp_path / "a": os.W_OK, tmp_path: 0}
    monkeypatch.setattr(os, "access", lambda path, mode, **_: bool(allowed.get(path, os.R_OK) & mode))
    assert tmp_path not in ways(tmp_path / "a" / "st")
    assert ways(tmp_path / "a" / "st")[:2] == [tmp_path / "a", tmp_path.parent]
