"""B34: nine ways in which logs of other programs were found damaged, applied to ours."""

from pathlib import Path

import pytest

from semel.core.frame import encode_frames, scan
from semel.errors import LogDamaged
from storage.conftest import MakeStore, plant, refused_unchanged
from storage.logs import START_MS, Log, behind, build, lineage_payload, payload

NOTES = build([([lineage_payload(), payload(40)], 1, True)] + [([payload(40)], 1, True) for _ in range(7)])  # records 1 to 8
NINTH = encode_frames([payload(200)], scan(NOTES.data).point, at_ms=START_MS, fence=1, synced=8).data
AT_5 = NOTES.frames[5].offset
LINE_4 = NOTES.data[NOTES.frames[4].offset : AT_5]


def _records(log: Log, *seqs: int) -> list[bytes]:
    return [log.frames[seq].payload for seq in seqs]


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("name", "data", "kept"),
    [
        ("torn-tail", NOTES.data + NINTH[:150], 8),
        ("nul-tail", NOTES.data + bytes(5000), 8),
        ("no-final-newline", NOTES.data[:-1], 7),
        ("zero-length", b"", 0),
        ("torn, and the next writer appends", NOTES.data[: AT_5 + 120], 4),
    ],
)
async def test_b34_a_tail_that_was_never_acknowledged_is_cut_and_kept_aside(
    name: str, data: bytes, kept: int, make_store: MakeStore, root: Path, place: Path
) -> None:
    path = plant(root, data)
    writer = await make_store().open("box")
    assert [frame.payload for frame in writer.frames[1:]] == _records(NOTES, *range(1, kept + 1))
    aside = list(place.glob("wal.torn-*"))
    assert b"".join(file.read_bytes() for file in aside) == data[len(path.read_bytes()) :]
    await writer.append([payload(70)] if writer.frames else [lineage_payload(), payload(70)])
    await writer.close()
    found = scan(path.read_bytes())
    assert found.point.seq == kept + 2
    assert len(found.frames) == kept + 2  # the new record does not stick to the old one


AT_4 = AT_5 - len(LINE_4)
TO_5, FROM_5 = NOTES.data[:AT_5], NOTES.data[AT_5:]
DAMAGED = {
    "torn-then-appended": (TO_5 + FROM_5[:120] + FROM_5, AT_5, "end where its header", [5, 5, 6, 7, 8]),
    "nul-block-mid": (TO_5 + bytes(-AT_5 % 512 + 512) + FROM_5, AT_5, "was durable", [5, 6, 7, 8]),
    "nul-block-mid, off the grid": (TO_5 + bytes(300) + FROM_5, AT_5, "not whole unwritten sectors", [5, 6, 7, 8]),
    "raw-newline-inside": (TO_5[:-20] + b"\n" + TO_5[-19:] + FROM_5, AT_4, "end where its header", [4, 5, 6, 7, 8]),
    "bad-middle": (NOTES.data[:AT_4] + b"{not a frame}\n" + FROM_5, AT_4, "check", [5, 6, 7, 8]),
    "dup-seq": (TO_5 + LINE_4 + FROM_5, AT_5, "two programs", [4, 5, 6, 7, 8]),
}


@pytest.mark.anyio
@pytest.mark.parametrize("name", DAMAGED)
async def test_b34_damage_among_acknowledged_records_is_loud_and_what_follows_can_be_listed(
    name: str, make_store: MakeStore, root: Path
) -> None:
    data, offset, why, readable = DAMAGED[name]
    plant(root, data)
    await refused_unchanged(make_store, root, LogDamaged)
    with pytest.raises(LogDamaged) as caught:
        await make_store().open("box")
    assert caught.value.offset == offset
    assert why in caught.value.reason
    assert [header.seq for header in behind((root / "sessions" / "box" / "wal.log").read_bytes(), offset)] == readable
