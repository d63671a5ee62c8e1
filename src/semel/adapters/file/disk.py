"""The disk: every call of the operating system that the file adapter makes, and the seam where tests inject faults.

Files are opened relative to a directory descriptor and never through a symbolic link, so that nothing planted in a state
directory can lead outside it (A2). Descriptors are not inheritable. Errors are OSErrors; callers say what they mean.
"""

import fcntl
import os
import stat
import sys
import time
from pathlib import Path

from semel.adapters.file.locks import Locks, native_locks

_FLAGS = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # O_NONBLOCK: a planted FIFO must not hang us; regular files ignore it
DIRECTORY_MODE, FILE_MODE = 0o700, 0o600
_READ_BYTES = 1 << 30  # more than one call reads
_PAUSE_SECONDS = 0.01


class Disk:
    """The real disk. A subclass may fail, count or kill at any of these calls; nothing else reaches the operating system."""

    def __init__(self, locks: Locks | None = None) -> None:
        """`locks` is how files are locked; by default what this platform does best."""
        self.locks = locks or native_locks()

    def make_directory(self, name: str, within: int | None) -> None:
        """Create a private directory; FileExistsError if there is one."""
        os.mkdir(name, DIRECTORY_MODE, dir_fd=within)

    def open_directory(self, name: str, within: int | None) -> int:
        """Descriptor of a directory; a name within another directory may not be a symbolic link."""
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        return os.open(name, flags if within is None else flags | os.O_NOFOLLOW, dir_fd=within)

    def open_file(self, name: str, within: int, flags: int) -> int:
        """Descriptor of a file in a directory. `flags` are those of `os.open`."""
        return os.open(name, flags | _FLAGS, FILE_MODE, dir_fd=within)

    def close(self, fd: int) -> None:
        """Close a descriptor."""
        os.close(fd)

    def read(self, fd: int, offset: int = 0, limit: int | None = None) -> bytes:
        """The bytes from `offset` to the end, or the first `limit` of them."""
        parts: list[bytes] = []
        left = max(os.fstat(fd).st_size - offset, 0) + 1 if limit is None else limit
        while left and (part := os.pread(fd, min(_READ_BYTES, left), offset)):
            parts.append(part)
            offset += len(part)
            left -= len(part)
        return b"".join(parts)

    def reads_as(self, fd: int, content: bytes) -> bool:
        """Whether a file is `content` and no byte more, by one read; False also where that read came short."""
        return os.pread(fd, len(content) + 1, 0) == content

    def write_some(self, fd: int, data: memoryview, offset: int | None) -> int:
        """One write: at `offset`, or at the end of a file opened to append. May be short."""
        return os.write(fd, data) if offset is None else os.pwrite(fd, data, offset)

    def write(self, fd: int, data: bytes, offset: int | None = None) -> None:
        """Write all of `data`, in as many writes as it takes."""
        rest = memoryview(data)
        while rest:
            done = self.write_some(fd, rest, offset)
            rest = rest[done:]
            offset = None if offset is None else offset + done

    def sync(self, fd: int) -> None:
        """Make a file's bytes and size durable, through the drive's own cache too."""
        if sys.platform == "darwin":
            fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
        else:
            os.fdatasync(fd)

    def read_from_device(self, fd: int, offset: int, limit: int) -> bytes:
        """The first `limit` bytes from `offset` on as the device has them, of a file that was just synced.

        A sync that failed once may have left pages that the kernel calls clean and never wrote (HAZ3); a later sync succeeds
        without them. So the kernel is told to let go of what it has in memory, where it can be told.
        """
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        return self.read(fd, offset, limit)

    def sync_directory(self, fd: int) -> None:
        """Make the entries of a directory durable."""
        if sys.platform == "darwin":
            fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
        else:
            os.fsync(fd)

    def truncate(self, fd: int, size: int) -> None:
        """Cut a file to `size` bytes."""
        os.ftruncate(fd, size)

    def rename(self, old: str, new: str, within: int) -> None:
        """Replace `new` by `old` in one directory, atomically."""
        os.rename(old, new, src_dir_fd=within, dst_dir_fd=within)

    def unlink(self, name: str, within: int) -> None:
        """Remove a name from a directory."""
        os.unlink(name, dir_fd=within)

    def lock(self, fd: int) -> bool:
        """Take the exclusive lock of a file; False if somebody else has it."""
        return self.locks.lock(fd)

    def unlock(self, fd: int) -> None:
        """Give the lock back at once, also if a child process still has a copy of the descriptor."""
        self.locks.unlock(fd)

    def locked(self, fd: int) -> bool:
        """Whether somebody holds the lock of a file, through another descriptor than this."""
        return self.locks.held(fd)

    def pause(self) -> None:
        """Let somebody else finish what takes him a moment."""
        time.sleep(_PAUSE_SECONDS)

    def status(self, fd: int) -> os.stat_result:
        """What an open descriptor is."""
        return os.fstat(fd)

    def status_of(self, path: Path | str) -> os.stat_result:
        """What a path names now; a symbolic link at its end is what it names."""
        return os.lstat(path)

    def names(self, fd: int) -> list[str]:
        """Names in a directory, sorted."""
        return sorted(os.listdir(fd))

    def user(self) -> int:
        """Whose files are ours."""
        return os.geteuid()

    def above(self, path: Path) -> list[Path]:
        """The directories through which names lead to `path` within its file system, nearest first; none where it is mounted.

        Links are followed, since a name is kept in the directory that it really is in. One that we may neither read nor change
        is left out: nothing in it was made with our rights. Raises OSError.
        """
        real, found = Path(os.path.realpath(path)), list[Path]()
        device = real.stat().st_dev
        for directory in real.parents:
            if directory.stat().st_dev != device:
                break
            if _may(directory, os.R_OK) or _may(directory, os.W_OK):
                found.append(directory)
        return found

    def file_system(self, path: Path) -> str:
        """Type of the file system that holds `path`, as the mount table calls it; "" where there is no such table."""
        table = Path("/proc/self/mountinfo")
        return mounted_type(table.read_text(errors="replace"), path) if table.exists() else ""

    def process(self) -> tuple[int, str]:
        """Our process: its number, and when it started (a number alone is used again)."""
        return os.getpid(), self.process_started(os.getpid()) or ""

    def process_started(self, pid: int) -> str | None:
        """When a process of this machine started, in words of its kernel; None if there is no such process."""
        try:
            line = Path(f"/proc/{pid}/stat").read_text(errors="replace")
        except OSError:
            return "" if sys.platform == "darwin" and _exists(pid) else None
        return line.rpartition(")")[2].split()[19]

    def machine(self) -> tuple[str, str]:
        """Name of this machine, and the identity of its current boot ("" where the kernel has none)."""
        boot = Path("/proc/sys/kernel/random/boot_id")
        return os.uname().nodename, boot.read_text().strip() if boot.exists() else ""


def _may(path: Path, mode: int) -> bool:
    return os.access(path, mode, effective_ids=os.access in os.supports_effective_ids)


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def is_private_file(found: os.stat_result, user: int) -> str | None:
    """Why a file in a state directory is not to be trusted, in words; None if it is (A2)."""
    if not stat.S_ISREG(found.st_mode):
        return "is not a regular file"
    if found.st_nlink > 1:
        return "has more than one name (hard links)"
    return _not_ours(found, user)


def is_private_directory(found: os.stat_result, user: int) -> str | None:
    """Why a state directory is not to be trusted, in words; None if it is (A3)."""
    return _not_ours(found, user)


def _not_ours(found: os.stat_result, user: int) -> str | None:
    if found.st_uid != user:
        return f"belongs to user {found.st_uid}, not to user {user}"
    if found.st_mode & stat.S_IWOTH:
        return "may be written by everybody"
    return None


def mounted_type(table: str, path: Path) -> str:
    """Type of the innermost mount that holds `path`, from the text of /proc/self/mountinfo."""
    best, found = -1, ""
    for line in table.splitlines():
        left, _, right = line.partition(" - ")
        fields = left.split()
        if len(fields) < 5 or not right:
            continue
        mount = Path(fields[4].encode("latin-1", "replace").decode("unicode_escape"))
        depth = len(mount.parts)
        if depth >= best and (path == mount or mount in path.parents):
            best, found = depth, right.split()[0]
    return found
