"""A log that is read piece by piece comes to what the same bytes come to at once, whatever is wrong with them."""

import random
from collections import Counter

import pytest

from semel.core.frame import Frame, TailKind, line_of, scan
from semel.core.open_log import Opening
from semel.core.reading import Reading, Verification
from semel.errors import LogDamaged, NewerWriter, SemelError
from semel.testing.conformance import newer_frame
from storage.logs import reference_log

LOG = reference_log()
PIECES = (1, 7, 100, 511, 512, 4096, 100_000)


def in_pieces(data: bytes, size: int, anchor: int = 0) -> tuple[tuple[Frame, ...], object, object, object]:
    reading, frames = Reading(), list[Frame]()
    for at in range(0, len(data), size):
        frames += reading.feed(data[at : at + size])
    return tuple(frames), reading.tail(anchor), reading.point, reading.features


def at_once(data: bytes, anchor: int = 0) -> tuple[tuple[Frame, ...], object, object, object]:
    found = scan(data, anchor)
    return found.frames, found.tail, found.point, found.features


def damaged_logs(number: int) -> list[bytes]:
    rng, logs = random.Random(3), [LOG.data, b"", newer_frame(LOG.data)]
    while len(logs) < number:
        at = rng.randrange(len(LOG.data))
        cut = LOG.data[:at]
        logs.append(rng.choice((cut, cut + bytes(rng.randrange(600)), cut + rng.randbytes(9) + LOG.data[at + 9 :])))
    return logs


def test_pieces_of_any_size_give_the_frames_and_the_tail_of_the_whole() -> None:
    kinds: Counter[str] = Counter()
    for data in damaged_logs(120):
        whole = at_once(data)
        kinds[str(scan(data).tail.kind)] += 1
        for size in PIECES:
            assert in_pieces(data, size) == whole, (len(data), size)
    print(f"{sum(kinds.values())} logs in pieces of {PIECES}: {dict(kinds)}")
    assert kinds.total() == 120
    assert min(kinds[kind] for kind in TailKind) >= 3
    assert in_pieces(LOG.data, 100, anchor=99) == at_once(LOG.data, anchor=99)


def test_a_frame_gives_back_the_bytes_of_its_line() -> None:
    assert b"".join(map(line_of, LOG.frames)) == LOG.data


def test_a_frame_that_needs_a_newer_build_is_refused_before_it_is_handed_out() -> None:
    verification, handed = Verification("box", "wal.log", frozenset({"early-return/v1"})), list[Frame]()
    gated = next(frame for frame in LOG.frames if "terminate/v1" in frame.requires)
    for at in range(0, gated.offset, 300):
        handed += verification.feed(LOG.data[at : min(at + 300, gated.offset)])
    with pytest.raises(NewerWriter, match="terminate/v1"):
        verification.feed(LOG.data[gated.offset :])
    assert len(handed) == gated.seq
    assert not any("terminate/v1" in frame.requires for frame in handed)


def test_damage_behind_a_contradiction_is_what_is_told() -> None:
    """The fold of a stream keeps what it found until the bytes are known to be whole."""
    frames = scan(LOG.data).frames
    opening = Opening("box")
    opening.take(frames)
    with pytest.raises(SemelError):
        opening.state()
    verification = Verification("box", "wal.log", frozenset({"early-return/v1", "terminate/v1"}))
    opening = Opening("box")
    opening.take(verification.feed(LOG.data[:-40] + b"x" * 40))
    with pytest.raises(LogDamaged):
        verification.end()
