"""Threats to a log that somebody else may have made or moved: A1, A28 to A31. (A2 and A3 are in test_planted.py.)"""

import hashlib
import os
import zlib
from pathlib import Path

import pytest

from semel.adapters.file.floor import FileFloor
from semel.adapters.file.root import Root
from semel.adapters.file.store import FileStore
from semel.adapters.system import SystemClock
from semel.core.frame import PAYLOAD_BYTES_MAX, Point, TailKind, encode_frames, scan
from semel.errors import BadSessionId, LeaseLost, LogDamaged, NewerWriter, SessionBusy, StoreError
from semel.testing.faults import FaultyDisk
from storage.conftest import MakeStore, contents, plant, refused_unchanged
from storage.logs import LINEAGE, build, lineage_payload, payload, reference_log
from storage.test_names import SPELLINGS

LOG = reference_log()
HOSTILE = (*SPELLINGS, "\u202ebox", "a/../../b", "nul", "box.", "..\\..", "\uff0e\uff0e/x", "\u2024\u2024", "box\t")


@pytest.mark.anyio
async def test_a1_no_spelling_of_a_session_id_leaves_its_directory_or_meets_another(tmp_path: Path) -> None:
    root = tmp_path / "inner" / "state"
    store = FileStore(root, SystemClock(), known=frozenset())
    for session in HOSTILE:
        writer = await store.open(session)
        await writer.append([lineage_payload(session), payload(10)])
        await writer.close()
    made = {path.relative_to(tmp_path).parts[:3] for path in tmp_path.rglob("wal.log")}
    assert made == {("inner", "state", "sessions")}
    assert len(list((root / "sessions").iterdir())) == len(set(HOSTILE))
    assert len({path.name.lower() for path in (root / "sessions").iterdir()}) == len(set(HOSTILE))
    assert store.sessions() == sorted(HOSTILE)
    for session in ("", "\0", "a\0b", "x" * 201, "\ud800"):
        with pytest.raises(BadSessionId):
            await store.open(session)
    print(f"{len(HOSTILE)} spellings")
    assert len(HOSTILE) >= 24


def line(header: str, json: bytes, previous: str, *, length: int | None = None) -> bytes:
    """A frame as an attacker makes it: check and digest right, whatever it says."""
    head = f"{header} {len(json) if length is None else length} - ".encode()
    head = b"%b%08x " % (head, zlib.crc32(head))
    return b"%b%b %b\n" % (head, hashlib.sha256(previous.encode() + head + json).hexdigest().encode(), json)


HEAD = LOG.frames[-1].digest
FORGED = {
    "a length of 2^63": line("1 27 1767225600099 12 23 0", b"{}", HEAD, length=2**63),
    "a length of 2^63 - 1": line("1 27 1767225600099 12 23 0", b"{}", HEAD, length=2**63 - 1),
    "a length above the cap": line("1 27 1767225600099 12 23 0", b"{}", HEAD, length=PAYLOAD_BYTES_MAX + 1),
    "a length of 10^30": line("1 27 1767225600099 12 23 0", b"{}", HEAD, length=10**30),
    "a seq that wraps": line(f"1 {2**64 + 27} 1767225600099 12 23 0", b"{}", HEAD),
    "a seq of 2^63": line(f"1 {2**63} 1767225600099 12 23 0", b"{}", HEAD),
    "a seq below zero": line("1 -1 1767225600099 12 23 0", b"{}", HEAD),
    "a fence of 2^63": line(f"1 27 1767225600099 {2**63} 23 0", b"{}", HEAD),
    "synced ahead of itself": line("1 27 1767225600099 12 27 0", b"{}", HEAD),
    "a left of 2^63": line(f"1 27 1767225600099 12 23 {2**63}", b"{}", HEAD),
    "a second lineage line": line("2 0 1767225600099 12 23 0", lineage_payload().json, HEAD),
    "another session's frame": reference_log(lineage="f" * 32).data[LOG.frames[-1].offset :],
}


@pytest.mark.anyio
@pytest.mark.parametrize("name", FORGED)
async def test_a28_a_frame_that_no_writer_writes_is_refused_with_all_its_digests_right(
    name: str, make_store: MakeStore, root: Path
) -> None:
    plant(root, LOG.data + FORGED[name])
    await refused_unchanged(make_store, root, LogDamaged)


@pytest.mark.anyio
@pytest.mark.parametrize("version", [0, 4, 255, 2**62])
async def test_a28_an_intact_frame_of_another_version_is_a_newer_writer_and_never_cut(
    version: int, make_store: MakeStore, root: Path
) -> None:
    plant(root, LOG.data + line(f"{version} 27 1767225600099 12 23 0", b"{}", HEAD))
    await refused_unchanged(make_store, root, NewerWriter)


def test_a28_a_length_is_checked_before_anything_is_set_aside_for_it() -> None:
    """A short file that says it is long is no reason to reserve memory."""
    import tracemalloc

    data = LOG.data + FORGED["a length of 2^63 - 1"][:-3]
    tracemalloc.start()
    assert scan(data).tail.kind is TailKind.DAMAGED
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 20 * len(data)


@pytest.mark.anyio
async def test_a28_a_log_of_tiny_frames_opens_without_keeping_them(make_store: MakeStore, root: Path) -> None:
    tiny = build([([lineage_payload(), *(payload(1) for _ in range(20_000))], 1, True)])
    plant(root, tiny.data)
    seen = 0

    def take(frames: object) -> None:
        nonlocal seen
        seen += len(frames)  # type: ignore[arg-type]  # a sequence of frames

    writer = await make_store().open("box", take=take)
    assert (seen, len(writer.frames), writer.head) == (20_001, 0, 20_000)
    await writer.close()


@pytest.mark.anyio
async def test_a28_a_digest_is_no_signature_and_the_log_of_somebody_else_is_told_apart(make_store: MakeStore, root: Path) -> None:
    """Whoever can write the directory can write a valid log. So what such a log names is not loaded (engine: made_here)."""
    forged = encode_frames([lineage_payload(lineage=LINEAGE), payload(20)], Point(), at_ms=1, fence=1, synced=0)
    path = plant(root, forged.data)
    assert make_store().read("box").head == 1
    assert make_store().made_here("box")
    path.chmod(0o644)
    assert not make_store().made_here("box")


@pytest.mark.anyio
async def test_a29_a_floor_that_was_deleted_or_rolled_back_lets_no_older_build_in(make_store: MakeStore, root: Path) -> None:
    """Every gated frame says itself what it needs; the floor only says it earlier. The next open puts the floor right."""
    older, newer = frozenset({"a/v1"}), frozenset({"a/v1", "terminate/v1"})
    writer = await make_store(known=newer).open("box")
    await writer.append([lineage_payload(), payload(20)])
    await writer.append([payload(20, requires=("a/v1",))])
    await writer.append([payload(20, requires=("terminate/v1",))])
    await writer.close()
    floor = root / "wal-feature-floor"
    rolled_back = FileFloor(Root(root.parent / "other", FaultyDisk()))
    rolled_back.raise_to(["a/v1"])
    for spoil in (floor.unlink, lambda: floor.write_bytes(rolled_back.path.read_bytes())):
        spoil()
        before = contents(root)
        with pytest.raises(NewerWriter, match="terminate/v1"):
            await make_store(known=older).open("box")
        with pytest.raises(NewerWriter, match="terminate/v1"):
            make_store(known=older).read("box")
        assert contents(root) == before
        store = make_store(known=newer)
        store.floor.names()
        _forget_proven(root)
        await (await store.open("box")).close()
        assert store.floor.names() == newer


def _forget_proven(root: Path) -> None:
    """As a process that was not there when the floor was raised."""
    from semel.adapters.file import floor

    floor._proven.pop(str(root / "wal-feature-floor"), None)


@pytest.mark.anyio
async def test_a30_an_older_build_refuses_a_newer_root_by_its_floor_before_it_reads_a_record(
    make_store: MakeStore, root: Path
) -> None:
    class Watching(FaultyDisk):
        logs = 0

        def open_file(self, name: str, within: int, flags: int) -> int:
            self.logs += name == "wal.log"
            return super().open_file(name, within, flags)

    writer = await make_store().open("box")
    await writer.append([lineage_payload(), payload(20)])
    await writer.append([payload(20, requires=("a/v1",))])
    await writer.close()
    disk = Watching()
    older = make_store(disk, known=frozenset())
    for act in (lambda: older.open("box"), lambda: older.open("another")):
        with pytest.raises(NewerWriter, match="a/v1"):
            await act()
    with pytest.raises(NewerWriter, match="a/v1"):
        older.read("box")
    assert disk.logs == 0


@pytest.mark.anyio
@pytest.mark.parametrize("how", ["deleted", "replaced"])
async def test_a31_who_deletes_or_replaces_the_lock_file_makes_no_second_writer(
    how: str, make_store: MakeStore, place: Path
) -> None:
    first = await make_store().open("box")
    await first.append([lineage_payload(), payload(20)])
    (place / "lease").unlink()
    if how == "replaced":
        (place / "lease").write_bytes(b"")
    second = await make_store().open("box")
    for act in (first.check, lambda: first.note([payload(20)]), lambda: first.publish_status(b"{}")):
        with pytest.raises(LeaseLost):
            act()
    with pytest.raises(LeaseLost):
        await first.append([payload(20)])
    await second.append([payload(30)])
    await first.close()
    second.check()
    with pytest.raises(SessionBusy):
        await make_store().open("box")
    await second.close()


@pytest.mark.anyio
async def test_a31_a_lock_file_of_another_user_is_refused_and_cannot_stall(
    make_store: MakeStore, root: Path, place: Path
) -> None:
    await (await make_store().open("box")).close()

    class Others(FaultyDisk):
        def user(self) -> int:
            return os.getuid() + 1

    with pytest.raises(StoreError, match="belongs to user"):
        await make_store(Others()).open("box")
    assert (place.stat().st_mode | root.stat().st_mode) & 0o077 == 0, "nobody else can come near it"
