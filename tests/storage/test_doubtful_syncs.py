"""T11: a sync fails once, and what the kernel does with the pages then: keep them, call them clean, or put the old ones back.

A restart may find in the cache what no device holds. So recovery writes again what nothing testifies to (HAZ3), and only then
may anybody act on it: a power loss after that takes nothing back.
"""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from semel.adapters.file.recovery import recover
from semel.errors import SemelError, WriterPoisoned
from semel.testing.faults import Fault, FaultyDisk
from storage.scenario import Oracle, holds, reference_calls, scenario, store_at

MODES = ("kept", "dropped but clean", "old page")


class Device:
    """What the disk of a machine really holds, by path, and which ranges of its files only the cache does."""

    def __init__(self) -> None:
        self.held: dict[Path, bytearray] = {}
        self.dirty: dict[Path, list[tuple[int, int]]] = {}


class DoubtfulDisk(FaultyDisk):
    """A disk whose syncs write only dirty pages; where one fails, what becomes of those is the `mode`."""

    def __init__(self, device: Device, mode: str = "kept", fault: Fault | None = None) -> None:
        super().__init__(fault)
        self.device, self.mode, self._paths = device, mode, dict[int, Path]()

    def _path(self, name: str, within: int | None) -> Path:
        return Path(name) if within is None else self._paths[within] / name

    def open_directory(self, name: str, within: int | None) -> int:
        fd = super().open_directory(name, within)
        self._paths[fd] = self._path(name, within)
        return fd

    def open_file(self, name: str, within: int, flags: int) -> int:
        path = self._path(name, within)
        before = path.read_bytes() if path.exists() else b""
        fd = super().open_file(name, within, flags)
        self.device.held.setdefault(path, bytearray(before))
        self._paths[fd] = path
        return fd

    def write_some(self, fd: int, data: memoryview, offset: int | None) -> int:
        path = self._paths[fd]
        start = path.stat().st_size if offset is None else offset
        done = super().write_some(fd, data, offset)
        self.device.dirty.setdefault(path, []).append((start, start + done))
        return done

    def rename(self, old: str, new: str, within: int) -> None:
        super().rename(old, new, within)
        source, target = self._path(old, within), self._path(new, within)
        self.device.held[target] = self.device.held.pop(source)
        self.device.dirty[target] = self.device.dirty.pop(source, [])

    def flush(self, fd: int, *, directory: bool) -> None:
        if not directory:
            path = self._paths[fd]
            content, held = path.read_bytes(), self.device.held[path]
            held[len(content) :] = bytes(max(0, len(content) - len(held)))
            for start, end in self.device.dirty.pop(path, []):
                held[start:end] = content[start:end]

    def sync(self, fd: int) -> None:
        try:
            super().sync(fd)
        except OSError:
            path = self._paths[fd]
            lost = [] if self.mode == "kept" else self.device.dirty.pop(path, [])
            if self.mode == "old page":
                cached = bytearray(path.read_bytes())
                for start, end in lost:
                    cached[start:end] = bytes(self.device.held[path][start:end]).ljust(end - start, b"\0")
                path.write_bytes(cached)
            raise

    def lose_cache(self) -> None:
        """The machine goes down: only the device is left."""
        self.bury()
        for path, held in self.device.held.items():
            path.write_bytes(held)
        self.device.dirty.clear()


async def sweep(place: Path) -> Counter[str]:
    """A sync fails, by mode; a restart keeps the cache or not; then the power goes, and all is there."""
    calls = await reference_calls(place / "reference")
    counts: Counter[str] = Counter()
    for at, name in enumerate(calls, 1):
        if name not in ("sync", "sync_directory"):
            continue
        for mode in MODES:
            for cache in ("kept", "dropped"):
                root, device, oracle = place / f"{at}-{mode}-{cache}", Device(), Oracle()
                disk = DoubtfulDisk(device, mode, Fault(at=at, kind="error"))
                with pytest.raises(SemelError) as caught:
                    await scenario(store_at(root, disk), oracle)
                if isinstance(caught.value, WriterPoisoned):
                    assert disk.calls[at:] == ["unlock"] or disk.calls[at:] == []
                disk.lose_cache() if cache == "dropped" else disk.bury()
                again = DoubtfulDisk(device)
                await holds(root, oracle, again)
                again.lose_cache()
                await holds(root, oracle)
                counts[f"{name}, pages {mode}"] += 1
    return counts


@pytest.mark.anyio
async def test_t11_after_a_sync_that_failed_once_a_restart_makes_durable_what_it_finds(tmp_path: Path) -> None:
    counts = await sweep(tmp_path)
    print(f"{counts.total()} failed syncs: {dict(counts)}")
    assert counts.total() == (11 + 8) * 3 * 2


@pytest.mark.anyio
async def test_t11_a_recovery_that_only_syncs_again_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trusting: Callable[..., None] = lambda _disk, _fd, _unproven: None  # noqa: E731  the planted fault
    monkeypatch.setattr(f"{recover.__module__}._write_again", trusting)
    with pytest.raises((AssertionError, SemelError)):
        await sweep(tmp_path)
