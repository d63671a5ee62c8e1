"""What a recovery or a repair keeps of a log before it cuts it goes again if it fails before that: a full disk gets no fuller."""

import asyncio
import errno
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from semel.adapters.file import aside
from semel.adapters.file.disk import Disk
from semel.adapters.file.repair import repair
from semel.adapters.file.root import Root
from semel.adapters.file.store import FileStore
from semel.adapters.system import SystemClock
from semel.core.features import KNOWN
from semel.errors import StoreError
from semel.testing.faults import Fault, FaultyDisk
from storage.conftest import contents, plant
from storage.logs import reference_log
from storage.test_upkeep import BAD, STATUS

LOG = reference_log()
TORN = LOG.data[: LOG.frames[20].offset + 70]
Act = Callable[[Path, Disk], object]


def opened(root: Path, disk: Disk) -> None:
    store = FileStore(root, SystemClock(), known=KNOWN | {"a/v1"}, disk=disk)
    asyncio.run(asyncio.run(store.open("box")).close())


def mended(root: Path, disk: Disk) -> None:
    repair(Root(root, disk), "box", KNOWN | {"a/v1"})


def torn(root: Path) -> bytes:
    plant(root, TORN)
    return TORN


def damaged(root: Path) -> bytes:
    plant(root, bytes(BAD)).with_name("status.json").write_bytes(STATUS)
    return bytes(BAD)


def gone(root: Path) -> None:
    damaged(root)
    (root / "sessions" / "box" / "wal.log").unlink()


def kept(root: Path) -> dict[str, bytes]:
    found = contents(root / "sessions" / "box")
    return {name: found[name] for name in found if name.startswith(("wal.torn-", "wal.damaged-", "status.damaged-"))}


CASES: Sequence[tuple[Callable[[Path], bytes], Act]] = ((torn, opened), (damaged, mended))


def failures(place: Path, prepare: Callable[[Path], bytes], act: Act) -> tuple[int, int]:
    """Let each call fail, one after the other: how many failures left the log uncut, and how many had cut it."""
    uncut = cut = 0
    for at in range(1, 200):
        root, disk = place / str(at), FaultyDisk(Fault(at=at, kind="error", code=errno.ENOSPC))
        whole = prepare(root)
        try:
            act(root, disk)
        except StoreError:
            log = (root / "sessions" / "box" / "wal.log").read_bytes()
            if log == whole:
                assert kept(root) == {}, disk.calls
                uncut += 1
            else:
                assert any(log + rest == whole for rest in kept(root).values())
                cut += 1
        disk.bury()
        if len(disk.calls) < at:
            return uncut, cut
    raise AssertionError("it never ends")


@pytest.mark.parametrize(("prepare", "act"), CASES)
def test_a_failure_leaves_nothing_aside_of_a_log_that_is_whole_and_all_of_one_that_was_cut(
    prepare: Callable[[Path], bytes], act: Act, tmp_path: Path
) -> None:
    uncut, cut = failures(tmp_path, prepare, act)
    print(f"{uncut} failures before the cut, {cut} behind it")
    assert uncut >= 9
    assert cut >= 1


@pytest.mark.parametrize(("prepare", "act"), CASES)
def test_what_nobody_takes_away_is_caught(
    prepare: Callable[[Path], bytes], act: Act, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aside, "_take_away", lambda *_: None)
    with pytest.raises(AssertionError):
        failures(tmp_path, prepare, act)


@pytest.mark.parametrize(("prepare", "act"), CASES)
def test_a_disk_that_stays_full_has_as_many_files_after_ten_tries_as_after_one(
    prepare: Callable[[Path], bytes], act: Act, tmp_path: Path
) -> None:
    class Full(FaultyDisk):
        """Has room for a lease, and not for what is kept."""

        def write_some(self, fd: int, data: memoryview, offset: int | None) -> int:
            if len(data) < 512 or self.keeping:
                raise OSError(errno.ENOSPC, "No space left on device")
            return super().write_some(fd, data, offset)

        keeping = False

        def open_file(self, name: str, within: int, flags: int) -> int:
            self.keeping = name.startswith(("wal.torn-", "wal.damaged-", "status.damaged-"))
            return super().open_file(name, within, flags)

    whole = prepare(tmp_path / "st")
    for _ in range(10):
        with pytest.raises(StoreError, match="No space left"):
            act(tmp_path / "st", Full())
        assert kept(tmp_path / "st") == {}
        assert (tmp_path / "st" / "sessions" / "box" / "wal.log").read_bytes() == whole


@pytest.mark.parametrize(("prepare", "act"), CASES)
def test_what_was_kept_of_an_earlier_log_outlives_a_failure(prepare: Callable[[Path], bytes], act: Act, tmp_path: Path) -> None:
    prepare(tmp_path / "st")
    act(tmp_path / "st", Disk())
    earlier = kept(tmp_path / "st")
    assert any(earlier.values())
    prepare(tmp_path / "st")
    disk = FaultyDisk()
    disk.fail_next("truncate", errno.EIO)
    with pytest.raises(StoreError, match="Input/output error"):
        act(tmp_path / "st", disk)
    assert kept(tmp_path / "st") == earlier
    act(tmp_path / "st", Disk())
    assert len(kept(tmp_path / "st")) == 2 * len(earlier)  # control: it would have been kept beside that


def test_a_log_that_is_gone_is_repaired_with_nothing_aside_but_its_status(tmp_path: Path) -> None:
    gone(tmp_path / "st")
    mended(tmp_path / "st", Disk())
    assert kept(tmp_path / "st") == {"wal.damaged-0": b"", "status.damaged-0": STATUS}
