"""T2: on every image that a death leaves, the recovery dies at its own calls, and then the recovery of that (P1)."""

from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path

import pytest

from semel.adapters.file.disk import Disk
from semel.adapters.file.recovery import recover
from semel.core.frame import Frame, line_of
from semel.errors import LogDamaged
from semel.testing.faults import Crashed, Fault, FaultyDisk
from storage.scenario import Oracle, copy_tree, holds, reference_calls, scenario, store_at


async def images(place: Path) -> list[tuple[Path, Oracle]]:
    """What a death before each call of the scenario leaves, and one right after it, with what was acknowledged."""
    found: list[tuple[Path, Oracle]] = []
    calls = await reference_calls(place / "reference")
    for at in range(1, len(calls) + 1):
        for kind in ("crash_entry", "crash_exit"):
            root, disk, oracle = place / f"{at}-{kind}", FaultyDisk(Fault(at=at, kind=kind)), Oracle()
            with pytest.raises(Crashed):
                await scenario(store_at(root, disk), oracle)
            disk.bury()
            found.append((root, oracle))
    return found


async def dies(root: Path, oracle: Oracle, at: int, kind: str) -> bool:
    """Whether a recovery that is to die at a call came to that call."""
    disk = FaultyDisk(Fault(at=at, kind=kind))
    try:
        await holds(root, oracle, disk)
    except Crashed:
        return True
    finally:
        disk.bury()
    return False


async def deaths(image: Path, oracle: Oracle, place: Path, first: int, stride: int) -> "Iterator[tuple[Path, Oracle]]":
    """The image after a recovery died at every so manyth of its calls."""
    left: list[tuple[Path, Oracle]] = []
    at = first
    while True:
        root, told = place / str(at), deepcopy(oracle)
        copy_tree(image, root)
        if not await dies(root, told, at, "crash_exit" if at % 2 else "crash_entry"):
            return iter(left)
        left.append((root, told))
        at += stride


async def sweep(place: Path) -> tuple[int, int]:
    """How many images there are, and how often their recovery died; each is recovered from all the same."""
    count = 0
    found = await images(place)
    for number, (image, oracle) in enumerate(found):
        for root, told in await deaths(image, oracle, place / f"r{number}", 1 + number % 2, 2):
            await holds(root, told)
            count += 1
    return len(found), count


@pytest.mark.anyio
async def test_t2_a_recovery_that_dies_at_its_calls_on_every_image_loses_nothing_acknowledged(tmp_path: Path) -> None:
    found, count = await sweep(tmp_path)
    print(f"T2: {found} images, {count} deaths of their recovery")
    assert found == 122
    assert count >= 1200


@pytest.mark.anyio
async def test_t2_a_recovery_that_cuts_what_it_then_writes_again_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cutting(disk: Disk, fd: int, unproven: list[Frame]) -> None:
        if unproven:
            disk.truncate(fd, unproven[0].offset)
            disk.write(fd, b"".join(map(line_of, unproven)), unproven[0].offset)
            disk.sync(fd)

    monkeypatch.setattr(f"{recover.__module__}._write_again", cutting)
    with pytest.raises((AssertionError, LogDamaged)):
        await sweep(tmp_path)


@pytest.mark.prove
@pytest.mark.timeout(1700)
@pytest.mark.anyio
async def test_t2_the_recovery_of_a_recovery_that_died_may_die_as_well(tmp_path: Path) -> None:
    count = 0
    found = await images(tmp_path)
    for number, (image, oracle) in enumerate(found):
        for first, told in await deaths(image, oracle, tmp_path / f"r{number}", 1, 1):
            second = tmp_path / f"s{number}-{first.name}"
            for root, again in await deaths(first, told, second, 1 + int(first.name) % 5, 5):
                await holds(root, again)
                count += 1
    print(f"T2: {len(found)} images, {count} deaths of a recovery behind a recovery that died")
    assert count >= 12_000
