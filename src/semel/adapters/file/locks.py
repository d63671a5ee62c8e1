"""Advisory locks of the operating system: the only truth about who holds a session (L1, L7, FACT13).

The kernel frees them when their holder dies, however it dies. Both kinds belong to the open file, not to the process, so
that a second open in one process conflicts too, and closing an unrelated descriptor of the same file frees nothing.
"""

import errno
import fcntl
import struct
from typing import Protocol

_BUSY = (errno.EAGAIN, errno.EACCES)
_RECORD = struct.Struct("hhqqi4x")  # struct flock: type, whence, start, length (0 = all), pid (0 for locks of an open file)


class Locks(Protocol):
    """A way to lock whole files. OSErrors other than "somebody has it" are passed on: ENOLCK, EOPNOTSUPP and so on."""

    asking_locks: bool  # whether `held` takes the lock for a moment

    def lock(self, fd: int) -> bool:
        """Take the exclusive lock without waiting; False if somebody else has it."""

    def unlock(self, fd: int) -> None:
        """Give it back."""

    def held(self, fd: int) -> bool:
        """Whether it is held through another descriptor."""


class OpenFileLocks:
    """Locks of an open file description (Linux): they can be asked about without being taken."""

    asking_locks = False

    def lock(self, fd: int) -> bool:
        """Take it without waiting."""
        try:
            fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _RECORD.pack(fcntl.F_WRLCK, 0, 0, 0, 0))
        except OSError as error:
            if error.errno in _BUSY:
                return False
            raise
        return True

    def unlock(self, fd: int) -> None:
        """Give it back."""
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _RECORD.pack(fcntl.F_UNLCK, 0, 0, 0, 0))

    def held(self, fd: int) -> bool:
        """Ask the kernel which lock would stand in the way of a shared one."""
        answer = fcntl.fcntl(fd, fcntl.F_OFD_GETLK, _RECORD.pack(fcntl.F_RDLCK, 0, 0, 0, 0))
        return bool(_RECORD.unpack(answer)[0] != fcntl.F_UNLCK)


class WholeFileLocks:
    """flock (macOS): asking takes a shared lock for a moment, which an opener may run into; it tries again."""

    asking_locks = True

    def lock(self, fd: int) -> bool:
        """Take it without waiting."""
        return self._try(fd, fcntl.LOCK_EX)

    def unlock(self, fd: int) -> None:
        """Give it back."""
        fcntl.flock(fd, fcntl.LOCK_UN)

    def held(self, fd: int) -> bool:
        """Try to share it."""
        shared = self._try(fd, fcntl.LOCK_SH)
        if shared:
            self.unlock(fd)
        return not shared

    def _try(self, fd: int, kind: int) -> bool:
        try:
            fcntl.flock(fd, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def native_locks() -> Locks:
    """What this platform does best. All processes of one machine must choose the same, so it depends on nothing else."""
    return OpenFileLocks() if hasattr(fcntl, "F_OFD_SETLK") else WholeFileLocks()
