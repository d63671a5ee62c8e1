"""Where the sockets of this user are, and how far they are trusted (A41).

A socket lies in a directory of its own user that nobody else can enter, outside the state directory, since the path of a
socket is limited to about 100 bytes. Its name is drawn at random and used once, and the lease names the whole path: so nothing
that lies at such a path, whoever put it there, can stand in for a process that lives.
"""

import os
import secrets
import socket
import stat
import struct
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from semel.errors import StoreError

PATH_BYTES_MOST = 103 if sys.platform == "darwin" else 107
RUNTIME_VARIABLE = "XDG_RUNTIME_DIR"
_SUFFIX = ".sock"
_STALE_SECONDS = 60.0  # a younger one may not listen yet
_LOOKED_AT_MOST = 256
_MAC_LOCAL, _MAC_PEER = 0, 1  # SOL_LOCAL, LOCAL_PEERCRED; struct xucred starts with its version and the user
_CREDENTIALS = struct.Struct("3i")  # struct ucred: process, user, group


def make_socket(environ: Mapping[str, str]) -> tuple[socket.socket, Path]:
    """A socket, bound at a fresh name that only this user can reach. Raises StoreError where there is no place for one."""
    faults = []
    for directory in _candidates(environ):
        path = directory / f"{secrets.token_hex(8)}{_SUFFIX}"
        try:
            if len(os.fsencode(path)) > PATH_BYTES_MOST:
                raise OSError(f"the path of a socket has {PATH_BYTES_MOST} bytes at most")  # noqa: TRY301  one list of faults
            _make_private(directory)
            _sweep(directory)
            return _bound(path), path
        except OSError as error:
            faults.append(f"{directory}: {error.strerror or error}")
    raise StoreError(
        f"this process cannot be reached by others, since it found no place for its socket ({'; '.join(faults)}). "
        f"Set {RUNTIME_VARIABLE} to a directory with a short name that only you can enter."
    )


def remove(path: Path, ours: os.stat_result) -> None:
    """Take a socket away, unless something else lies there by now."""
    with suppress(OSError):
        found = path.lstat()
        if (found.st_dev, found.st_ino) == (ours.st_dev, ours.st_ino):
            path.unlink()


def is_trusted(path: Path) -> bool:
    """Whether this is a socket of ours in a directory that only we can enter; no link on its last two steps is followed."""
    try:
        return _is_private(path.parent) and _is_our_socket(path)
    except OSError:
        return False


def peer_is_us(connection: socket.socket) -> bool:
    """Whether the process at the other end belongs to this user, as the kernel says."""
    try:
        if sys.platform == "darwin":
            raw = connection.getsockopt(_MAC_LOCAL, _MAC_PEER, 8)
            user = struct.unpack("2I", raw)[1]
        else:
            user = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))[1]
    except (OSError, struct.error):
        return False
    return bool(user == os.geteuid())


def _candidates(environ: Mapping[str, str]) -> Iterator[Path]:
    """Directories that might do. The last one has a name that nobody could have taken before us."""
    runtime = Path(environ.get(RUNTIME_VARIABLE) or ".")
    if runtime.is_absolute():
        yield runtime / "semel"
    import tempfile  # not needed where there is a runtime directory

    temporary, user = Path(tempfile.gettempdir()).absolute(), os.geteuid()
    yield temporary / f"semel-{user}"
    yield temporary / f"semel-{user}-{secrets.token_hex(4)}"


def _make_private(directory: Path) -> None:
    with suppress(FileExistsError):
        directory.mkdir(mode=0o700)
    if not _is_private(directory):
        raise PermissionError("it is not a directory of this user that nobody else can enter")


def _is_private(directory: Path) -> bool:
    found = directory.lstat()
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077


def _is_our_socket(path: Path) -> bool:
    found = path.lstat()
    return stat.S_ISSOCK(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077


def _bound(path: Path) -> socket.socket:
    found = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with suppress(OSError):  # Linux makes the file with this mode; elsewhere the directory keeps others out meanwhile
            os.fchmod(found.fileno(), 0o600)
        found.bind(str(path))
        path.chmod(0o600)
    except BaseException:
        found.close()
        raise
    return found


def _sweep(directory: Path) -> None:
    """Take away what processes left behind that were killed. Whatever is in the way, nobody waits for it."""
    now = time.time()  # noqa: TID251  compared with the times of files, which are the system's
    with suppress(OSError):
        for name in sorted(os.listdir(directory))[:_LOOKED_AT_MOST]:  # noqa: PTH208  names only
            path = directory / name
            with suppress(OSError):
                if name.endswith(_SUFFIX) and _is_our_socket(path) and now - path.lstat().st_mtime > _STALE_SECONDS:
                    _remove_if_dead(path)


def _remove_if_dead(path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)  # noqa: FBT003  the only form it has
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
