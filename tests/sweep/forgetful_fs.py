"""A file system that loses power on command: what no sync covered is gone, bytes as well as names. Mounted through FUSE.

    python -m tests.sweep.forgetful_fs MOUNT IMAGE SEED [lying]

It starts with what lies below IMAGE and says `mounted`. At `drop` on stdin it writes what is durable there, says `dropped` with
how much was lost, and ends. With SEED 0 all that is not durable is lost; with another one, sectors of 512 bytes that were
written are there or not, one by one, behind what is durable. A lying one says that it has synced, and has not.
"""

import errno
import os
import random
import stat
import sys
import threading
import time
from pathlib import Path
from typing import Any

import mfusepy

SECTOR = 512
_Error = mfusepy.FuseOSError


class Node:
    """A file or directory, as it is and as it would be after a power loss."""

    def __init__(self, number: int, *, directory: bool, mode: int) -> None:
        self.number, self.directory, self.mode, self.changed = number, directory, mode, time.time_ns()
        self.data, self.durable = bytearray(), b""
        self.names: dict[str, Node] = {}
        self.durable_names: dict[str, Node] = {}


class ForgetfulFs(mfusepy.Operations):
    """The tree. A file is durable up to its last sync, a name up to the last sync of its directory."""

    use_ns = True

    def __init__(self, *, lying: bool) -> None:
        self._count, self._lying = 1, lying
        self.root = Node(1, directory=True, mode=0o700)

    def load(self, image: Path, node: Node | None = None) -> None:
        node = node or self.root
        for path in sorted(image.iterdir()):
            child = self._node(directory=path.is_dir(), mode=path.stat().st_mode & 0o777)
            node.names[path.name] = node.durable_names[path.name] = child
            if path.is_dir():
                self.load(path, child)
            else:
                child.durable = path.read_bytes()
                child.data[:] = child.durable

    def store(self, image: Path, rng: random.Random | None, node: Node | None = None) -> int:
        """Write what is durable; returns how many bytes and names were not."""
        node = node or self.root
        image.mkdir(mode=0o700, exist_ok=True)
        lost = len(set(node.names) - set(node.durable_names))
        for name, child in node.durable_names.items():
            if child.directory:
                lost += self.store(image / name, rng, child)
            else:
                kept = child.durable if rng is None else _torn(child, rng)
                (image / name).write_bytes(kept)
                lost += kept != child.data
            (image / name).chmod(child.mode)
        return lost

    def _node(self, *, directory: bool, mode: int) -> Node:
        self._count += 1
        return Node(self._count, directory=directory, mode=mode)

    def _find(self, path: str) -> Node:
        node = self.root
        for name in path.strip("/").split("/") if path != "/" else ():
            if name not in node.names:
                raise _Error(errno.ENOENT)
            node = node.names[name]
        return node

    def _parent(self, path: str) -> tuple[Node, str]:
        above, _, name = path.rpartition("/")
        return self._find(above or "/"), name

    def getattr(self, path: str, fh: int | None = None) -> dict[str, Any]:
        node = self._find(path)
        kind = stat.S_IFDIR if node.directory else stat.S_IFREG
        times = dict.fromkeys(("st_atime", "st_mtime", "st_ctime"), node.changed)
        owner = {"st_uid": os.getuid(), "st_gid": os.getgid(), "st_nlink": 1, "st_ino": node.number}
        return {"st_mode": kind | node.mode, "st_size": len(node.data), **owner, **times}

    def readdir(self, path: str, fh: int) -> list[tuple[str, dict[str, int], int]]:
        node = self._find(path)
        found = {".": node, "..": node, **node.names}
        kinds = {name: stat.S_IFDIR if one.directory else stat.S_IFREG for name, one in found.items()}
        return [(name, {"st_ino": one.number, "st_mode": kinds[name]}, 0) for name, one in found.items()]

    def mkdir(self, path: str, mode: int) -> int:
        parent, name = self._parent(path)
        if name in parent.names:
            raise _Error(errno.EEXIST)
        parent.names[name] = self._node(directory=True, mode=mode & 0o777)
        return 0

    def create(self, path: str, mode: int, fi: Any = None) -> int:
        parent, name = self._parent(path)
        parent.names[name] = self._node(directory=False, mode=mode & 0o777)
        return 0

    def open(self, path: str, flags: int) -> int:
        self._find(path)
        return 0

    def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
        return bytes(self._find(path).data[offset : offset + size])

    def write(self, path: str, data: bytes, offset: int, fh: int) -> int:
        node = self._find(path)
        node.data.extend(bytes(max(0, offset - len(node.data))))
        node.data[offset : offset + len(data)] = data
        node.changed = time.time_ns()
        return len(data)

    def truncate(self, path: str, length: int, fh: int | None = None) -> int:
        node = self._find(path)
        node.data[length:] = bytes(max(0, length - len(node.data)))
        node.changed = time.time_ns()
        return 0

    def fsync(self, path: str, datasync: int, fh: int) -> int:
        node = self._find(path)
        if not self._lying:
            node.durable = bytes(node.data)
        return 0

    def fsyncdir(self, path: str, datasync: int, fh: int) -> int:
        node = self._find(path)
        if not self._lying:
            node.durable_names = dict(node.names)
        return 0

    def rename(self, old: str, new: str) -> int:
        source, name = self._parent(old)
        target, renamed = self._parent(new)
        target.names[renamed] = source.names.pop(name)
        return 0

    def unlink(self, path: str) -> int:
        parent, name = self._parent(path)
        del parent.names[name]
        return 0

    def rmdir(self, path: str) -> int:
        return self.unlink(path)

    def chmod(self, path: str, mode: int) -> int:
        self._find(path).mode = mode & 0o777
        return 0

    def utimens(self, path: str, times: Any = None) -> int:
        return 0

    def statfs(self, path: str) -> dict[str, int]:
        return {"f_bsize": 4096, "f_blocks": 1 << 20, "f_bavail": 1 << 20, "f_bfree": 1 << 20}


def _torn(node: Node, rng: random.Random) -> bytes:
    """The durable bytes, and of what was written behind them some sectors."""
    if bytes(node.data[: len(node.durable)]) != node.durable:
        return node.durable if rng.random() < 0.5 else bytes(node.data)  # it was written over: one sector, old or new
    kept = bytearray(node.durable.ljust(len(node.data), b"\0"))
    for start in range(len(node.durable) - len(node.durable) % SECTOR, len(node.data), SECTOR):
        if rng.random() < 0.5:
            kept[max(start, len(node.durable)) : start + SECTOR] = node.data[max(start, len(node.durable)) : start + SECTOR]
    return bytes(kept)


def main(mount: str, image: str, seed: str, lying: str = "") -> None:
    tree = ForgetfulFs(lying=bool(lying))
    tree.load(Path(image))

    def obey() -> None:
        if sys.stdin.readline().strip() == "drop":
            rng = random.Random(int(seed)) if int(seed) else None
            print("dropped", tree.store(Path(image), rng), flush=True)
        os._exit(0)

    def begin() -> None:
        while not os.path.ismount(mount):
            time.sleep(0.005)
        print("mounted", flush=True)
        obey()

    threading.Thread(target=begin, daemon=True).start()
    options = {"direct_io": True, "attr_timeout": 0, "entry_timeout": 0, "negative_timeout": 0, "use_ino": True}
    mfusepy.FUSE(tree, mount, foreground=True, nothreads=True, **options)


if __name__ == "__main__":
    main(*sys.argv[1:])
