"""A disk as one process of the world sees it: every call is counted, may fail, and may be the last of the process."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from semel.adapters.file.disk import Disk
from semel.testing.faults import Crashed
from semel.testing.world.fate import Fate
from semel.testing.world.medium import USER, Directory, File, Medium, Opened, entry, error, status

T = TypeVar("T")
BOOT = "simulated"
_SYNC_FAULTS = ("sync_error_kept", "sync_error_dropped", "sync_error_reverted")
_NAMED_FAULTS = ("write", "sync", "unlock")  # those fail in ways of their own, or not at all
_OTHER_CODES = (errno.EIO, errno.ENOSPC, errno.EMFILE, errno.ENOMEM, errno.EDQUOT)


class SimLocks:
    """Says how the simulated locks behave; the disk does the locking."""

    asking_locks = False

    def lock(self, fd: int) -> bool:
        """Never asked: `SimDisk.lock` is."""
        raise error(errno.ENOLCK)

    def unlock(self, fd: int) -> None:
        """Never asked: `SimDisk.unlock` is."""
        raise error(errno.ENOLCK)

    def held(self, fd: int) -> bool:
        """Never asked: `SimDisk.locked` is."""
        raise error(errno.ENOLCK)


class SimDisk(Disk):
    """Implements `adapters.file.disk.Disk` on a medium.

    `dies` is told of each call that changes something, and says whether the process ends before it, after it, or within it.
    `watch` sees each change of a file before it is made. A dead process can do nothing: all that it calls raises Crashed.
    """

    def __init__(self, medium: Medium, fate: Fate, number: int, dies: "Callable[[str], str | None]") -> None:
        """`number` is the process; a disk has one process, and a process has one disk."""
        super().__init__(SimLocks())
        self.medium, self.number = medium, number
        self.dead = False
        self.watch: Callable[[SimDisk, File, int, bytes | None], None] = lambda _disk, _file, _offset, _data: None
        self.on_death: Callable[[], None] = lambda: None
        self._fate, self._dies = fate, dies
        self._open: dict[int, Opened] = {}
        self._next = 3
        self._full = False

    def die(self) -> None:
        """End the process: the kernel closes what it had open, and frees its locks."""
        self.dead = True
        for opened in self._open.values():
            _unlock(opened)
        self._open.clear()

    # -- directories and names

    def make_directory(self, name: str, within: int | None) -> None:
        """Create a directory."""
        where, last = self._parent(name, within)

        def act() -> None:
            if last in where.seen:
                raise error(errno.EEXIST)
            where.change({last: self.medium.directory()})

        self._step("make_directory", act)

    def open_directory(self, name: str, within: int | None) -> int:
        """Descriptor of a directory."""
        self._alive()
        node = self.medium.find(name) if within is None else entry(self._node(within), name)
        if not isinstance(node, Directory):
            raise error(errno.ENOTDIR)
        return self._opened(Opened(node))

    def open_file(self, name: str, within: int, flags: int) -> int:
        """Descriptor of a file."""
        where = self._directory(within)

        def act() -> Opened:
            found = where.seen.get(name)
            if found is None:
                if not flags & os.O_CREAT:
                    raise error(errno.ENOENT)
                found = self.medium.file()
                where.change({name: found})
            elif flags & os.O_EXCL:
                raise error(errno.EEXIST)
            elif isinstance(found, Directory):
                raise error(errno.EISDIR)
            return Opened(found, flags)

        return self._opened(self._step("open" if flags & os.O_CREAT and name not in where.seen else "", act))

    def close(self, fd: int) -> None:
        """Close a descriptor, which frees its lock."""
        opened = self._open.pop(fd, None)
        if opened is not None:
            _unlock(opened)

    def rename(self, old: str, new: str, within: int) -> None:
        """Replace a name."""
        where = self._directory(within)
        self._step("rename", lambda: where.change({old: None, new: entry(where, old)}))

    def unlink(self, name: str, within: int) -> None:
        """Remove a name."""
        where = self._directory(within)

        def act() -> None:
            entry(where, name)
            where.change({name: None})

        self._step("unlink", act)

    def sync_directory(self, fd: int) -> None:
        """Make the names durable."""
        where = self._directory(fd)
        self._step("sync_directory", where.sync)

    def names(self, fd: int) -> list[str]:
        """Names in a directory, sorted."""
        return sorted(self._directory(fd).seen)

    # -- bytes

    def read(self, fd: int, offset: int = 0, limit: int | None = None) -> bytes:
        """The bytes from `offset` on."""
        seen = self._file(fd).seen
        return bytes(seen[offset:] if limit is None else seen[offset : offset + limit])

    def reads_as(self, fd: int, content: bytes) -> bool:
        """Whether a file is exactly this."""
        return self._file(fd).seen == content

    def read_from_device(self, fd: int, offset: int, limit: int) -> bytes:
        """The same, with pages that were never written forgotten."""
        self._file(fd).let_go()
        return self.read(fd, offset, limit)

    def write_some(self, fd: int, data: memoryview, offset: int | None) -> int:
        """One write; it may be short, fail, or be cut by the death of the process."""
        file = self._file(fd)
        at = len(file.seen) if offset is None else offset
        content = bytes(data)

        def act() -> int:
            self.watch(self, file, at, content)
            file.write(at, content)
            return len(content)

        def part() -> None:
            cut = content[: self._fate.dice("disk").randint(0, len(content))]
            self.watch(self, file, at, cut)
            file.write(at, cut)

        if self._full:
            self._full = False
            raise error(errno.ENOSPC)
        if len(content) > 1 and self._fate.strikes("write_short"):
            content = content[: self._fate.dice("disk").randint(1, len(content) - 1)]
            self._full = self._fate.dice("disk").random() < 0.5
        elif self._fate.strikes("disk_full"):
            raise error(errno.ENOSPC)
        elif self._fate.strikes("write_error"):
            part()
            raise error(errno.EIO)
        return self._step("write", act, part)

    def truncate(self, fd: int, size: int) -> None:
        """Cut a file."""
        file = self._file(fd)

        def act() -> None:
            if size != len(file.seen):
                self.watch(self, file, size, None)
                file.truncate(size)

        self._step("truncate", act)

    def sync(self, fd: int) -> None:
        """Make a file's bytes durable, or fail in one of three ways."""
        file = self._file(fd)
        for kind in _SYNC_FAULTS:
            if self._fate.strikes(kind):
                if kind == "sync_error_dropped":
                    file.drop()
                elif kind == "sync_error_reverted":
                    file.revert()
                raise error(errno.EIO)
        self._step("sync", file.sync)

    # -- locks

    def lock(self, fd: int) -> bool:
        """Take the lock of a file."""
        opened = self._at(fd)
        file = self._file(fd)

        def act() -> bool:
            if file.holder in (None, opened):
                file.holder = opened
            return file.holder is opened

        return self._step("lock", act)

    def unlock(self, fd: int) -> None:
        """Give it back."""
        opened = self._at(fd)
        self._step("unlock", lambda: _unlock(opened))

    def locked(self, fd: int) -> bool:
        """Whether somebody else holds it."""
        return self._file(fd).holder not in (None, self._at(fd))

    def holds(self, file: File) -> bool:
        """Whether this process holds the lock of a file."""
        return any(opened is file.holder for opened in self._open.values())

    def pause(self) -> None:
        """Nobody else can do anything meanwhile: there is one thread."""

    # -- what things are

    def status(self, fd: int) -> os.stat_result:
        """What an open descriptor is."""
        return status(self._node(fd))

    def status_of(self, path: Path | str) -> os.stat_result:
        """What a path names now."""
        self._alive()
        return status(self.medium.find(str(path)))

    def user(self) -> int:
        """Whose files they are."""
        return USER

    def above(self, path: Path) -> list[Path]:
        """Its parent alone: what is above that lasts for ever here."""
        return [path.parent]

    def file_system(self, path: Path) -> str:
        """Nothing that a mount table would know."""
        return "simulated"

    def process(self) -> tuple[int, str]:
        """The process: its number, and when it started."""
        return self.number, f"life {self.number}"

    def process_started(self, pid: int) -> str | None:
        """When a process started."""
        return f"life {pid}"

    def machine(self) -> tuple[str, str]:
        """The machine and its boot."""
        return "world", BOOT

    # -- within

    def _alive(self) -> None:
        if self.dead:
            raise Crashed

    def _opened(self, opened: Opened) -> int:
        self._next += 1
        self._open[self._next] = opened
        return self._next

    def _at(self, fd: int) -> Opened:
        self._alive()
        found = self._open.get(fd)
        if found is None:
            raise error(errno.EBADF)
        return found

    def _node(self, fd: int) -> File | Directory:
        return self._at(fd).node

    def _file(self, fd: int) -> File:
        node = self._node(fd)
        if isinstance(node, Directory):
            raise error(errno.EISDIR)
        return node

    def _directory(self, fd: int) -> Directory:
        node = self._node(fd)
        if isinstance(node, File):
            raise error(errno.ENOTDIR)
        return node

    def _parent(self, name: str, within: int | None) -> tuple[Directory, str]:
        if within is not None:
            return self._directory(within), name
        self._alive()
        above, _, last = name.rpartition("/")
        node = self.medium.find(above)
        if isinstance(node, File):
            raise error(errno.ENOTDIR)
        return node, last

    def _step(self, name: str, act: Callable[[], T], part: Callable[[], None] | None = None) -> T:
        """One call that changes something: it may fail, and the process may end at it. Without a name it only looks."""
        self._alive()
        if not name:
            return act()
        if name not in _NAMED_FAULTS and self._fate.strikes("other_disk_error"):
            raise error(self._fate.dice("disk").choice(_OTHER_CODES))
        death = self._dies(name)
        if death == "within" and part is not None:
            part()
        if death in ("before", "within"):
            self._end()
        result = act()
        if death == "after":
            self._end()
        return result

    def _end(self) -> None:
        self.on_death()
        raise Crashed


def _unlock(opened: Opened) -> None:
    if isinstance(opened.node, File) and opened.node.holder is opened:
        opened.node.holder = None
