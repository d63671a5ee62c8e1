"""Stands beside the disk: every write to a log, and every cut, at the moment when it is made."""

from typing import TYPE_CHECKING

from semel.adapters.file.floor import NAME as FLOOR
from semel.adapters.file.floor import decode_floor
from semel.testing.world.follower import STATE, log_path, session_path

if TYPE_CHECKING:
    from semel.testing.world.disk import SimDisk
    from semel.testing.world.medium import File
    from semel.testing.world.world import World


class Guard:
    """What it remembers: who wrote under which fence, and where the writing of each process began."""

    def __init__(self) -> None:
        """Nobody has written yet."""
        self.tenures: dict[tuple[str, int], int] = {}
        self.began: dict[tuple[str, int], int] = {}


def watch(world: "World", disk: "SimDisk", file: "File", offset: int, data: bytes | None) -> None:
    """Look at a change of a file before it is made; `data` is None for a cut at `offset`."""
    for session in world.sessions:
        if world.medium.look(log_path(session)) is not file:
            continue
        if data is None:
            _cut(world, disk, session, file, offset)
        else:
            _write(world, disk, session, file, offset=offset, data=data)


def _write(world: "World", disk: "SimDisk", session: str, file: "File", *, offset: int, data: bytes) -> None:
    """Only who holds the lease writes, under a fence of its own, within the ceiling and the floor (I6, I13, I14)."""
    witness = world.witness
    lease = world.medium.look(f"{session_path(session)}/lease")
    witness.hold("I6", lease is not None and disk.holds(lease), f"process {disk.number} writes {session!r} without its lease")
    witness.hold("I13", offset + len(data) <= world.ceiling_bytes, f"the log of {session!r} grows beyond its ceiling")
    there = bytes(file.seen[offset : offset + len(data)])
    if there:
        witness.hold("I11", data.startswith(there), f"bytes of {session!r} at {offset} are written over with others")
        return
    world.guard.began.setdefault((session, disk.number), offset)
    if offset and file.seen[offset - 1 : offset] != b"\n":
        return
    for line in data.split(b"\n")[:-1]:
        fields = line.split(b" ", 8)
        fence = fields[3]
        if fields[7] != b"-":
            floor = decode_floor(world.medium.durable_bytes(f"{STATE}/{FLOOR}")) or frozenset()
            needed = set(fields[7].decode().split(","))
            witness.hold("I14", needed <= floor, f"a record of {session!r} needs {needed}, which is not in the durable floor")
        owner = world.guard.tenures.setdefault((session, int(fence)), disk.number)
        witness.hold(
            "I6", owner == disk.number, f"fence {int(fence)} of {session!r} is used by processes {owner} and {disk.number}"
        )


def _cut(world: "World", disk: "SimDisk", session: str, file: "File", size: int) -> None:
    """Nothing durable is cut, nor shown; what another process has left is kept aside first, durably (I11)."""
    witness = world.witness
    witness.durable(session)
    follower = witness.follower(session)
    witness.hold(
        "I11", size >= follower.bytes_durable, f"{session!r} is cut at {size}, and {follower.bytes_durable} bytes were durable"
    )
    torn = bytes(file.seen[size:])
    if not torn or world.guard.began.get((session, disk.number), size + 1) <= size:
        return
    path = session_path(session)
    kept = [world.medium.durable_bytes(name) for name in world.medium.files(path) if "/wal.torn-" in name]
    witness.hold("I11", torn in kept, f"{len(torn)} bytes of {session!r} are cut and not kept aside")
