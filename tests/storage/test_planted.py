"""What somebody may have planted in a state directory is refused and left alone (A2, A3)."""

import os
from pathlib import Path

import pytest

from semel.adapters.file import disk
from semel.adapters.file.disk import Disk
from semel.errors import UnsafeStore
from storage.conftest import MakeStore, plant
from storage.logs import lineage_payload, payload, reference_log

LOG = reference_log()


@pytest.mark.anyio
@pytest.mark.parametrize("kind", ["symbolic link", "dangling link", "hard link", "fifo", "directory"])
@pytest.mark.parametrize(
    "name",
    ["sessions/box/wal.log", "sessions/box/lease", "sessions/box/status.json", "wal-feature-floor", "wal-feature-floor.lock"],
)
async def test_a2_what_is_planted_in_place_of_a_file_is_refused_and_untouched(
    name: str, kind: str, make_store: MakeStore, root: Path, tmp_path: Path
) -> None:
    plant(root, LOG.data)
    target = root / name
    target.unlink(missing_ok=True)
    outside = tmp_path / "outside"
    outside.write_bytes(LOG.data)
    if kind == "hard link":
        os.link(outside, target)
    elif kind == "fifo":
        os.mkfifo(target)
    elif kind == "directory":
        target.mkdir()
    else:
        target.symlink_to(outside if kind == "symbolic link" else tmp_path / "nowhere")
    with pytest.raises(UnsafeStore, match=str(target)):
        await make_store().open("box")
    assert outside.read_bytes() == LOG.data
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.anyio
async def test_a2_a_store_that_follows_links_is_caught(
    make_store: MakeStore, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk, "_FLAGS", disk._FLAGS & ~os.O_NOFOLLOW)
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        await test_a2_what_is_planted_in_place_of_a_file_is_refused_and_untouched(
            "sessions/box/wal.log", "symbolic link", make_store, root, tmp_path
        )


@pytest.mark.anyio
@pytest.mark.parametrize("level", ["sessions/box", "sessions"])
async def test_a2_a_link_in_place_of_a_directory_is_refused(
    level: str, make_store: MakeStore, root: Path, tmp_path: Path
) -> None:
    plant(root, LOG.data)
    (root / level).rename(tmp_path / "elsewhere")
    (root / level).symlink_to(tmp_path / "elsewhere")
    for act in (make_store().read, make_store().owner, make_store().read_status):
        with pytest.raises(UnsafeStore, match="is a link or no directory"):
            act("box")
    with pytest.raises(UnsafeStore):
        await make_store().open("box")


@pytest.mark.anyio
async def test_a2_a_file_planted_under_the_name_for_torn_bytes_is_neither_followed_nor_overwritten(
    make_store: MakeStore, root: Path, place: Path, tmp_path: Path
) -> None:
    plant(root, LOG.data[:-3])
    offset = LOG.frames[-1].offset
    (place / f"wal.torn-{offset}").symlink_to(tmp_path / "outside")
    await (await make_store().open("box")).close()
    assert not (tmp_path / "outside").exists()
    assert (place / f"wal.torn-{offset}-1").read_bytes() == LOG.data[offset:-3]


@pytest.mark.anyio
@pytest.mark.parametrize("name", ["", "sessions", "sessions/box", "sessions/box/wal.log", "sessions/box/lease"])
async def test_a3_what_everybody_may_write_or_somebody_else_owns_is_refused(name: str, make_store: MakeStore, root: Path) -> None:
    plant(root, LOG.data)
    await (await make_store().open("box")).close()
    target = root / name if name else root
    mode = target.stat().st_mode
    target.chmod(mode | 0o002)
    with pytest.raises(UnsafeStore, match="may be written by everybody"):
        await make_store().open("box")
    target.chmod(mode)

    class Other(Disk):
        def user(self) -> int:
            return 4711

    with pytest.raises(UnsafeStore, match="belongs to user"):
        await make_store(Other()).open("box")


@pytest.mark.anyio
async def test_everything_that_is_made_is_private(make_store: MakeStore, root: Path) -> None:
    store = make_store()
    writer = await store.open("box")
    await writer.append([lineage_payload(), payload(10, requires=("a/v1",))])
    writer.publish_status(b"{}")
    await writer.close()
    modes = {str(path.relative_to(root.parent)): path.stat().st_mode & 0o777 for path in [root, *root.rglob("*")]}
    assert set(modes.values()) == {0o600, 0o700}
    assert len(modes) == 8
