"""What a disk holds: what processes see of it, and what the device would still have after a power loss.

Bytes are certain from a sync of their file on, names from a sync of their directory on. Of what no sync has covered, a power
loss leaves what the seed says: whole sectors of it or not, a size from before or after, some of the names.
"""

import errno
import os
import stat
from dataclasses import dataclass, field
from random import Random

SECTOR_BYTES = 512
PAGE_BYTES = 4096
USER = 1000


@dataclass(eq=False, slots=True)
class File:
    """A file: `seen` is what a read gives, `durable` what the device has, `pending` what was done to it since the last sync."""

    number: int
    seen: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    pending: list[tuple[int, bytes | None]] = field(default_factory=list)  # (offset, bytes), or (size, None): cut to a size
    holder: "Opened | None" = None
    changes: int = 0

    def write(self, offset: int, data: bytes) -> None:
        """Write at an offset; a hole in front of it is zeros."""
        _apply(self.seen, offset, data)
        self.pending.append((offset, data))
        self.changes += 1

    def truncate(self, size: int) -> None:
        """Cut, or grow with zeros, to a size."""
        _apply(self.seen, size, None)
        self.pending.append((size, None))
        self.changes += 1

    def sync(self) -> None:
        """Everything that is pending reaches the device."""
        for offset, data in self.pending:
            _apply(self.durable, offset, data)
        self.pending.clear()

    def drop(self) -> None:
        """A sync failed, and the kernel calls the pages clean: they are seen until the power goes, and never written."""
        self.pending.clear()

    def revert(self) -> None:
        """A sync failed, and the kernel shows again what the device has."""
        self.pending.clear()
        self.seen[:] = self.durable
        self.changes += 1

    def let_go(self) -> None:
        """The kernel lets go of the pages that it calls clean, and shows what the device has."""
        if not self.pending and self.seen != self.durable:
            self.revert()

    def lose_power(self, dice: Random) -> None:
        """Sectors of what was pending are there or not, and the size is that behind some of the changes."""
        whole, sized = bytearray(self.durable), bytearray(self.durable)
        kept = dice.randint(0, len(self.pending))
        for at, (offset, data) in enumerate(self.pending):
            _apply(whole, offset, data)
            if at < kept:
                _apply(sized, offset, data)
        grain = dice.choice((SECTOR_BYTES, PAGE_BYTES))
        size = len(sized)
        if self.pending and size > len(self.durable) and dice.random() < 0.5:  # the size grows page by page
            size = dice.randint(len(self.durable), size)
        likely = dice.choice((0.0, 0.5, 0.9, 1.0))
        image = bytearray(self.durable[:size].ljust(size, b"\0"))
        for start in range(0, size, grain):
            if dice.random() < likely:
                part = whole[start : min(start + grain, size)]
                image[start : start + len(part)] = part
        self.durable, self.seen, self.holder = image, bytearray(image), None
        self.pending.clear()


def _apply(image: bytearray, offset: int, data: bytes | None) -> None:
    if data is None:
        if offset < len(image):
            del image[offset:]
        else:
            image.extend(bytes(offset - len(image)))
        return
    if offset > len(image):
        image.extend(bytes(offset - len(image)))
    image[offset : offset + len(data)] = data


@dataclass(eq=False, slots=True)
class Directory:
    """A directory: the names in it as seen, those that are durable, and what was done to them since the last sync."""

    number: int
    seen: "dict[str, File | Directory]" = field(default_factory=dict)
    durable: "dict[str, File | Directory]" = field(default_factory=dict)
    pending: "list[dict[str, File | Directory | None]]" = field(default_factory=list)  # each: names that change together

    def change(self, names: "dict[str, File | Directory | None]") -> None:
        """Names come, go, or stand for something else, all at once."""
        _rename(self.seen, names)
        self.pending.append(names)

    def sync(self) -> None:
        """The names reach the device."""
        for names in self.pending:
            _rename(self.durable, names)
        self.pending.clear()

    def lose_power(self, dice: Random) -> None:
        """Some of what was pending has reached the device, and some has not."""
        for names in self.pending:
            if dice.random() < 0.5:
                _rename(self.durable, names)
        self.pending.clear()
        self.seen = dict(self.durable)
        for node in self.seen.values():
            node.lose_power(dice)


def _rename(names: "dict[str, File | Directory]", change: "dict[str, File | Directory | None]") -> None:
    for name, node in change.items():
        if node is None:
            names.pop(name, None)
        else:
            names[name] = node


@dataclass(eq=False, slots=True)
class Opened:
    """An open file or directory of one process."""

    node: File | Directory
    flags: int = 0


class Medium:
    """One disk of one machine, with the directory `/sim` on it that every process may use."""

    def __init__(self) -> None:
        """Empty but for that directory, which is durable."""
        self._count = 0
        self.root = self.directory()
        self.home = self.directory()
        self.root.change({"sim": self.home})
        self.root.sync()

    def file(self) -> File:
        """A new file, without a name."""
        self._count += 1
        return File(self._count)

    def directory(self) -> Directory:
        """A new directory, without a name."""
        self._count += 1
        return Directory(self._count)

    def lose_power(self, dice: Random) -> None:
        """Keep what a device that honours flush has to keep."""
        self.root.lose_power(dice)

    def find(self, path: str) -> File | Directory:
        """What an absolute path names. Raises FileNotFoundError, NotADirectoryError."""
        node: File | Directory = self.root
        for name in path.split("/")[1:]:
            if name:
                node = entry(node, name)
        return node

    def look(self, path: str) -> File | None:
        """The file of that path as seen; None if there is none."""
        try:
            node = self.find(path)
        except OSError:
            return None
        return node if isinstance(node, File) else None

    def durable_bytes(self, path: str, after: int = 0) -> bytes:
        """What is certain of a file, from an offset on."""
        file = self._durable(path)
        return b"" if file is None else bytes(file.durable[after:])

    def durable_size(self, path: str) -> int:
        """How many bytes of a file are certain."""
        file = self._durable(path)
        return 0 if file is None else len(file.durable)

    def _durable(self, path: str) -> File | None:
        """Nothing of a file is certain before every name on the way to it is."""
        node: File | Directory | None = self.root
        for name in path.split("/")[1:]:
            if not isinstance(node, Directory):
                return None
            node = node.durable.get(name)
        return node if isinstance(node, File) else None

    def files(self, path: str) -> dict[str, File]:
        """Every file below a path, by its own path."""
        found: dict[str, File] = {}
        try:
            node = self.find(path)
        except OSError:
            return found
        if isinstance(node, File):
            return {path: node}
        for name in sorted(node.seen):
            found |= self.files(f"{path}/{name}")
        return found


def entry(node: File | Directory, name: str) -> File | Directory:
    """What a name in a directory stands for. Raises FileNotFoundError, NotADirectoryError."""
    if isinstance(node, File):
        raise error(errno.ENOTDIR)
    found = node.seen.get(name)
    if found is None:
        raise error(errno.ENOENT)
    return found


def error(code: int) -> OSError:
    """The error of a system call."""
    return OSError(code, os.strerror(code))


def status(node: File | Directory) -> os.stat_result:
    """What stat says of it."""
    if isinstance(node, File):
        mode, size, changes = stat.S_IFREG | 0o600, len(node.seen), node.changes
    else:
        mode, size, changes = stat.S_IFDIR | 0o700, 0, 0
    return os.stat_result((mode, node.number, 1, 1, USER, USER, size, 0, changes, 0), {"st_mtime_ns": changes})
