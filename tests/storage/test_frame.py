"""The text frame: bytes that anybody can check with sha256sum (design 3 and 14)."""

import hashlib
import random
import subprocess
import zlib
from pathlib import Path

import pytest

from semel.core.frame import (
    PAYLOAD_BYTES_MAX,
    Frame,
    Lineage,
    Point,
    TailKind,
    encode_frames,
    encode_lineage,
    incomplete,
    scan,
    synced_upto,
    witnessed,
)
from semel.core.header import GENESIS
from semel.core.reading import verified
from semel.core.tail import NEWER_WRITER
from semel.errors import AppendRefused, LogDamaged, NewerWriter
from semel.ports.log import Payload
from storage.logs import LINEAGE, behind, build, lineage_payload, payload, reference_log

WORKED_EXAMPLE = (
    b"2 0 1767225600000 1 0 1 79 - 9a083638 74010b9e6e74fd1e14418a50638aead8d8544c078d3c04d7f1b103ba8965b72d "
    b'{"type":"lineage","lineage":"000102030405060708090a0b0c0d0e0f","session":"box"}\n'
    b"1 1 1767225600000 1 0 0 58 - 358779a4 aa3fbdc6f64edefdc1d5db603d650741837b85acc669fd3f2904d68e24cbd716 "
    b'{"type":"run_finished","run_id":"r1","reason":"completed"}\n'
)
BATCH = [lineage_payload(), Payload(json=b'{"type":"run_finished","run_id":"r1","reason":"completed"}')]
SHELL_LOOP = (
    "p=$(printf '0%.0s' {1..64}); while IFS= read -r l; do p=$(printf '%s%s %s' $p \"$(cut -d' ' -f1-9 <<<\"$l\")\" "
    '"$(cut -d\' \' -f11- <<<"$l")" | sha256sum | cut -c1-64); echo $p; done <wal.log'
)


def frame_line(header: str, json: bytes, previous: str) -> bytes:
    """A line that is intact whatever its header says."""
    head = f"{header} {len(json)} - ".encode() if header.count(" ") == 5 else f"{header} ".encode()
    head += b"%08x " % zlib.crc32(head)
    return b"%b%b %b\n" % (head, hashlib.sha256(previous.encode() + head + json).hexdigest().encode(), json)


def test_the_worked_example_of_the_design_is_written_byte_for_byte() -> None:
    encoded = encode_frames(BATCH, Point(), at_ms=1767225600000, fence=1, synced=0)
    assert encoded.data == WORKED_EXAMPLE
    assert encoded.point.offset == len(WORKED_EXAMPLE)
    assert encoded.point.seq == 2


def test_the_worked_example_is_read_back_as_it_was_written() -> None:
    encoded = encode_frames(BATCH, Point(), at_ms=1767225600000, fence=1, synced=0)
    found = scan(WORKED_EXAMPLE)
    assert found.frames == encoded.frames
    assert found.point == encoded.point
    assert found.tail.kind is TailKind.CLEAN
    assert [frame.digest[:8] for frame in found.frames] == ["74010b9e", "aa3fbdc6"]
    assert found.point.lineage == Lineage(lineage=LINEAGE, session="box")


def test_a_shell_with_sha256sum_finds_the_same_digests(tmp_path: Path) -> None:
    (tmp_path / "wal.log").write_bytes(WORKED_EXAMPLE)
    printed = subprocess.run(["bash", "-c", SHELL_LOOP], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert printed.stdout.split() == [frame.digest for frame in scan(WORKED_EXAMPLE).frames]


def test_the_reference_log_is_read_back_frame_by_frame() -> None:
    log = reference_log()
    found = scan(log.data)
    assert found.frames == log.frames
    assert [frame.seq for frame in found.frames] == list(range(27))
    assert {frame.ver for frame in found.frames} == {1, 2, 3}
    assert [log.data[frame.offset : frame.offset + 2] for frame in found.frames] == [b"%d " % f.ver for f in found.frames]
    print(f"reference log: {len(log.data)} bytes, {len(log.frames)} frames, {len(log.writes)} writes")


def test_the_rest_of_a_log_can_be_scanned_from_a_point() -> None:
    log = reference_log()
    for cut in log.boundaries:
        first = scan(log.data[:cut])
        rest = scan(log.data[cut:], start=first.point)
        assert first.frames + rest.frames == log.frames
        assert rest.tail.kind is TailKind.CLEAN
        assert rest.tail.offset == len(log.data)
        assert rest.point == scan(log.data).point


def test_holes_are_judged_by_their_place_in_the_file_also_when_the_scan_starts_behind_it() -> None:
    log = reference_log()
    start = scan(log.data[: log.boundaries[5]]).point
    torn = log.data[: log.boundaries[-2] + 3] + bytes(-(log.boundaries[-2] + 3) % 512)
    sector = len(torn) - len(torn) % 512
    whole = log.data[:sector] + bytes(700)
    for data in (torn, whole):
        assert scan(data).tail == scan(data[start.offset :], start=start).tail


@pytest.mark.parametrize(
    ("batch", "why"),
    [
        ([], "empty"),
        ([lineage_payload(), lineage_payload()], "lineage"),
        ([payload(10)], "lineage"),
        ([Payload(json=b'{"type":"lineage"}', lineage=True)], "lineage"),
        ([Payload(json=encode_lineage(LINEAGE.upper(), "box"), lineage=True)], "lineage"),
        ([Payload(json=encode_lineage(LINEAGE, "box"), requires=("a/v1",), lineage=True)], "lineage"),
        ([lineage_payload(), Payload(json=b"")], "one line"),
        ([lineage_payload(), Payload(json=b"{\n}")], "one line"),
        ([lineage_payload(), Payload(json=b'{"a":"\0"}')], "one line"),
        ([lineage_payload(), Payload(json=b"{}", requires=("b/v1", "a/v1"))], "sorted"),
        ([lineage_payload(), Payload(json=b"{}", requires=("a/v1", "a/v1"))], "sorted"),
        ([lineage_payload(), Payload(json=b"{}", requires=("a b",))], "sorted"),
        ([lineage_payload(), Payload(json=b"{}", requires=("-",))], "sorted"),
        ([lineage_payload(), Payload(json=b"x" * (PAYLOAD_BYTES_MAX + 1))], "bytes"),
    ],
)
def test_a_batch_that_no_log_may_hold_is_refused(batch: list[Payload], why: str) -> None:
    with pytest.raises(AppendRefused, match=why):
        encode_frames(batch, Point(), at_ms=1, fence=1, synced=0)


def test_a_payload_of_exactly_the_cap_is_framed_and_read() -> None:
    big = Payload(json=b'"' + b"x" * (PAYLOAD_BYTES_MAX - 2) + b'"')
    encoded = encode_frames([lineage_payload(), big], Point(), at_ms=1, fence=1, synced=0)
    assert scan(encoded.data).frames == encoded.frames


def test_an_intact_frame_of_an_unknown_version_is_a_newer_writer_also_at_the_end() -> None:
    log = reference_log()
    digest = log.frames[-1].digest
    for ver in (0, 4, 5, 17, 2**63 - 1):
        data = log.data + frame_line(f"{ver} 27 1767225600000 12 23 0", b'{"type":"new"}', digest)
        tail = scan(data).tail
        assert (tail.kind, tail.offset, tail.reason) == (TailKind.DAMAGED, len(log.data), NEWER_WRITER)
        assert scan(data, anchor=40).tail.reason == NEWER_WRITER
        assert scan(data[:-3]).tail.reason == NEWER_WRITER  # torn, but only a newer writer can have begun it


def test_a_first_line_that_says_no_lineage_is_a_newer_writer() -> None:
    for json in (b'{"type":"lineage","identity":"x"}', b"not json", b'{"type":"lineage","lineage":"xyz","session":"box"}'):
        tail = scan(frame_line("2 0 1 1 0 0", json, "0" * 64)).tail
        assert (tail.kind, tail.reason) == (TailKind.DAMAGED, NEWER_WRITER)


@pytest.mark.parametrize(
    ("header", "why"),
    [
        ("1 28 1767225600000 12 23 0", "missing"),
        ("1 26 1767225600000 12 23 0", "second time"),
        ("2 27 1767225600000 12 23 0", "contradict"),
        ("1 27 1767225600000 11 23 0", "contradict"),  # the fence falls
        ("1 27 1767225600000 12 22 0", "contradict"),  # synced falls
        ("1 27 1767225600000 12 27 0", "contradict"),  # synced before it was written
        ("3 27 1767225600000 12 23 0", "contradict"),  # gated by nothing
        ("1 27 9223372036854775808 12 23 0", "contradict"),
        ("1 27 1767225600000 12 23 9223372036854775808", "contradict"),
        ("1 27 1767225600000 012 23 0", "check"),
        ("1 27 1767225600000 12 +23 0", "check"),
        ("1 27 1767225600000 12 23 0 14 a/v1", "contradict"),
        ("3 27 1767225600000 12 23 0 14 b/v1,a/v1", "contradict"),
        ("3 27 1767225600000 12 23 0 14 A", "check"),
        ("1 27 1767225600000 12 23 0 15 -", "does not end"),
        ("1 27 1767225600000 12 23 0 67108865 -", "does not end"),
    ],
)
def test_an_intact_frame_that_cannot_come_next_is_damage(header: str, why: str) -> None:
    log = reference_log()
    tail = scan(log.data + frame_line(header, b'{"type":"new"}', log.frames[-1].digest)).tail
    assert tail.kind is TailKind.DAMAGED
    assert tail.offset == len(log.data)
    assert why in tail.reason


def test_a_lineage_line_anywhere_but_first_is_damage() -> None:
    log = reference_log()
    line = frame_line("2 0 1767225600000 12 0 0", encode_lineage(LINEAGE, "box"), log.frames[-1].digest)
    assert scan(log.data + line).tail.kind is TailKind.DAMAGED
    assert scan(frame_line("1 0 1 1 0 0", b"{}", "0" * 64)).tail.kind is TailKind.DAMAGED
    assert scan(frame_line("1 1 1 1 0 0", b"{}", "0" * 64)).tail.kind is TailKind.DAMAGED


def test_a_hostile_length_allocates_nothing_and_is_refused() -> None:
    log = reference_log()
    for length in ("9223372036854775807", "9" * 19, "67108865", "9" * 400):
        data = log.data + f"1 27 1 12 23 0 {length} - ".encode()
        assert scan(data).tail.kind is TailKind.DAMAGED


def test_writes_that_were_cut_short_are_named_frame_by_frame() -> None:
    log = reference_log()
    assert incomplete(log.frames) == frozenset()
    cut = log.frames[:-1]  # the last write had three frames
    assert incomplete(cut) == {24, 25}
    assert incomplete(log.frames[:1]) == {0}
    assert incomplete(()) == frozenset()


def test_a_later_tenure_never_completes_the_write_of_an_earlier_one() -> None:
    first = build([([lineage_payload(), payload(10)], 1, True), ([payload(10), payload(10), payload(10)], 1, True)])
    kept = first.frames[:4]  # left 1 0 | 2 1
    start = scan(first.data[: first.frames[4].offset]).point
    later = build([([payload(10)], 2, True)], start=start, durable=1)  # its left is 0, as the lost frame's was
    assert [frame.left for frame in (*kept, *later.frames)] == [1, 0, 2, 1, 0]
    assert incomplete((*kept, *later.frames)) == {2, 3}
    same = build([([payload(10)], 1, True)], start=start, durable=1)
    assert incomplete((*kept, *same.frames)) == frozenset()  # of one tenure, this is how a whole write looks


def test_counts_that_jump_within_a_tenure_leave_the_write_incomplete() -> None:
    def frames(*lefts: int) -> list[Frame]:
        return [
            Frame(ver=1, seq=n, at_ms=1, fence=1, synced=0, left=left, requires=(), digest="", payload=b"", offset=n)
            for n, left in enumerate(lefts)
        ]

    assert incomplete(frames(2, 0, 0)) == {0}
    assert incomplete(frames(2, 1, 1, 0)) == {0, 1}
    assert incomplete(frames(0, 3, 2, 1)) == {1, 2, 3}
    assert incomplete(frames(0, 0, 1, 0)) == frozenset()


def test_the_last_frame_testifies_to_what_was_durable() -> None:
    log = reference_log()
    assert synced_upto(()) == 0
    assert synced_upto(log.frames) == 23
    assert synced_upto(log.frames[:3]) == 0


def test_verified_raises_by_name_and_place() -> None:
    log = reference_log()
    known = frozenset({"early-return/v1", "terminate/v1"})
    assert verified(log.data, "box", "wal.log", known).frames == log.frames
    with pytest.raises(NewerWriter, match=r"record 15 of wal\.log needs terminate/v1"):
        verified(log.data, "box", "wal.log", known - {"terminate/v1"})
    with pytest.raises(LogDamaged, match="not of 'other'"):
        verified(log.data, "other", "wal.log", known)
    with pytest.raises(LogDamaged) as caught:
        verified(log.data[:-1] + b"x", "box", "wal.log", known)
    assert (caught.value.path, caught.value.offset, caught.value.seq) == ("wal.log", log.frames[-1].offset, 26)
    with pytest.raises(LogDamaged, match="record 27 was durable"):
        verified(log.data, "box", "wal.log", known, anchor=27)


def test_a_status_document_witnesses_its_head_and_garbage_witnesses_nothing() -> None:
    assert witnessed(b'{"schema":1,"head_seq":20,"state":"completed"}') == 20
    for nothing in (None, b"", b"garbage", b'{"head_seq":"x"}', b'{"head_seq":-4}', b"[]", b'{"head_seq":1e400}', b"\xff"):
        assert witnessed(nothing) == 0


def test_verify_can_list_every_proven_frame_behind_damage() -> None:
    log = reference_log()
    at = log.frames[9].offset
    damaged = log.data[: at + 150] + b"~" + log.data[at + 151 :]
    found = behind(damaged, scan(damaged).tail.offset)
    assert [header.seq for header in found] == list(range(9, 27))  # the damaged payload's own header is intact
    glued = log.data[: at + 40] + log.data[at:]
    found = behind(glued, scan(glued).tail.offset)
    assert [(header.seq, header.whole) for header in found] == [(seq, True) for seq in range(9, 27)]


def test_a_log_line_quoted_inside_a_record_is_not_listed_as_a_frame_of_its_own() -> None:
    quoted = WORKED_EXAMPLE.splitlines()[1].replace(b'"', b'\\"')
    log = build([([lineage_payload(), Payload(json=b'{"text":"' + quoted + b'"}')], 1, True)])
    assert [header.seq for header in behind(log.data, 0)] == [0, 1]


def test_random_batches_survive_the_round_trip() -> None:
    rng = random.Random(7)
    for _ in range(300):
        plan = [([lineage_payload()], 1, True)]
        fence = 1
        for _ in range(rng.randrange(8)):
            fence += rng.randrange(3)
            batch = [
                payload(rng.randrange(200), requires=tuple(sorted({f"f{rng.randrange(4)}/v1" for _ in range(rng.randrange(3))})))
                for _ in range(rng.randrange(1, 5))
            ]
            plan.append((batch, fence, rng.random() < 0.7))
        log = build(plan)
        assert scan(log.data).frames == log.frames


@pytest.mark.parametrize(
    "stamps", ["  ", "1  ", " 1 ", "  0"], ids=["all", "fence and synced", "at_ms and synced", "at_ms and fence"]
)
def test_a28_a_number_that_is_missing_is_none_also_in_the_first_line_that_is_read(stamps: str) -> None:
    lineage = BATCH[0].json
    assert scan(frame_line(f"2 0 {stamps} 0", lineage, GENESIS)).tail.kind is TailKind.DAMAGED
    first = frame_line("2 0 5 0 0 0", lineage, GENESIS)
    start = scan(first).point
    next_line = frame_line(f"1 1 {stamps} 0", b'{"type":"x"}', start.digest)
    assert scan(first + next_line).tail.kind is TailKind.DAMAGED
    assert scan(next_line, start=start).tail.kind is TailKind.DAMAGED
    assert scan(frame_line("1 1 1 0 0 0", b'{"type":"x"}', start.digest), start=start).tail.kind is TailKind.CLEAN


def test_a_tenure_that_goes_back_is_no_frame_also_where_nothing_else_of_the_header_tells() -> None:
    """What the frames of one write have in common is read once, and the tenure is part of it."""
    first = encode_frames([lineage_payload(), payload(10)], Point(), at_ms=1, fence=2, synced=0)
    for fence in (1, 2, 3):
        later = encode_frames([payload(10)], first.point, at_ms=1, fence=fence, synced=0)
        found = scan(first.data + later.data)
        assert [frame.fence for frame in found.frames] == ([2, 2] if fence < 2 else [2, 2, fence])


def test_a_clock_at_the_epoch_is_a_clock() -> None:
    log = encode_frames([lineage_payload(), payload(10)], Point(), at_ms=0, fence=1, synced=0)
    assert [frame.at_ms for frame in scan(log.data).frames] == [0, 0]
