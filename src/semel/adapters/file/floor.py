"""The feature floor as a file (W16-W24): a lock beside it that is never renamed, and a file that is only ever replaced.

Its first line is `semel-floor 1 <sha256 of the rest>`, then comes one name a line, sorted.
"""

import hashlib
import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from semel.adapters.file.root import Life, Root, naming, open_private, replace_file, same_file, unlock_and_close
from semel.core.header import FEATURE_NAME
from semel.errors import NewerWriter, StoreError

NAME = "wal-feature-floor"
LOCK_NAME = "wal-feature-floor.lock"
_TITLE = "semel-floor 1"
_WAITS_MAX = 1000  # of Disk.pause each
_ATTEMPTS_MAX = 16

# What this process has proven durable, by absolute path (W21), in which life of the root; and the mutex for adding to it (W23).
_proven: dict[str, tuple[Life | None, frozenset[str]]] = {}
_mutex = threading.Lock()
_NOTHING: frozenset[str] = frozenset()


class _LockLost(Exception):
    """The lock file is not the one that we have locked: somebody removed or replaced it."""


def forget_proven(root: Path) -> None:
    """Know nothing of the floor of a root any more, as a new process does: for simulations, whose processes share this one."""
    _proven.pop(str(root / NAME), None)


def encode_floor(names: frozenset[str]) -> bytes:
    """The floor's bytes; equal for equal names."""
    body = "".join(f"{name}\n" for name in sorted(names))
    return f"{_TITLE} {hashlib.sha256(body.encode()).hexdigest()}\n{body}".encode()


def decode_floor(content: bytes) -> frozenset[str] | None:
    """The names in a floor; None if it is not exactly what a writer wrote."""
    names = frozenset(content.decode("latin-1").split("\n")[1:-1])
    return names if all(map(FEATURE_NAME.fullmatch, names)) and encode_floor(names) == content else None


class FileFloor:
    """The floor of one state directory; implements `ports.floor.FeatureFloor`."""

    def __init__(self, root: Root) -> None:
        """Touches nothing yet."""
        self._root, self._disk = root, root.disk
        self.path = root.path / NAME
        self._lock_path = root.path / LOCK_NAME
        self._key = str(self.path)

    def names(self) -> frozenset[str]:
        """The names it holds now; a missing floor holds none."""
        try:
            with self._root.open() as root:
                return self._read(root)
        except FileNotFoundError:
            return frozenset()

    def refuse_newer(self, known: frozenset[str]) -> None:
        """Raise NewerWriter where it names what is not `known`: such a build may not use this root at all (W18, A30)."""
        lacking = sorted(self.names() - known)
        if lacking:
            raise NewerWriter(f"the state directory {self._root.path}", lacking)

    def holds(self, names: Iterable[str]) -> bool:
        """Whether this process has proven that it holds every name; asks no disk (W21)."""
        life, proven = _proven.get(self._key, (None, _NOTHING))
        return (proven if life is self._root.life else _NOTHING).issuperset(names)

    def raise_to(self, names: Iterable[str]) -> None:
        """Make every name durable in the floor, under the lock that all processes share."""
        wanted = frozenset(names)
        if self.holds(wanted):
            return
        bad = sorted(name for name in wanted if not FEATURE_NAME.fullmatch(name))
        if bad:
            raise StoreError(f"{bad} are no feature names. Nothing was changed.")
        self._root.prepare()
        life = self._root.life
        with naming("raise", self.path), _mutex, self._root.open() as root:
            for _ in range(_ATTEMPTS_MAX):
                with suppress(_LockLost), self._locked(root) as lock:
                    _proven[self._key] = life, self._add(wanted, root, lock)
                    return
        what = f"was removed or replaced while it was held, {_ATTEMPTS_MAX} times"
        raise StoreError(f"{self._lock_path} {what}. Find who does that. No record that needs {sorted(wanted)} was written.")

    def _add(self, wanted: frozenset[str], root: int, lock: int) -> frozenset[str]:
        """Add names to the floor under the lock; returns all that it holds then. Raises _LockLost.

        Who removes the lock file lets in another process, which knows nothing of us. So the lock is compared with its path before
        anything is read, right before the rename, and behind it: what that process read may have been the floor before ours.
        """
        self._check(lock)
        found = self._read(root)
        union = found | wanted
        if union != found:
            replace_file(self._disk, NAME, encode_floor(union), root, self.path, check=lambda: self._check(lock))
        else:
            self._sync_again(root)
        self._disk.sync_directory(root)
        self._check(lock)
        return union

    def _check(self, lock: int) -> None:
        """Raise _LockLost unless the file that we have locked is the one that others would lock."""
        try:
            ours = same_file(self._disk.status(lock), self._disk.status_of(self._lock_path))
        except FileNotFoundError:
            ours = False
        if not ours:
            raise _LockLost

    def _read(self, root: int) -> frozenset[str]:
        with naming("read", self.path):
            try:
                fd = open_private(self._disk, NAME, root, os.O_RDONLY, self.path)
            except FileNotFoundError:
                return frozenset()
            try:
                content = self._disk.read(fd)
            finally:
                self._disk.close(fd)
        names = decode_floor(content)
        if names is None:
            raise StoreError(
                f"{self.path} is damaged. Restore it from a copy; it must name every feature that any log here needs."
            )
        return names

    def _sync_again(self, root: int) -> None:
        """Who wrote the floor may have died before its sync, so a name that can be read is not yet proven (W20)."""
        fd = open_private(self._disk, NAME, root, os.O_RDONLY, self.path)
        try:
            self._disk.sync(fd)
        finally:
            self._disk.close(fd)

    @contextmanager
    def _locked(self, root: int) -> Iterator[int]:
        """Descriptor of the lock file, locked."""
        path = self._lock_path
        fd = open_private(self._disk, LOCK_NAME, root, os.O_RDWR | os.O_CREAT, path)
        try:
            waits = 0
            while not self._disk.lock(fd):
                waits += 1
                if waits > _WAITS_MAX:
                    raise StoreError(f"{path} stayed locked by another process. Nothing was changed; try again.")
                self._disk.pause()
            yield fd
        finally:
            unlock_and_close(self._disk, fd)
