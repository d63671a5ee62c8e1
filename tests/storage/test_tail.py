"""The tail rule against every prefix, every flipped bit, holes, residue and surgery (proof T3 to T9).

Counts are printed and pinned, so that a sweep cannot shrink unseen.
"""

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semel.core.frame import Point, TailKind, encode_frames, scan
from semel.core.tail import NEWER_WRITER, settled
from storage.logs import START_MS, Log, behind, build, lineage_payload, payload, reference_log
from storage.sweeps import (
    ZEROS,
    ScanFunction,
    bit_flips,
    bursts,
    power_loss_images,
    prefixes,
    residues,
    surgery,
    tally,
    verdict,
    zero_tails,
)
from storage.test_frame import frame_line

LOG = reference_log()
FRAMES = len(LOG.frames)


def test_every_single_bit_flip_of_an_acknowledged_log_is_refused() -> None:
    counts = bit_flips(LOG)
    for name, count in counts.items():
        print(f"{name:14} {dict(count)}")
    assert tally(counts.values()) == {"refused": 8 * 5989}
    assert counts["final newline"] == {"refused": 8}
    assert counts["last batch"] == {"refused": 8 * 504}
    assert set(counts) == {
        *("ver", "seq", "at_ms", "fence", "synced", "left", "len", "requires", "check", "digest", "json", "newline"),
        *("last batch", "final newline"),
    }


def test_every_prefix_is_clean_on_a_boundary_and_torn_within_a_frame() -> None:
    assert prefixes(LOG) == {"clean": FRAMES + 1, "torn": 5989 - FRAMES}


def test_t3_t4_every_prefix_and_every_bit_flip_of_a_log_of_twelve_kib() -> None:
    """Each flip is read from where its frame starts: the frames before it are as they were."""
    log = reference_log(size=410)
    assert prefixes(log) == {"clean": FRAMES + 1, "torn": len(log.data) - FRAMES}
    kinds: Counter[str] = Counter()
    for frame, end in zip(log.frames, log.boundaries[1:], strict=True):
        start, line = scan(log.data[: frame.offset]).point, log.data[frame.offset : end]
        for position in range(len(line)):
            for bit in range(8):
                flipped = line[:position] + bytes([line[position] ^ 1 << bit]) + line[position + 1 :]
                found = scan(flipped + log.data[end:], start=start)
                assert found.frames == ()
                kinds[str(found.tail.kind)] += 1
    print(f"{len(log.data) + 1} prefixes, {kinds.total()} flips: {dict(kinds)}")
    assert len(log.data) + 1 >= 12_289
    assert kinds == {"damaged": 8 * len(log.data)}


def test_every_prefix_that_a_witness_contradicts_is_refused() -> None:
    kinds = Counter(str(scan(LOG.data[:length], anchor=FRAMES - 1).tail.kind) for length in range(len(LOG.data) + 1))
    assert kinds == {"damaged": 5989, "clean": 1}
    assert scan(b"", anchor=1).tail.kind is TailKind.DAMAGED
    assert scan(b"", anchor=0).tail.kind is TailKind.CLEAN


def test_random_bursts_lose_nothing_and_change_nothing() -> None:
    assert bursts(LOG, 4000, seed=1) == {"refused": 4000}


@pytest.mark.prove
@pytest.mark.timeout(900)
def test_a_long_log_loses_nothing_to_any_flip_burst_or_cut() -> None:
    log = build(
        [([lineage_payload(), payload(100)], 1, True)]
        + [([payload(60 + n % 7 * 30) for _ in range(1 + n % 3)], 1 + n // 10, n % 4 != 0) for n in range(100)]
    )
    assert len(log.frames) >= 200
    assert prefixes(log) == {"clean": len(log.frames) + 1, "torn": len(log.data) - len(log.frames)}
    assert bursts(log, 20_000, seed=2) == {"refused": 20_000}
    assert tally(bit_flips(reference_log(size=300)).values()) == {"refused": 8 * len(reference_log(size=300).data)}
    for position in random.Random(3).sample(range(len(log.data)), 300):
        for value in range(256):
            if value != log.data[position]:
                damaged = log.data[:position] + bytes([value]) + log.data[position + 1 :]
                assert verdict(scan(damaged), log, len(log.frames)) == "refused"


def _fills(frame: bytes, cut: int, offset: int, old: bytes, rng: random.Random) -> dict[str, bytes]:
    missing = len(frame) - cut
    to_page = -(offset + cut) % 4096
    return {
        "end of file": b"",
        "zeros to the end of the frame": bytes(missing),
        "zeros to a page": bytes(to_page or 4096),
        "old bytes": old[:missing],
        "random": rng.randbytes(missing),
    }


@pytest.mark.parametrize(("size", "torn", "refused"), [(100, 152, 598), (4_000, 195, 690), (70_000, 948, 2_192)])
def test_a_torn_write_is_cut_only_where_a_sector_can_have_been_missing(size: int, torn: int, refused: int) -> None:
    kinds = torn_writes(size, sampled=True)
    assert (kinds["torn"], kinds["damaged"]) == (torn, refused)


@pytest.mark.prove
@pytest.mark.timeout(1700)
def test_t5_a_write_torn_at_every_byte_is_cut_only_where_a_sector_can_have_been_missing() -> None:
    assert sum(torn_writes(size, sampled=False).total() for size in (100, 4_000, 70_000)) >= 370_500


def torn_writes(size: int, *, sampled: bool, scan: ScanFunction = scan) -> Counter[str]:
    """A last frame of that size, torn at its bytes, with every kind of fill behind; how many were cut and how many refused."""
    rng = random.Random(size)
    log = build([([lineage_payload(), payload(100), payload(300)], 1, True), ([payload(size)], 1, True)])
    offset, frame = log.frames[-1].offset, log.data[log.frames[-1].offset :]
    old = (log.data[:offset] * (size // offset + 2))[17:]
    edges = {edge + by - offset for edge in range(offset - offset % 512, len(log.data), 512) for by in (-1, 0, 1)}
    chosen = rng.sample(range(len(frame)), min(len(frame), 150)) if sampled else range(len(frame))
    cuts = sorted({cut for cut in edges if 0 <= cut < len(frame)} | set(chosen))
    kinds: Counter[str] = Counter()
    for cut in cuts:
        for name, fill in _fills(frame, cut, offset, old, rng).items():
            found = scan(log.data[:offset] + frame[:cut] + fill)
            on_grid = cut == 0 or (offset + cut) % 512 == 0
            expected = name == "end of file" or (name.startswith("zeros") and on_grid)
            if name == "end of file" and cut == 0:
                assert found.tail.kind is TailKind.CLEAN
            else:
                assert found.tail.kind is (TailKind.TORN if expected else TailKind.DAMAGED), (name, cut)
                assert found.frames == log.frames[:-1]
            kinds[str(found.tail.kind)] += 1
    print(f"{size} bytes: {len(cuts)} cuts, {dict(kinds)}")
    return kinds


def test_t6_a_tail_of_zeros_behind_any_frame_is_torn() -> None:
    counts = zero_tails(LOG)
    print(f"T6: {counts.total()} tails of zeros, {len(ZEROS)} lengths behind each of {FRAMES + 1} boundaries: {dict(counts)}")
    assert counts == {"torn": 308}


def test_t7_residue_of_an_older_longer_log_never_revives() -> None:
    counts = residues(LOG)
    print(f"T7: {counts.total()} logs that were cut and written on: {dict(counts)}")
    assert counts == {"refused": 76, "nothing was left": 2}  # a last record that was not shorter leaves nothing


def _lines(log: Log) -> list[bytes]:
    return log.data.splitlines(keepends=True)


def test_t8_frames_that_are_doubled_dropped_swapped_or_spliced_are_refused() -> None:
    counts = surgery(LOG, reference_log(lineage="f" * 32))
    for name, count in counts.items():
        print(f"T8: {name:10} {dict(count)}")
    assert {name: count["refused"] for name, count in counts.items()} == {
        "doubled": 27,
        "dropped": 26,
        "swapped": 26,
        "spliced": 27,
        "continued": 26,
    }
    assert tally(counts.values()) == {"refused": 132}


def test_t8_an_older_copy_of_the_whole_log_is_only_seen_by_a_witness() -> None:
    older = LOG.data[: LOG.writes[8].frames[0].offset]
    assert scan(older).tail.kind is TailKind.CLEAN  # the stated limit
    assert scan(older, anchor=FRAMES - 1).tail.kind is TailKind.DAMAGED
    assert scan(older, anchor=scan(older).point.seq - 1).tail.kind is TailKind.CLEAN
    print(f"T8: 1 older copy of {len(older)} bytes: refused by a witness alone")


def unsynced_tail() -> tuple[Log, int, int]:
    """A log whose last eight writes nobody synced: with how many bytes and frames were durable before."""
    notes = [([payload(40 + n * 130) for _ in range(1 + n % 3)], 12, False) for n in range(8)]
    start = scan(LOG.data).point
    tail = build(notes, start=start, durable=start.seq - 1)
    return Log((*LOG.writes, *tail.writes)), len(LOG.data), FRAMES


@pytest.mark.parametrize("sector", [512, 4096])
def test_power_loss_leaves_a_tail_that_is_cut_without_losing_what_was_synced(sector: int) -> None:
    log, durable, acknowledged = unsynced_tail()
    kinds: Counter[str] = Counter()
    for image in power_loss_images(durable, log, sector, 3_000, seed=sector):
        kinds[verdict(scan(image), log, acknowledged)] += 1
    print(f"sectors of {sector}: {dict(kinds)}")
    assert kinds["clean"] + kinds["torn"] == 3_000
    assert kinds["torn"] > 1_000


@pytest.mark.parametrize("sector", [512, 4096])
def test_a_sector_that_vanishes_from_acknowledged_frames_is_refused_wherever_a_later_frame_testifies(sector: int) -> None:
    refused = 0
    for start in range(0, len(LOG.data), sector):
        damaged = LOG.data[:start] + bytes(len(LOG.data[start : start + sector])) + LOG.data[start + sector :]
        found = scan(damaged)
        testifies = any(frame.synced >= found.point.seq for frame in LOG.frames if frame.offset >= start + sector)
        assert found.tail.kind is (TailKind.DAMAGED if testifies else TailKind.TORN)
        refused += testifies
        assert scan(damaged, anchor=FRAMES - 1).tail.kind is TailKind.DAMAGED
    assert refused == {512: 11, 4096: 1}[sector]


def test_a_hole_must_begin_and_end_where_sectors_do() -> None:
    log, durable, _ = unsynced_tail()
    edge = durable - durable % 512 + 1024
    whole = log.data[:edge] + bytes(512) + log.data[edge + 512 :]
    assert scan(whole).tail.kind is TailKind.TORN
    for start, end in (
        (edge + 1, edge + 512),
        (edge - 1, edge + 512),
        (edge, edge + 511),
        (edge, edge + 513),
        (edge + 3, edge + 4),
    ):
        assert scan(log.data[:start] + bytes(end - start) + log.data[end:]).tail.kind is TailKind.DAMAGED
    newline = log.data.index(b"\n", edge + 512) + 1
    assert newline % 512
    end = newline - newline % 512 + 512
    assert scan(log.data[:edge] + bytes(512) + log.data[edge + 512 : newline] + bytes(end - newline)).tail.kind is TailKind.TORN


def test_later_lines_behind_a_hole_must_be_ours_and_admit_that_nothing_here_was_synced() -> None:
    log, durable, acknowledged = unsynced_tail()
    hole = -durable % 512 + 512
    end = durable + hole
    behind = log.data[end:]
    torn = log.data[:durable] + bytes(hole)
    assert scan(torn + behind).tail.kind is TailKind.TORN
    assert scan(torn + behind[:-5]).tail.kind is TailKind.TORN  # the last line is cut by the end of the file
    line = behind.index(b"\n") + 1
    claims = [
        behind[:line] + b"not a frame\n" + behind[line:],
        behind[: line + 4] + b"~" + behind[line + 5 :],  # a header that is not proven
        behind[: line + 170] + b"\n" + behind[line + 171 :],  # a line that ends too early
        behind[:-1] + b"~",  # the last line does not end where it should
        behind[:-1],
    ]
    kinds = [scan(torn + claim).tail.kind for claim in claims]
    assert kinds == [TailKind.DAMAGED] * 4 + [TailKind.TORN]
    point = scan(log.data).point
    for synced, kind in ((acknowledged - 1, TailKind.TORN), (acknowledged, TailKind.DAMAGED)):
        more = encode_frames([payload(30)], point, at_ms=START_MS, fence=12, synced=synced)
        found = scan(torn + behind + more.data)
        assert found.tail.kind is kind
        assert found.frames == log.frames[:acknowledged]


def test_damage_behind_a_hole_is_settled_by_the_newline_that_shows_it() -> None:
    """What follows cannot take it back, so that a reading need not keep that."""
    data, point = LOG.data + bytes(-len(LOG.data) % 512 + 512), scan(LOG.data).point
    early = data + _lines(LOG)[-1][:-9]  # may still become whole
    assert settled(early, 0, point) == 0
    for behind_it in (b"", b"more", bytes(600)):
        assert settled(early + b"\n" + behind_it, 0, point) == len(early) + 1


@pytest.mark.parametrize(("identity", "kind"), [(LOG, TailKind.TORN), (reference_log(lineage="f" * 32), TailKind.DAMAGED)])
def test_lineage_lines_in_a_tail_must_name_the_same_identity(identity: Log, kind: TailKind) -> None:
    line = _lines(identity)[0]
    data = LOG.data + bytes(-len(LOG.data) % 512) + line
    assert scan(data).tail.kind is kind


def test_lineage_lines_behind_a_first_line_that_is_lost_must_agree_with_each_other() -> None:
    one, other = _lines(LOG)[0], _lines(reference_log(lineage="f" * 32))[0]
    assert scan(bytes(512) + one + one).tail.kind is TailKind.TORN
    assert scan(bytes(512) + one + other).tail.kind is TailKind.DAMAGED
    unreadable = one.replace(b'"lineage":', b'"lineagE":')
    assert scan(bytes(512) + unreadable).tail.kind is TailKind.DAMAGED


HEAD = "1 27 1767225600099 12 26 4 20 - "


@pytest.mark.parametrize(
    ("text", "torn"),
    [
        ("1", True),
        ("3 27", True),
        ("2", False),
        ("4", False),
        ("x", False),
        ("1 2", True),
        ("1 28", False),
        ("1 27 0", True),
        ("1 27 00", False),
        ("1 27 1 1", True),  # the fence 12 can still follow
        ("1 27 1 11", True),  # or 110
        ("1 27 1 11 ", False),
        ("1 27 1 0", False),
        ("1 27 1 12 2", True),
        ("1 27 1 12 26", True),
        ("1 27 1 12 27", False),
        ("1 27 1 12 3", False),
        ("1 27 1 12 22 ", False),  # synced may not fall below 23
        ("1 27 1 12 26 9223372036854775808", False),
        ("1 27 1 12 26 0 67108864", True),
        ("1 27 1 12 26 0 67108865", False),
        ("1 27 1 12 26 0 7 -", True),
        ("1 27 1 12 26 0 7 a", False),
        ("3 27 1 12 26 0 7 -", False),
        ("3 27 1 12 26 0 7 b/v1,a", False),
        ("3 27 1 12 26 0 7 b/v1,b", True),
        ("3 27 1 12 26 0 7 b/v1,b/v1 ", False),
        ("3 27 1 12 26 0 7 b/v1,", True),
        ("3 27 1 12 26 0 7 b/v1, ", False),
        ("3 27 1 12 26 0 7 B", False),
        ("1 27  ", False),
        (HEAD, True),
        (HEAD + "b22e2c6d "[:3], True),
        (HEAD + "zzz", False),
        (HEAD + "00000000", False),
        ("1 27 1\n", False),
    ],
)
def test_a_cut_header_is_torn_only_if_its_bytes_can_begin_the_next_frame(text: str, torn: bool) -> None:
    if text.startswith(HEAD) and len(text) > len(HEAD) and torn:
        import zlib

        text = HEAD + f"{zlib.crc32(HEAD.encode()):08x}"[:3]
    assert scan(LOG.data + text.encode()).tail.kind is (TailKind.TORN if torn else TailKind.DAMAGED)


def test_a_line_of_an_unknown_version_is_newer_where_its_header_is_proven_and_its_digest_does_not_say_otherwise() -> None:
    line = frame_line("4 27 1767225600000 12 23 0", b'{"type":"new"}', LOG.frames[-1].digest)
    other = frame_line("4 27 1767225600000 12 23 0", b'{"type":"new"}', LOG.frames[-2].digest)
    assert scan(LOG.data + line).tail.reason == NEWER_WRITER
    assert scan(LOG.data + line[:-1]).tail.reason == NEWER_WRITER  # only a newer writer can have begun it
    assert scan(LOG.data + line[:-5]).tail.reason == NEWER_WRITER
    damaged = scan(LOG.data + other).tail
    assert damaged.kind is TailKind.DAMAGED
    assert damaged.reason != NEWER_WRITER


def test_a_number_that_was_cut_may_still_become_as_long_as_a_number_can_be() -> None:
    log = build([([lineage_payload(), payload(10)], 5 * 10**18, True)])
    for fence, torn in (("6", True), ("5", True), ("4", False), ("50", True), ("49", False), ("92", True), ("93", False)):
        kind = scan(log.data + b"1 2 0 " + fence.encode()).tail.kind
        assert kind is (TailKind.TORN if torn else TailKind.DAMAGED), fence


def test_a_record_without_its_newline_is_torn_only_if_its_digest_is_right() -> None:
    assert scan(LOG.data[:-1]).tail.kind is TailKind.TORN
    assert scan(LOG.data[:-2] + b"~").tail.kind is TailKind.DAMAGED
    assert scan(LOG.data[:-1] + b"~").tail.kind is TailKind.DAMAGED
    first = encode_frames([lineage_payload()], Point(), at_ms=1, fence=1, synced=0).data
    assert scan(first[:-1]).tail.kind is TailKind.TORN
    assert scan(b"1").tail.kind is TailKind.DAMAGED  # a log begins with its lineage line


@settings(deadline=None, max_examples=300)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 5988),
            st.integers(0, 700),
            st.sampled_from([b"", b"\n", b"\0" * 512, b"\0", b" ", b"1 27 ", b"9" * 25, b"\xff", b"2 0 1 1 0 0 1 - 00000000 "]),
        ),
        max_size=4,
    ),
    st.integers(0, 40),
)
def test_no_bytes_make_a_scan_raise_or_accept_what_was_never_written(cuts: list[tuple[int, int, bytes]], anchor: int) -> None:
    data = LOG.data
    for start, length, filler in cuts:
        data = data[:start] + filler + data[start + length :]
    found = scan(data, anchor)
    assert found.frames == LOG.frames[: len(found.frames)]
    assert found.tail.offset == LOG.boundaries[len(found.frames)]
    assert (found.tail.kind is TailKind.CLEAN) == (found.tail.reason == "")
    assert {header.seq for header in behind(data, found.tail.offset)} <= set(range(27))
