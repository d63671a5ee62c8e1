"""T9: power losses at both sector sizes, several writes per sync, and with a second fault on top; what each kind costs.

*Lost* is a log that would go on without something acknowledged, *changed* one that would take what was never written: a silent
repair. Neither may happen. *Refused for nothing* is the price: nothing acknowledged was touched, and yet a person must look.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from semel.core.frame import Scan, scan
from storage.logs import Log
from storage.sweeps import power_loss_images, verdict
from storage.test_tail import unsynced_tail

SECTORS = (512, 4096)
Images = Iterator[tuple[bytes, bool]]
"""Images, and whether something that was acknowledged is damaged in each."""


def _flip(image: bytes, start: int, end: int, rng: random.Random) -> bytes:
    at = rng.randrange(start, end)
    return image[:at] + bytes([image[at] ^ 1 << rng.randrange(8)]) + image[at + 1 :]


def _hole(image: bytes, start: int, end: int, sector: int, rng: random.Random) -> bytes:
    """A sector of NULs, as a device leaves one that it lost."""
    first = rng.randrange(start // sector, max(start // sector + 1, end // sector)) * sector
    size = len(image[first : first + sector])
    return image[:first] + bytes(size) + image[first + size :]


def power_loss(log: Log, durable: int, sector: int, number: int, seed: int) -> Images:
    for image in power_loss_images(durable, log, sector, number, seed):
        yield image, False


def flip_in_the_acknowledged(log: Log, durable: int, sector: int, number: int, seed: int) -> Images:
    """The power goes, and a bit of what was synced flips as well."""
    rng = random.Random(seed)
    for image in power_loss_images(durable, log, sector, number, seed):
        yield _flip(image, 0, durable, rng), True


def hole_in_the_acknowledged(log: Log, durable: int, sector: int, number: int, seed: int) -> Images:
    """A synced sector vanishes; what was written behind it is there, and testifies."""
    rng = random.Random(seed)
    for _ in range(number):
        yield _hole(log.data, 0, durable, sector, rng), True


def flip_and_hole_in_the_acknowledged(log: Log, durable: int, sector: int, number: int, seed: int) -> Images:
    rng = random.Random(seed)
    for image, _ in hole_in_the_acknowledged(log, durable, sector, number, seed + 1):
        yield _flip(image, 0, durable, rng), True


def flip_in_the_tail(log: Log, durable: int, sector: int, number: int, seed: int) -> Images:
    """The power goes, and a bit flips in what was never synced."""
    rng = random.Random(seed)
    for image in power_loss_images(durable, log, sector, number, seed):
        yield (_flip(image, durable, len(image), rng) if len(image) > durable else image), False


def hole_in_the_tail(log: Log, durable: int, sector: int, number: int, seed: int) -> Images:
    """The power goes, and a sector that was written is lost all the same."""
    rng = random.Random(seed)
    edge = durable + -durable % sector
    for image in power_loss_images(durable, log, sector, number, seed):
        yield (_hole(image, edge, len(image), sector, rng) if len(image) > edge + sector else image), False


def flip_and_hole_in_the_tail(log: Log, durable: int, sector: int, number: int, seed: int) -> Images:
    rng = random.Random(seed)
    for image, _ in hole_in_the_tail(log, durable, sector, number, seed + 1):
        yield (_flip(image, durable, len(image), rng) if len(image) > durable else image), False


def garbage_sector(log: Log, durable: int, sector: int, number: int, seed: int) -> Images:
    """The power goes while a sector is written, and it holds neither the old bytes nor the new."""
    rng = random.Random(seed)
    edge = durable + -durable % sector
    for image in power_loss_images(durable, log, sector, number, seed):
        start = edge + sector * rng.randrange(max(1, (len(image) - edge) // sector))
        size = len(image[start : start + sector])
        yield image[:start] + rng.randbytes(size) + image[start + size :], False


KINDS = (
    *(power_loss, flip_in_the_acknowledged, hole_in_the_acknowledged, flip_and_hole_in_the_acknowledged),
    *(flip_in_the_tail, hole_in_the_tail, flip_and_hole_in_the_tail, garbage_sector),
)


def table(losses: int, number: int, check: Callable[[bytes], Scan] = scan) -> dict[str, Counter[str]]:
    """Verdicts by kind of fault, over both sector sizes; `refused for nothing` apart from `refused`.

    So many power losses alone, and so many of each kind with a second fault, for each sector size.
    """
    log, durable, acknowledged = unsynced_tail()
    counts: dict[str, Counter[str]] = {}
    for kind in KINDS:
        count = counts[kind.__name__] = Counter()
        for sector in SECTORS:
            for image, touched in kind(log, durable, sector, losses if kind is power_loss else number, sector):
                found = verdict(check(image), log, acknowledged)
                count["refused for nothing" if found == "refused" and not touched else found] += 1
    return counts


def hold(counts: dict[str, Counter[str]], losses: int, number: int) -> None:
    """Print what each kind of fault came to, and hold it to what was promised."""
    for name, count in counts.items():
        cost = count["refused for nothing"] / count.total()
        print(f"{name:34} {count.total():7} images, {cost:6.1%} refused for nothing, {dict(sorted(count.items()))}")
        assert count.total() == 2 * (losses if name == "power_loss" else number)
        assert (count["lost"], count["changed"]) == (0, 0), name
    assert counts["power_loss"]["refused for nothing"] == 0
    assert counts["hole_in_the_tail"]["refused for nothing"] == 0
    for name in ("flip_in_the_acknowledged", "hole_in_the_acknowledged", "flip_and_hole_in_the_acknowledged"):
        assert counts[name] == {"refused": 2 * number}, name


def test_t9_no_double_fault_loses_or_changes_what_was_acknowledged() -> None:
    hold(table(7_000, 400), 7_000, 400)


@pytest.mark.prove
@pytest.mark.timeout(1700)
def test_t9_a_hundred_thousand_power_losses_and_more_double_faults_lose_nothing() -> None:
    hold(table(50_000, 20_000), 50_000, 20_000)


def test_t9_a_tail_rule_without_testimony_is_caught() -> None:
    def trusting(data: bytes) -> Scan:
        """Cuts whatever is behind the last good frame, as many logs do."""
        found = scan(data)
        return scan(data[: found.tail.offset])

    counts = table(100, 100, trusting)
    assert sum(count["lost"] for count in counts.values()) > 300
