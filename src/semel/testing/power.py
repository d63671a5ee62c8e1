"""A disk that loses power: what no sync covered is gone, names as well as bytes.

It is the harshest device that honours flush. Bytes survive from a sync of their file on, names from a sync of their
directory on, a rename from a sync of its directory on; before that the old state comes back.
"""

import os
import shutil
from pathlib import Path

from semel.adapters.file.locks import Locks
from semel.testing.faults import Fault, FaultyDisk


class ForgetfulDisk(FaultyDisk):
    """A faulty disk whose `lose_power` ends the process and puts every file it touched back to what was durable."""

    def __init__(self, fault: Fault | None = None, locks: Locks | None = None) -> None:
        """What lies on the disk before is durable."""
        super().__init__(fault, locks)
        self._paths: dict[int, Path] = {}  # of open descriptors
        self._durable: dict[Path, bytes] = {}  # files whose name is durable, and their durable bytes
        self._synced: dict[Path, bytes] = {}  # by the name they have now, durable or not
        self._pending: dict[Path, list[tuple[Path, Path | None]]] = {}  # by directory: (name, what it was renamed from)
        self._new_directories: set[Path] = set()

    def make_directory(self, name: str, within: int | None) -> None:
        """Not durable before its parent is synced."""
        super().make_directory(name, within)
        self._new_directories.add(self._path(name, within))

    def open_directory(self, name: str, within: int | None) -> int:
        """Remembers the path."""
        fd = super().open_directory(name, within)
        self._paths[fd] = self._path(name, within)
        return fd

    def open_file(self, name: str, within: int, flags: int) -> int:
        """A new file is not durable before its directory is synced."""
        path = self._path(name, within)
        existed = path.exists()
        fd = super().open_file(name, within, flags)
        self._paths[fd] = path
        if existed and path not in self._synced:
            self._synced[path] = self._durable[path] = path.read_bytes()
        elif not existed:
            self._pending.setdefault(path.parent, []).append((path, None))
        return fd

    def sync(self, fd: int) -> None:
        """Makes the bytes durable."""
        super().sync(fd)
        path = self._paths[fd]
        self._synced[path] = path.read_bytes() if path.exists() else b""
        if path in self._durable:
            self._durable[path] = self._synced[path]

    def sync_directory(self, fd: int) -> None:
        """Makes the names durable."""
        super().sync_directory(fd)
        directory = self._paths[fd]
        for path, renamed_from in self._pending.pop(directory, []):
            if renamed_from is not None:
                self._durable.pop(renamed_from, None)
            self._durable[path] = self._synced.get(path, b"")
        self._new_directories = {path for path in self._new_directories if path.parent != directory}

    def rename(self, old: str, new: str, within: int) -> None:
        """Not durable before the directory is synced."""
        super().rename(old, new, within)
        source, target = self._path(old, within), self._path(new, within)
        self._synced[target] = self._synced.pop(source, b"")
        self._pending.setdefault(target.parent, []).append((target, source))

    def live_again(self) -> None:
        """Another process starts where one ended: it sees what that one did, durable or not. It has no fault."""
        self.bury()
        self._paths.clear()
        self.dead, self.fault = False, None

    def lose_power(self) -> None:
        """End the process, and keep only what was durable."""
        self.bury()
        for path in sorted(self._new_directories, reverse=True):
            shutil.rmtree(path, ignore_errors=True)
        touched = {*self._synced, *self._durable, *(path for names in self._pending.values() for path, _ in names)}
        for path in touched:
            if path in self._durable and path.parent.exists():
                path.write_bytes(self._durable[path])
            else:
                path.unlink(missing_ok=True)

    def _path(self, name: str, within: int | None) -> Path:
        return Path(os.path.realpath(name)) if within is None else self._paths[within] / name
