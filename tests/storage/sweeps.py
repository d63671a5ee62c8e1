"""Sweeps over the bytes of a log: each applies one kind of damage everywhere and counts what a scan makes of it.

They take the scan as a parameter, so that a naive tail rule can be shown to fail them (tests/canaries).
"""

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from semel.core.frame import Scan, TailKind, encode_frames, scan
from semel.ports.log import Payload
from storage.logs import START_MS, Log

ScanFunction = Callable[[bytes], Scan]
ZEROS = (1, 7, 63, 511, 512, 513, 4095, 4096, 4097, 65_536, 1 << 20)
"""Lengths around those of sectors, pages and what a file system gives a file at a time."""


def verdict(found: Scan, log: Log, acknowledged: int) -> str:
    """What a scan of damaged bytes came to, given that the first `acknowledged` frames of `log` had been synced.

    `lost`: it would go on without something acknowledged. `changed`: it accepts what was never written. Both are forbidden.
    """
    if found.tail.kind is TailKind.DAMAGED:
        assert found.tail.reason
        return "refused"
    if found.frames != log.frames[: len(found.frames)]:
        return "changed"
    if len(found.frames) < acknowledged:
        return "lost"
    return str(found.tail.kind)


def region(log: Log, position: int) -> str:
    """Which part of a line a byte belongs to."""
    frame = max((frame for frame in log.frames if frame.offset <= position), key=lambda frame: frame.offset)
    line = log.data[frame.offset : log.data.index(b"\n", frame.offset) + 1]
    within = position - frame.offset
    if within == len(line) - 1:
        return "newline"
    names = ("ver", "seq", "at_ms", "fence", "synced", "left", "len", "requires", "check", "digest")
    spaces = line[:within].count(b" ")
    return names[spaces] if spaces < 10 else "json"


def bit_flips(log: Log, scan: ScanFunction = scan) -> dict[str, Counter[str]]:
    """Every single-bit flip of an acknowledged log: verdicts by region; the last batch and the last newline apart."""
    data, frames = log.data, len(log.frames)
    last = log.writes[-1].frames[0].offset
    counts: dict[str, Counter[str]] = {}
    for position in range(len(data)):
        name = "final newline" if position == len(data) - 1 else "last batch" if position >= last else region(log, position)
        count = counts.setdefault(name, Counter())
        for bit in range(8):
            flipped = data[:position] + bytes([data[position] ^ (1 << bit)]) + data[position + 1 :]
            count[verdict(scan(flipped), log, frames)] += 1
    return counts


def prefixes(log: Log, scan: ScanFunction = scan) -> Counter[str]:
    """Every prefix: on a frame boundary it is clean, anywhere else torn."""
    counts: Counter[str] = Counter()
    boundaries = set(log.boundaries)
    for length in range(len(log.data) + 1):
        found = scan(log.data[:length])
        kept = sum(boundary <= length for boundary in log.boundaries) - 1
        if len(found.frames) != kept or found.frames != log.frames[:kept]:
            counts["changed"] += 1
        elif found.tail.kind is (TailKind.CLEAN if length in boundaries else TailKind.TORN):
            counts[str(found.tail.kind)] += 1
        else:
            counts["refused"] += 1
    return counts


def bursts(log: Log, number: int, seed: int, scan: ScanFunction = scan) -> Counter[str]:
    """Random bursts of 1 to 64 changed bytes."""
    rng, counts = random.Random(seed), Counter[str]()
    while sum(counts.values()) < number:
        at, length = rng.randrange(len(log.data)), rng.randrange(1, 65)
        damaged = log.data[:at] + rng.randbytes(len(log.data[at : at + length])) + log.data[at + length :]
        if damaged != log.data:
            counts[verdict(scan(damaged), log, len(log.frames))] += 1
    return counts


def zero_tails(log: Log, scan: ScanFunction = scan) -> Counter[str]:
    """Zeros behind every frame: what lies before them is kept, and they are a tail that was never written."""
    counts: Counter[str] = Counter()
    for kept, end in enumerate(log.boundaries):
        counts.update(verdict(scan(log.data[:end] + bytes(size)), log, kept) for size in ZEROS)
    return counts


def residues(log: Log, scan: ScanFunction = scan) -> Counter[str]:
    """A log cut behind each frame and written on with one, two, or as long a record; what the old one had there follows.

    `refused` keeps just what was written since. `revived` would take an old record for one of the new log.
    """
    counts: Counter[str] = Counter()
    for cut in range(1, len(log.frames)):
        point = scan(log.data[: log.frames[cut].offset]).point
        for sizes in ([20], [60, 60], [len(log.frames[cut].payload)]):
            batch = [Payload(json=b'"%b"' % (b"n" * (size - 2))) for size in sizes]
            new = encode_frames(batch, point, at_ms=START_MS, fence=point.fence, synced=point.synced)
            residue = log.data[new.point.offset :]
            found = scan(log.data[: point.offset] + new.data + residue)
            whole = found.frames == (*log.frames[:cut], *new.frames)
            held = found.tail.kind is (TailKind.DAMAGED if residue else TailKind.CLEAN)
            counts["revived" if not (whole and held) else "refused" if residue else "nothing was left"] += 1
    return counts


def surgery(log: Log, other: Log, scan: ScanFunction = scan) -> dict[str, Counter[str]]:
    """Lines of a log doubled, dropped, swapped with the next, replaced by those of another log; verdicts by kind."""
    lines, others, frames = log.data.splitlines(keepends=True), other.data.splitlines(keepends=True), len(log.frames)
    cases = {
        "doubled": [lines[: n + 1] + lines[n:] for n in range(frames)],
        "dropped": [lines[:n] + lines[n + 1 :] for n in range(frames - 1)],
        "swapped": [[*lines[:n], lines[n + 1], lines[n], *lines[n + 2 :]] for n in range(frames - 1)],
        "spliced": [[*lines[:n], others[n], *lines[n + 1 :]] for n in range(frames)],
        "continued": [[*lines[:n], *others[n:]] for n in range(1, frames)],
    }
    return {name: Counter(verdict(scan(b"".join(one)), log, frames) for one in made) for name, made in cases.items()}


def power_loss_images(durable: int, log: Log, sector: int, number: int, seed: int) -> Iterator[bytes]:
    """Images of a file of which only the first `durable` bytes were synced: the other sectors are there or not, one by one.

    The size is one that the file had, or that ends a sector. The sector in which `durable` lies may be the old one.
    """
    rng, data = random.Random(seed), log.data
    sizes = [size for size in log.boundaries if size >= durable] + list(range(durable - durable % sector, len(data), sector))
    sizes = [size for size in sizes if size >= durable]
    for _ in range(number):
        size = rng.choice(sizes)
        keep = rng.choice((0.1, 0.5, 0.9))
        image = bytearray(data[:durable].ljust(size, b"\0"))
        for start in range(durable - durable % sector, size, sector):
            if rng.random() < keep:
                image[max(start, durable) : min(start + sector, size)] = data[max(start, durable) : min(start + sector, size)]
        yield bytes(image)


def tally(counts: Iterable[Counter[str]]) -> Counter[str]:
    """The sum of counts."""
    total: Counter[str] = Counter()
    for count in counts:
        total.update(count)
    return total
