"""A process that raises a feature floor, name by name: raiser ROOT NAME...; prints its persistence calls when done."""

import sys
from pathlib import Path

from semel.adapters.file.floor import FileFloor
from semel.adapters.file.root import Root
from semel.testing.faults import KillingDisk


def main(root: str, *names: str) -> None:
    disk = KillingDisk.from_environment()
    floor = FileFloor(Root(Path(root), disk))
    for name in names:
        floor.raise_to([name])
    print(" ".join(disk.calls), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
