"""Sweeps over the bytes of a log: each applies one kind of damage everywhere and counts what a scan makes of it.

They take the scan as a parameter, so that a naive tail rule can be shown to fail them (tests/canaries).
"""

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from semel.core.frame import Scan, TailKind, scan
from storage.logs import Log

ScanFunction = Callable[[bytes], Scan]


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
