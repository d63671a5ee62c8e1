"""What the storage tests share: a place, and stores on it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from semel.adapters.file.disk import Disk
from semel.adapters.file.store import FileStore
from semel.adapters.system import SystemClock

KNOWN = frozenset({"early-return/v1", "terminate/v1", "a/v1"})
MakeStore = Callable[..., FileStore]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def make_store(root: Path) -> MakeStore:
    def make(disk: Disk | None = None, *, known: frozenset[str] = KNOWN, inline: bool = True) -> FileStore:
        return FileStore(root, SystemClock(), known=known, disk=disk, inline_sync=inline)

    return make


@pytest.fixture
def place(root: Path) -> Path:
    """The directory of session box."""
    return root / "sessions" / "box"


def plant(root: Path, data: bytes, session: str = "box") -> Path:
    """Put a log into a state directory, as a crash may have left it."""
    directory = root / "sessions" / session
    for level in (root, root / "sessions", directory):
        level.mkdir(mode=0o700, exist_ok=True)
    path = directory / "wal.log"
    path.write_bytes(data)
    path.chmod(0o600)
    return path


def written_once_more(path: Path, data: bytes) -> None:
    """Write a file in place until its time of change tells: the clock of a file system has ticks."""
    left = path.stat().st_mtime_ns
    while path.stat().st_mtime_ns == left:
        path.write_bytes(data)


def contents(directory: Path) -> dict[str, bytes]:
    """Every file below a directory."""
    return {str(path.relative_to(directory)): path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()}


async def refused_unchanged(
    make_store: MakeStore, root: Path, error: type[Exception], known: frozenset[str] | None = None
) -> None:
    options = {} if known is None else {"known": known}
    before = contents(root)
    for _ in range(2):
        with pytest.raises(error):
            await make_store(**options).open("box")
        with pytest.raises(error):
            make_store(**options).read("box")
    assert {"sessions/box/lease": b""} | before == contents(root)  # the lease file may be new; the lock needs it
