"""A log that is read piece by piece comes to what the same bytes come to at once, whatever is wrong with them."""

import random
from collections import Counter
from collections.abc import Sequence

import pytest

from semel.core import reading as reading_module
from semel.core.frame import Frame, Point, TailKind, encode_frames, good_frames, line_of, scan
from semel.core.header import PAYLOAD_BYTES_MAX
from semel.core.open_log import Opening
from semel.core.reading import Reading, Verification
from semel.core.tail import NEWER_WRITER
from semel.errors import LogDamaged, NewerWriter, SemelError
from semel.ports.log import Payload
from semel.testing.conformance import newer_frame
from storage.logs import lineage_payload, payload, reference_log
from storage.sweeps import power_loss_images
from storage.test_frame import frame_line

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


def test_a_long_hole_behind_the_good_frames_is_not_kept_and_judged_all_the_same() -> None:
    """As a file that was made longer than it is written, or a device that lost a whole write, leaves it."""
    kinds: Counter[str] = Counter()
    line = LOG.data[: LOG.frames[1].offset]
    for frame in (LOG.frames[0], LOG.frames[5], LOG.frames[20]):
        cut = LOG.data[: frame.offset]
        to_sector = bytes(-len(cut) % 512)
        for hole in (to_sector, to_sector + bytes(512 * 40), to_sector + bytes(512 * 40 + 7), to_sector + bytes(512 * 3)):
            for behind in (b"", line, b"x" * 700, line + bytes(512 * 9), b"x" + bytes(600), LOG.data[frame.offset :]):
                data = cut + hole + behind
                whole = at_once(data)
                kinds[str(scan(data).tail.kind)] += 1
                for size in (512, 1024, 4096, 100_000):
                    assert in_pieces(data, size) == whole, (frame.seq, len(hole), behind[:9], size)
                    assert in_pieces(data, size, anchor=3) == at_once(data, anchor=3)
    print(f"{kinds.total()} logs with holes: {dict(kinds)}")
    assert min(kinds["torn"], kinds["damaged"]) >= 20
    reading = Reading()
    for _ in range(1000):
        reading.feed(bytes(4096))
    assert sum(map(len, reading._rest)) <= 4096


def test_a_line_that_was_cut_at_a_sector_and_the_hole_behind_it_are_judged_by_where_they_are_in_the_log() -> None:
    torn = 0
    for cut in range(512, len(LOG.data), 512):
        for by in (-1, 0, 1):
            data = LOG.data[: cut + by] + bytes(512 - by)
            assert in_pieces(data, 100) == in_pieces(data, 4096) == at_once(data)
            torn += scan(data).tail.kind is TailKind.TORN
    assert torn >= 11


def test_what_follows_a_whole_line_that_is_no_frame_is_not_kept() -> None:
    reading = Reading()
    reading.feed(LOG.data[:900] + b"~" + LOG.data[901:])
    for _ in range(1000):
        reading.feed(LOG.data)
    assert sum(map(len, reading._rest)) < 5000
    assert reading.tail().kind is TailKind.DAMAGED


def test_holes_of_a_power_loss_are_judged_in_pieces_as_they_are_at_once_to_the_last_word() -> None:
    """Also with a second fault on top. The tail is told of as the first thing that is wrong with it."""
    rng, kinds, reasons = random.Random(5), Counter[str](), Counter[str]()
    for number, frame in enumerate(LOG.frames[2::3]):
        for image in power_loss_images(frame.offset, LOG, 512, 12, seed=number):
            spoilt = bytearray(image)
            if len(image) > frame.offset and rng.random() < 0.5:
                spoilt[rng.randrange(frame.offset, len(image))] ^= 1 << rng.randrange(8)
            whole = scan(bytes(spoilt)).tail
            kinds[str(whole.kind)] += 1
            reasons["".join(letter for letter in whole.reason if not letter.isdigit())] += 1
            for size in (1, 100, 512, 700):
                assert in_pieces(bytes(spoilt), size) == at_once(bytes(spoilt)), (frame.seq, size)
    print(f"{kinds.total()} images: {dict(kinds)}, {len(reasons)} reasons")
    assert kinds.total() == 108
    assert min(kinds["torn"], kinds["damaged"]) >= 20
    assert len(reasons) >= 6


def test_what_stands_behind_a_hole_is_not_kept_once_it_shows_that_something_here_was_durable() -> None:
    """As a sector leaves it that a device lost in the middle of a long log."""
    start = LOG.frames[6].offset + 20
    lost = -start % 512 + start
    data = LOG.data[:lost] + bytes(512) + LOG.data[lost + 512 :]
    reading = Reading()
    for at in range(0, len(data), 200):
        reading.feed(data[at : at + 200])
    for _ in range(1000):
        reading.feed(LOG.data)
    assert sum(map(len, reading._rest)) < 3000
    assert reading.tail() == scan(data).tail
    assert reading.tail().kind is TailKind.DAMAGED


def test_a_line_of_a_newer_build_is_called_that_however_it_comes_also_with_nuls_in_it() -> None:
    """And where it is torn: what looks like a hole with damage behind it is the rest of a line that only a newer build began."""
    cut = LOG.data[: LOG.frames[9].offset]
    text = b"x" * 80 + bytes(600) + b"1 2 3" + bytes(30) + b"more"
    line, reasons = frame_line("4 9 1767225600000 12 8 0", text, LOG.frames[8].digest), Counter[str]()
    for behind in (
        line,
        line[:-1],
        line + b"\n",
        line + LOG.data,
        line[:400] + b"\n" + line[400:500],
        line[:400] + b"\n" + LOG.data,
    ):
        whole = at_once(cut + behind)
        reasons[scan(cut + behind).tail.reason] += 1
        for size in (1, 7, 100, 300, 5000):
            assert in_pieces(cut + behind, size) == whole, (len(behind), size)
    assert reasons.pop(NEWER_WRITER) == 5
    assert reasons.total() == 1


def test_what_follows_an_empty_line_is_not_kept_either() -> None:
    reading = Reading()
    reading.feed(LOG.data[: LOG.frames[5].offset] + b"\n")
    for _ in range(1000):
        reading.feed(LOG.data)
    assert sum(map(len, reading._rest)) < 5000
    assert (reading.tail().kind, reading.tail().offset) == (TailKind.DAMAGED, LOG.frames[5].offset)


@pytest.mark.parametrize("start", [b"x", b"1 27 x", b"4 27 1767225600099 12 23 0 9 - 00000000 "])
def test_of_bytes_without_an_end_no_more_is_kept_than_the_longest_line(start: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading_module, "_LINE_BYTES_MOST", 50_000)
    data = LOG.data + start + b"x" * 2_000_000
    reading = Reading()
    for at in range(0, len(data), 4096):
        reading.feed(data[at : at + 4096])
        assert sum(map(len, reading._rest)) <= 2 * 50_000 + 4096
    assert reading.tail() == scan(data).tail
    assert reading.tail().kind is TailKind.DAMAGED


def test_bytes_without_an_end_that_may_begin_a_frame_are_read_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A list of features has no bound, so only what follows can tell."""
    monkeypatch.setattr(reading_module, "_LINE_BYTES_MOST", 50_000)
    long = b"3 27 1767225600099 12 23 0 9 " + b"a" * 200_000
    for data in (LOG.data + long, LOG.data + long + b"A" + b"a" * 100_000):
        assert in_pieces(data, 4096) == at_once(data)
    assert scan(LOG.data + long).tail.kind is TailKind.TORN


def test_a_hole_that_begins_where_a_piece_does_is_a_tail_like_any_other() -> None:
    """Good frames to the last byte of a piece, and NULs from the first of the next: as a file that was only made longer."""
    for frame in (LOG.frames[1], LOG.frames[5], LOG.frames[20]):
        for size in (512, 1024, 512 * 40):
            reading = Reading()
            reading.feed(LOG.data[: frame.offset])
            for _ in range(3):
                reading.feed(bytes(size))
            assert reading.tail() == scan(LOG.data[: frame.offset] + bytes(3 * size)).tail
            assert reading.tail().kind is TailKind.TORN


def test_a_line_as_long_as_a_line_may_be_is_read_in_pieces() -> None:
    lines = encode_frames(
        [lineage_payload(), Payload(json=b'"' + b"x" * (PAYLOAD_BYTES_MAX - 2) + b'"')], Point(), at_ms=1, fence=1, synced=0
    )
    reading, size = Reading(), PAYLOAD_BYTES_MAX // 8
    frames = [frame for at in range(0, len(lines.data), size) for frame in reading.feed(lines.data[at : at + size])]
    assert [len(frame.payload) for frame in frames][1:] == [PAYLOAD_BYTES_MAX]
    assert reading.tail().kind is TailKind.CLEAN


def bytes_looked_at(data: bytes, size: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many bytes were searched for frames until a log was read in pieces of this size."""
    looked = 0

    def counting(piece: bytes, point: Point, at: int = 0) -> tuple[Sequence[Frame], Point]:
        nonlocal looked
        looked += len(piece) - at
        return good_frames(piece, point, at)

    with monkeypatch.context() as patch:
        patch.setattr("semel.core.reading.good_frames", counting)
        assert in_pieces(data, size) == at_once(data)
    return looked


def test_reading_takes_time_in_proportion_to_the_log_whatever_it_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long line is looked at again once it has doubled, and what no frame can follow is not looked at again."""
    cut = LOG.data[: LOG.frames[20].offset]
    to_sector = bytes(-len(cut) % 512 + 512)
    line = encode_frames([lineage_payload(), payload(200_000)], Point(), at_ms=1, fence=1, synced=0).data
    write = encode_frames([payload(100)] * 300, scan(cut).point, at_ms=1_767_225_700_000, fence=12, synced=19).data
    logs = {
        "one write that lost a sector": cut + write[: 512 - len(cut) % 512] + bytes(512) + write[1024 - len(cut) % 512 :],
        "one long line": line,
        "a long line without an end": line[:-1],
        "lines behind a hole": cut + to_sector + 30 * LOG.data,
        "lines without an end behind a hole": cut + to_sector + 30 * LOG.data.replace(b"\n", b"~"),
        "lines behind one that is no frame": cut + b"~\n" + 30 * LOG.data,
    }
    looked = {name: bytes_looked_at(data, 700, monkeypatch) / len(data) for name, data in logs.items()}
    print({name: round(ratio, 2) for name, ratio in looked.items()})
    assert max(looked.values()) < 3
    assert looked["lines behind a hole"] < 0.2  # what was good, and nothing behind it


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
