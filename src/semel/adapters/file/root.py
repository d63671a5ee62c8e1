"""The state directory: made private, walked by descriptor, refused when it cannot be trusted (A2, A3)."""

import errno
import os
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from semel.adapters.file.disk import Disk, is_private_directory, is_private_file
from semel.adapters.file.names import directory_name
from semel.errors import StoreError, UnsafeStore

SESSIONS = "sessions"
TOLD = "told"  # beside the sessions; who tells people that one waits keeps its marks there
_CHECK = "Check who owns it, and whether its disk is full, read-only or broken."
REMEDY = "Keep the state directory on a local disk, in a directory that only you can write to."
_NOT_A_PLAIN_NAME = (errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.ENXIO)
NETWORK = frozenset(
    {
        *("9p", "afs", "beegfs", "ceph", "cifs", "coda", "davfs", "gfs2", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4"),
        *("ocfs2", "smb2", "smb3", "smbfs"),
        *("fuse.ceph", "fuse.davfs2", "fuse.gcsfuse", "fuse.glusterfs", "fuse.juicefs", "fuse.rclone", "fuse.s3fs", "fuse.sshfs"),
    }
)


class NotSynced(OSError):
    """A directory could not be made durable, and with it everything below it."""

    def __init__(self, error: OSError, directory: Path) -> None:
        """`error` is what the operating system said about the directory."""
        super().__init__(error.errno, error.strerror)
        self.directory = directory

    @property
    def cure(self) -> str:
        """What to do about it, as the start of a sentence."""
        if self.errno not in (errno.EACCES, errno.EPERM):
            return "Try again"
        return f"It must be readable to make durable what is in it: {make_readable(self.directory)}"


@contextmanager
def naming(what: str, path: Path) -> Iterator[None]:
    """Turn an OSError of the block into a StoreError that says what was being done, where."""
    try:
        yield
    except OSError as error:
        if error.errno in _NOT_A_PLAIN_NAME:
            raise UnsafeStore(f"could not {what} {path}: it is a link or no plain file. {REMEDY}") from error
        directory = f" ({error.directory})" if isinstance(error, NotSynced) else ""
        raise StoreError(f"could not {what} {path}: {error.strerror or error}{directory}. {_CHECK}") from error


@contextmanager
def _about(directory: Path) -> Iterator[None]:
    """Turn an OSError of the block into one that names the directory."""
    try:
        yield
    except OSError as error:
        raise NotSynced(error, directory) from error


def make_readable(directory: Path) -> str:
    """What to do about a directory that has to be synced and may not be read."""
    return f"`chmod u+r {shlex.quote(str(directory))}`, or keep the state directory elsewhere"


def open_private(disk: Disk, name: str, within: int, flags: int, path: Path) -> int:
    """Open a file of a state directory; raises UnsafeStore unless it is a plain file with one name that only we write."""
    try:
        fd = disk.open_file(name, within, flags)
    except OSError as error:
        if error.errno in _NOT_A_PLAIN_NAME:
            raise UnsafeStore(f"{path} is a link or no plain file. {REMEDY}") from error
        raise
    fault = is_private_file(disk.status(fd), disk.user())
    if fault is not None:
        disk.close(fd)
        raise UnsafeStore(f"{path} {fault}. {REMEDY}")
    return fd


def replace_file(
    disk: Disk, name: str, content: bytes, within: int, path: Path, *, check: Callable[[], None] | None = None
) -> None:
    """Put `content` in place of a file: new file, sync, rename. The directory is for the caller to sync, if it matters.

    `check` raises if somebody else may be doing the same: it is asked right before the rename, and a new file that lies there is
    removed instead of written to, since it may be the one that he is about to put in place.
    """
    temporary = f"{name}.new"
    begun, flags = path.with_name(temporary), os.O_WRONLY | os.O_CREAT
    if check is None:
        fd = open_private(disk, temporary, within, flags, begun)
    else:
        try:
            fd = open_private(disk, temporary, within, flags | os.O_EXCL, begun)
        except FileExistsError:
            disk.unlink(temporary, within)
            fd = open_private(disk, temporary, within, flags | os.O_EXCL, begun)
    try:
        disk.truncate(fd, 0)
        disk.write(fd, content, 0)
        disk.sync(fd)
    finally:
        disk.close(fd)
    if check is not None:
        check()
    disk.rename(temporary, name, within)


def unlock_and_close(disk: Disk, fd: int) -> None:
    """Give a lock back. Closing alone would do, unless a child process still has a copy of the descriptor."""
    try:
        with suppress(OSError):
            disk.unlock(fd)
    finally:
        disk.close(fd)


def same_file(one: os.stat_result, other: os.stat_result) -> bool:
    """Whether two names lead to one file."""
    return one.st_ino == other.st_ino and one.st_dev == other.st_dev


class Life:
    """A state directory from when it was made until it is removed; what was proven of one holds for no other."""

    def __init__(self, identity: tuple[int, ...]) -> None:
        """`identity` is what the directories are, which a later one may have again: numbers of files are used anew."""
        self.identity = identity


_lives: dict[str, Life] = {}  # by absolute path, as this process found or made them


class Root:
    """One state directory. `path` is absolute, so that a change of the working directory moves nothing."""

    def __init__(self, path: Path, disk: Disk) -> None:
        """Touches nothing yet."""
        self.path = path.absolute()
        self.disk = disk
        self._at = str(self.path)  # asked about before each gated write
        self._proven: Life | None = None
        self._kind = ""

    @property
    def life(self) -> Life | None:
        """Which state directory there is at this path; None before `prepare`. Asks no disk."""
        return _lives.get(self._at)

    def prepare(self) -> None:
        """Make the directory if it is missing; raises UnsafeStore if it cannot be trusted."""
        with naming("make", self.path):
            missing = [level for level in reversed([self.path, *self.path.parents]) if not self._is_there(level)]
            made = sum(self._make(str(level), None) for level in missing)
            with self.open() as root:
                made += self._make(SESSIONS, root)
                self._note(root, made=made > 0)
        self._kind = self._kind or self.disk.file_system(self.path)
        kind = self._kind
        if kind in NETWORK:
            raise UnsafeStore(
                f"{self.path} is on a network file system ({kind}), whose locks and syncs cannot be relied on. {REMEDY}"
            )

    @contextmanager
    def open(self) -> Iterator[int]:
        """Descriptor of the state directory; FileNotFoundError if there is none."""
        with self.directory(str(self.path), None, self.path) as root:
            yield root

    @contextmanager
    def sessions(self) -> Iterator[int]:
        """Descriptor of the directory that holds the sessions' directories."""
        with self.open() as root, self.directory(SESSIONS, root, self.path / SESSIONS) as sessions:
            yield sessions

    def sync(self) -> None:
        """Make durable what is in the root, and every name on the way to it, once per process and life; raises OSError.

        Who made those directories, and whether it lived long enough to sync their names, nobody can know: so it is every one
        of the file system, not only those that this process made (W25).
        """
        life = self.life
        if life is not None and self._proven is life:
            return
        with self.open() as root:  # to the end: while it is open, its number is given to no other directory
            with _about(self.path):
                self.disk.sync_directory(root)
            for path in self.disk.above(self.path):
                with _about(path):
                    self._sync_above(str(path))
            self._proven = life

    def _sync_above(self, path: str) -> None:
        directory = self.disk.open_directory(path, None)
        try:
            self.disk.sync_directory(directory)
        finally:
            self.disk.close(directory)

    def _make(self, name: str, within: int | None) -> bool:
        """Make a directory; False if there is one."""
        try:
            self.disk.make_directory(name, within)
        except FileExistsError:
            return False
        return True

    def _note(self, root: int, *, made: bool) -> None:
        """Notice a state directory that is not the one that was here, though it has the same path."""
        found, sessions = self.disk.status(root), self.disk.status_of(self.path / SESSIONS)
        identity = (found.st_dev, found.st_ino, sessions.st_ino)
        life = self.life
        if made or life is None or life.identity != identity:
            _lives[self._at] = Life(identity)

    def _is_there(self, path: Path) -> bool:
        try:
            self.disk.status_of(path)
        except FileNotFoundError:
            return False
        return True

    @contextmanager
    def directory(self, name: str, within: int | None, path: Path) -> Iterator[int]:
        """Descriptor of a directory that can be trusted."""
        try:
            fd = self.disk.open_directory(name, within)
        except OSError as error:
            if error.errno in _NOT_A_PLAIN_NAME:
                raise UnsafeStore(f"{path} is a link or no directory. {REMEDY}") from error
            raise
        try:
            fault = is_private_directory(self.disk.status(fd), self.disk.user())
            if fault is not None:
                raise UnsafeStore(f"{path} {fault}. {REMEDY}")
            yield fd
        finally:
            self.disk.close(fd)


class Place:
    """Where one session is kept: its directory in a root, and the files in it."""

    LOG, LEASE, STATUS = "wal.log", "lease", "status.json"

    def __init__(self, root: Root, session: str) -> None:
        """Raises BadSessionId; touches nothing."""
        self.root, self.disk, self.session = root, root.disk, session
        self.name = directory_name(session)
        self.path = root.path / SESSIONS / self.name
        self.log, self.lease, self.status = (self.path / name for name in (self.LOG, self.LEASE, self.STATUS))

    @contextmanager
    def open(self, *, create: bool = False) -> Iterator[int]:
        """Descriptor of the directory; FileNotFoundError if there is none."""
        with self.root.sessions() as sessions:
            if create:
                with suppress(FileExistsError):
                    self.disk.make_directory(self.name, sessions)
            with self.root.directory(self.name, sessions, self.path) as directory:
                yield directory

    def sync_parents(self) -> None:
        """Make the way to the files of the session durable: every entry, in its own parent (W25).

        Raises NotSynced.
        """
        with self.open() as directory, _about(self.path):
            self.disk.sync_directory(directory)
        with self.root.sessions() as sessions, _about(self.path.parent):
            self.disk.sync_directory(sessions)
        self.root.sync()

    def read_status(self, directory: int) -> bytes | None:
        """The status document, None if there is none."""
        with naming("read", self.status):
            try:
                fd = open_private(self.disk, self.STATUS, directory, os.O_RDONLY, self.status)
            except FileNotFoundError:
                return None
            try:
                return self.disk.read(fd)
            finally:
                self.disk.close(fd)
