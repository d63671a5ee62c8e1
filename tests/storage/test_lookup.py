"""A frame is found again by its seq, from wherever and in any order; what changed since it was verified is refused."""

import random

import pytest

from semel.core.frame import encode_frames, scan
from semel.core.header import Point, encode_lineage
from semel.core.lookup import AHEAD_BYTES, Lookup
from semel.errors import InvariantBroken, LogDamaged
from semel.ports.log import Payload


def log_of(sizes: list[int]) -> bytes:
    payloads = [Payload(json=encode_lineage("0" * 32, "s"), lineage=True)]
    payloads += [Payload(json=b'{"type":"x","text":"%b"}' % (b"x" * size)) for size in sizes]
    return encode_frames(payloads, Point(), at_ms=1, fence=1, synced=0).data


def lookup_of(data: bytes) -> Lookup:
    lookup = Lookup("wal.log")
    lookup.add(scan(data).frames)
    return lookup


@pytest.mark.parametrize("last", [0, AHEAD_BYTES * 3])
def test_every_frame_is_found_in_any_order(last: int) -> None:
    rng = random.Random(5)
    data = log_of([rng.choice((10, 700, AHEAD_BYTES, AHEAD_BYTES * 2)) for _ in range(80)] + [last])
    lookup, frames, reads = lookup_of(data), scan(data).frames, list[int]()

    def read(offset: int, limit: int) -> bytes:
        reads.append(limit)
        return data[offset : offset + limit]

    order = list(range(len(frames)))
    rng.shuffle(order)
    for seq in [*order, *range(len(frames)), *reversed(range(len(frames)))]:
        assert lookup.frame(seq, read) == frames[seq]
    assert max(reads) <= AHEAD_BYTES * 12, "no more is read than twice a line, the one before it, and what is read ahead"
    with pytest.raises(InvariantBroken):
        lookup.frame(len(frames), read)


def test_reading_on_costs_one_look_at_the_file_for_many_frames() -> None:
    data, reads = log_of([100] * 1_000), list[int]()
    lookup = lookup_of(data)
    for seq in range(1_001):
        lookup.frame(seq, lambda offset, limit: (reads.append(offset), data[offset : offset + limit])[1])
    assert len(reads) <= 2 * (len(data) // AHEAD_BYTES + 1)


def test_the_frame_that_was_asked_for_last_is_at_hand() -> None:
    data, reads = log_of([100] * 9), list[int]()
    lookup = lookup_of(data)
    for seq in (4, 4, 9, 4):
        lookup.frame(seq, lambda offset, limit: (reads.append(offset), data[offset : offset + limit])[1])
    assert len(reads) == 1


def test_a_last_line_that_is_longer_than_what_is_read_ahead_is_found_in_a_few_looks() -> None:
    data, reads = log_of([10, AHEAD_BYTES * 8]), list[int]()

    def read(offset: int, limit: int) -> bytes:
        reads.append(limit)
        assert len(reads) <= 5, "each look reads twice as much as the one before"
        return data[offset : offset + limit]

    assert lookup_of(data).frame(2, read) == scan(data).frames[2]


def test_frames_are_added_in_order_without_a_gap_or_a_repeat() -> None:
    data = log_of([10] * 5)
    frames, lookup = scan(data).frames, Lookup("wal.log")
    lookup.add(frames[:3])
    for wrong in (frames[:1], frames[2:], frames[4:]):
        with pytest.raises(InvariantBroken, match="added in order"):
            lookup.add(wrong)
    lookup.add(())
    lookup.add(frames[3:])
    assert [lookup.frame(seq, lambda offset, limit: data[offset : offset + limit]) for seq in range(6)] == list(frames)


def test_what_lies_behind_the_frames_that_it_was_told_of_is_read_again_once_it_is_told() -> None:
    """It was not acknowledged yet, so that something else may be written there."""
    first, then = log_of([10, 10, 10]), log_of([10, 10, 20])
    old, new, lookup = scan(first).frames, scan(then).frames, Lookup("wal.log")
    assert first.startswith(then[: new[3].offset])
    lookup.add(old[:3])
    assert lookup.frame(1, lambda offset, limit: first[offset : offset + limit]) == old[1]
    lookup.add(new[3:])
    assert lookup.frame(3, lambda offset, limit: then[offset : offset + limit]) == new[3] != old[3]


def test_a_frame_that_changed_since_it_was_verified_is_refused_by_place() -> None:
    data = log_of([300] * 5)
    frames = scan(data).frames
    for frame in frames[1:]:
        for at in (frame.offset + 2, frame.offset + 60, frame.offset + 250):
            changed = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
            with pytest.raises(LogDamaged, match="reads otherwise now"):
                lookup_of(data).frame(frame.seq, lambda offset, limit, now=changed: now[offset : offset + limit])
    with pytest.raises(LogDamaged):
        lookup_of(data).frame(3, lambda _offset, _limit: b"")
