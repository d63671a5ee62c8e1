"""The lease of a session: an operating-system lock on a file that is never unlinked, and the tenure stamp in it (L1-L8).

The lock alone decides. What the file says besides (process, machine, boot) is for people, so a pid that is used again, a
container in which everybody is process 1, or garbage in the file can neither free a lease nor keep one.
"""

import errno
import os
from pathlib import Path

import msgspec
from msgspec.structs import replace

from semel.adapters.file.disk import Disk
from semel.adapters.file.root import Place, naming, open_private, same_file, unlock_and_close
from semel.core.header import NUMBER_LIMIT
from semel.core.values import Frozen, printable
from semel.errors import LeaseLost, SessionBusy, StoreError, UnsafeStore
from semel.ports.control import Contact

_CONTENT_BYTES = 512  # one sector, so that a power loss leaves the old content or the new
_ATTEMPTS_MAX = 8
_NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL)


class Holder(Frozen, frozen=True, kw_only=True):
    """What the lease file says: the highest fence given out, who holds it, and where that process answers, if it does."""

    fence: int
    pid: int
    started: str
    host: str
    boot: str
    socket: str | None = None


def decode_holder(content: bytes) -> Holder | None:
    """Who a lease file names; None if it is new or holds garbage, which is as good as new."""
    try:
        holder = msgspec.json.decode(content, type=Holder)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return holder if 0 < holder.fence < NUMBER_LIMIT - 1 else None


def describe(disk: Disk, content: bytes) -> str:
    """Who holds a lease, in words; says so if the file still names a holder that is gone."""
    holder = decode_holder(content)
    if holder is None:
        return "a process that does not say which"
    if _is_gone(disk, holder):
        return "a process that is just opening it"
    return f"process {holder.pid} on {printable(holder.host, limit=64)}"


def _is_gone(disk: Disk, holder: Holder) -> bool:
    """Whether a holder of this machine has ended: whoever has the lock now has not written its stamp yet."""
    here = (holder.host, holder.boot) == disk.machine()
    return here and (holder.pid < 1 or disk.process_started(holder.pid) != holder.started)


class Look(Frozen, frozen=True, kw_only=True):
    """A lease file at a moment: what it says, and who holds it, None if nobody does."""

    content: bytes
    owner: str | None

    @property
    def stamped(self) -> bool:
        """Whether it tells of a tenure: the session is not new."""
        return decode_holder(self.content) is not None


def contact_of(disk: Disk, look: Look, lineage: str | None) -> Contact | None:
    """How to reach whoever holds a lease; None if nobody does. Only a process of this machine has an address."""
    if look.owner is None:
        return None
    holder = decode_holder(look.content)
    here = holder is not None and (holder.host, holder.boot) == disk.machine() and not _is_gone(disk, holder)
    if holder is None or not here:
        return Contact(owner=look.owner, fence=None, lineage=lineage, address=None)
    return Contact(owner=look.owner, fence=holder.fence, lineage=lineage, address=holder.socket)


def look_at(place: Place, directory: int) -> Look:
    """Look at the lease of a session without taking it."""
    disk = place.disk
    with naming("read", place.lease):
        try:
            fd = open_private(disk, Place.LEASE, directory, os.O_RDONLY, place.lease)
        except FileNotFoundError:
            return Look(content=b"", owner=None)
        try:
            held, content = disk.locked(fd), disk.read(fd)
            return Look(content=content, owner=describe(disk, content) if held else None)
        finally:
            disk.close(fd)


class Lease:
    """A lease that we hold, until `release` or our death."""

    def __init__(self, disk: Disk, fd: int, path: Path, address: str | None) -> None:
        """Made by `take`."""
        self._disk, self._fd, self.path, self._address = disk, fd, path, address
        self._at = str(path)  # asked about again and again
        self._content = disk.read(fd)  # what we wrote, once `stamp` has
        self._inode = disk.status(fd)  # what an open file is, and on which device, never changes
        self._held = True
        self.fence = 0  # the tenure stamp, once there is one

    @classmethod
    def take(cls, place: Place, directory: int, address: str | None = None) -> "Lease":
        """Lock the lease file of a session; raises SessionBusy at once if somebody holds it. It will name the `address`.

        The file is looked up again after locking: one that was replaced meanwhile is another file, whose lock proves nothing.
        """
        disk, path = place.disk, place.lease
        for _ in range(_ATTEMPTS_MAX):
            with naming("open", path):
                fd = open_private(disk, Place.LEASE, directory, os.O_RDWR | os.O_CREAT, path)
            try:
                if _is_ours_now(place, fd):
                    return cls(disk, fd, path, address)
            except BaseException:
                disk.close(fd)
                raise
            disk.close(fd)
        raise SessionBusy(_busy(place.session, "somebody whose lease file could not be locked in time"))

    @property
    def content(self) -> bytes:
        """What the file says: who had it last, and ourselves once there is a stamp."""
        return self._content

    @property
    def stamped_before(self) -> bool:
        """Whether the file tells of a tenure, ours or an earlier one: the session is not new."""
        return decode_holder(self._content) is not None

    def stamp(self, at_least: int) -> None:
        """Start a new tenure: write a fence above all before into the file and flush it, before the log is touched (L2).

        `at_least` is what the log asks for; the file may know of later tenures that wrote nothing.
        """
        last = decode_holder(self._content)
        fence = max(at_least, 0 if last is None else last.fence + 1)
        if fence >= NUMBER_LIMIT:
            raise StoreError(f"{self.path}: the log has used up all fences. Nothing was changed.")
        pid, started = self._disk.process()
        host, boot = self._disk.machine()
        holder = Holder(fence=fence, pid=pid, started=started, host=printable(host, limit=64), boot=boot, socket=self._address)
        content = _one_sector(holder)
        with naming("write", self.path):
            if len(self._content) > _CONTENT_BYTES:
                self._disk.truncate(self._fd, _CONTENT_BYTES)
            self._disk.write(self._fd, content, 0)
            self._disk.sync(self._fd)
        self._content, self.fence = content, fence

    def check(self) -> None:
        """Raise LeaseLost unless the lease is still ours: the same file in its place, with our stamp in it (P8)."""
        if self._held and _is_at(self._disk, self._inode, self._at) and self._says_ours():
            return
        raise LeaseLost(f"the lease {self.path} is no longer ours; another process may hold the session. Nothing was written.")

    def _says_ours(self) -> bool:
        """Our stamp and no byte more; a read that came short decides nothing, so all is read."""
        return self._disk.reads_as(self._fd, self._content) or self._disk.read(self._fd) == self._content

    def release(self) -> None:
        """Give it back; the file stays for ever (W24, FACT13)."""
        if self._held:
            self._held = False
            unlock_and_close(self._disk, self._fd)


def _one_sector(holder: Holder) -> bytes:
    """The content of a lease file. An address that has no room in it is left out: nobody needs it to be safe."""
    content = msgspec.json.encode(holder)
    if len(content) >= _CONTENT_BYTES:
        content = msgspec.json.encode(replace(holder, socket=None))
    return content.ljust(_CONTENT_BYTES - 1) + b"\n"


def _busy(session: str, holder: str) -> str:
    return f"session {session!r} is in use by {holder}. Wait until it is done, or send to it through its owner."


def _is_ours_now(place: Place, fd: int) -> bool:
    """Lock a lease file once; False if that must be tried again. Raises SessionBusy if somebody holds it."""
    disk, path = place.disk, place.lease
    if _locked(disk, fd, path):
        return _is_at(disk, disk.status(fd), path)
    if not disk.locks.asking_locks:
        raise SessionBusy(_busy(place.session, describe(disk, disk.read(fd))))
    disk.pause()
    return False


def _is_at(disk: Disk, inode: os.stat_result, path: Path | str) -> bool:
    try:
        return same_file(inode, disk.status_of(path))
    except OSError:
        return False


def _locked(disk: Disk, fd: int, path: Path) -> bool:
    """Try to lock; a file system without locks is refused by name and never used unlocked (B36)."""
    for _ in range(_ATTEMPTS_MAX):
        try:
            return disk.lock(fd)
        except InterruptedError:
            continue
        except OSError as error:
            if error.errno in _NO_LOCKS:
                raise UnsafeStore(f"{path} cannot be locked ({error.strerror}). Keep the state on a local disk.") from error
            raise StoreError(f"could not lock {path}: {error.strerror}. Nothing was changed.") from error
    raise StoreError(f"could not lock {path}: interrupted again and again. Nothing was changed.")
